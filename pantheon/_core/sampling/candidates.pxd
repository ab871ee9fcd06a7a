# The list of candidates: collected from the logits, ordered, weighted. Everything works on the thread's pn_scratch;
# logits are (n,) f32 without NaN, borrowed, not changed. No function here fails or needs the GIL.
from libc.stdint cimport uint64_t

from pantheon._core.sampling.scratch cimport pn_scratch

# Maximum of the logits and of their blocks (s.block_max, which the next two read); the index of the first NaN, or -1.
cdef int pn_cand_scan(pn_scratch *s, const float *logits, int n, float *max) noexcept nogil
# The lowest index of the maximum that pn_cand_scan found.
cdef int pn_cand_argmax(pn_scratch *s, const float *logits, int n, float max) noexcept nogil
# The list that holds one token alone.
cdef void pn_cand_only(pn_scratch *s, int id, float l) noexcept nogil
# Mean and population standard deviation of the finite logits, of which there must be one.
cdef void pn_cand_moments(const float *logits, int n, float max, double *mean, double *deviation) noexcept nogil
# Sum of exp((l - max) / T) over the logits >= floor, without listing them.
cdef double pn_cand_total(const float *logits, int n, float max, float inv_t, float floor) noexcept nogil
# All logits >= floor that are not -inf, by id.
cdef void pn_cand_collect(pn_scratch *s, const float *logits, int n, float floor) noexcept nogil
# The k >= 1 largest of them, by logit; equal logits: the lower id first.
cdef void pn_cand_collect_top(pn_scratch *s, const float *logits, int n, float floor, int k) noexcept nogil
# Orders the candidates by logit.
cdef void pn_cand_sort(pn_scratch *s) noexcept nogil
# Cuts the list to its k largest logits, and orders it by logit.
cdef void pn_cand_keep_top(pn_scratch *s, int k) noexcept nogil
# Fills s.max, s.sum and s.e = exp((l - s.max) / T).
cdef void pn_cand_exp(pn_scratch *s, float inv_t) noexcept nogil
# Fills s.e again after the list changed, with s.max and s.sum as they were.
cdef void pn_cand_weigh(pn_scratch *s, float inv_t) noexcept nogil
# Entropy in nats of the candidates' probabilities; after pn_cand_exp(s, 1).
cdef double pn_cand_entropy(pn_scratch *s) noexcept nogil
# Index of a candidate drawn by the weights s.e, whose sum is s.sum: the first at which their running sum reaches the
# drawn share of it. Takes one draw from rng (4,).
cdef int pn_cand_draw(const pn_scratch *s, uint64_t *rng) noexcept nogil
# Sorts n keys by falling upper half; keys with equal upper halves keep their order. tmp (n,).
cdef void pn_key_sort(uint64_t *key, uint64_t *tmp, int n) noexcept nogil
