# The truncations of a list of candidates, each as docs/sampling.md defines it. They read and shorten the list in the
# thread's pn_scratch, never to nothing; a cut keeps the order of what is left. No function fails or needs the GIL.
from libc.math cimport logf
from libc.stdint cimport uint64_t

from pantheon._core.sampling.scratch cimport pn_scratch

cdef void pn_cut_typical(pn_scratch *s, float typical_p, int min_keep) noexcept nogil
# total: sum of exp(l - s.max) over all candidates of this step when s already lacks some that could not be kept; else 0
cdef void pn_cut_top_p(pn_scratch *s, float top_p, int min_keep, double total) noexcept nogil
cdef void pn_cut_min_p(pn_scratch *s, float min_p, int min_keep) noexcept nogil
# May take one draw from rng (4,)
cdef void pn_cut_xtc(pn_scratch *s, float probability, float threshold, int min_keep, uint64_t *rng) noexcept nogil


cdef inline float pn_min_p_floor(float largest, float min_p) noexcept nogil:
    """The logit at which p = min_p * p_max."""
    return largest + logf(min_p)
