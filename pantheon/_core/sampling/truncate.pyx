"""Typical-p, top-p, min-p and XTC. Top-k and top-n-sigma need no probabilities: the list is collected by them."""
from libc.math cimport fabs, log
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from pantheon._core.sampling.candidates cimport (
    pn_cand_entropy, pn_cand_exp, pn_cand_keep_top, pn_cand_sort, pn_cand_weigh, pn_key_sort,
)
from pantheon._core.sampling.rng cimport pn_rng_uniform
from pantheon._core.sampling.scratch cimport PN_MASS_BUCKETS, PN_ORDER_LOGIT, PN_ORDER_SCORE, pn_scratch

cdef extern from "sampling/loops.h" nogil:
    float pn_max_of(const float *x, int n)
    uint32_t pn_order_of(float x)
    float pn_float_of(uint32_t u)

cdef enum:
    NARROW_ABOVE = 512                   # shorter lists are cheaper to sort than to narrow


cdef inline int bucket(float value) noexcept nogil:
    """Of a float >= 0: exponent and four bits of mantissa, so that buckets rise with the value; < PN_MASS_BUCKETS."""
    cdef uint32_t bits
    memcpy(&bits, &value, 4)
    return <int> (bits >> 19)


cdef void narrow(pn_scratch *s, const float *score, float mass, int least) noexcept nogil:
    """Drops candidates that cannot be among the first ones, by rising score, that hold the mass; at least `least` stay.

    score (s.n,) >= 0, or NULL for the falling order of s.e. What is left is a superset of the answer, in unchanged
    order, so that only it needs sorting.
    """
    cdef double wanted = mass * s.sum * (1 + 1e-9)       # sums of one list in two orders differ by rounding
    cdef double held = 0
    cdef int32_t count[PN_MASS_BUCKETS]
    cdef int i, b, last, n = 0, counted = 0
    memset(count, 0, sizeof(count))
    memset(s.mass, 0, PN_MASS_BUCKETS * sizeof(double))
    for i in range(s.n):
        b = bucket(score[i]) if score != NULL else PN_MASS_BUCKETS - 1 - bucket(s.e[i])
        s.mass[b] += s.e[i]
        count[b] += 1
    last = 0
    while last < PN_MASS_BUCKETS:
        held += s.mass[last]
        counted += count[last]
        if held > wanted and counted >= least:
            break
        last += 1
    for i in range(s.n):
        b = bucket(score[i]) if score != NULL else PN_MASS_BUCKETS - 1 - bucket(s.e[i])
        s.id[n] = s.id[i]
        s.logit[n] = s.logit[i]
        s.e[n] = s.e[i]
        n += b <= last
    s.n = n


cdef void fill_scores(pn_scratch *s, double entropy, float *score) noexcept nogil:
    """score (s.n,): how far a candidate's information, -ln p, is from the entropy."""
    cdef double total = log(s.sum)
    cdef int i
    for i in range(s.n):
        score[i] = <float> fabs(total - (<double> s.logit[i] - s.max) - entropy)
        if score[i] > 1e38:              # what underflowed is last, but a number
            score[i] = 1e38


cdef void pn_cut_typical(pn_scratch *s, float typical_p, int min_keep) noexcept nogil:
    cdef int least = min_keep if min_keep > 1 else 1, kept = 0, i
    cdef uint32_t at
    cdef double entropy, held = 0
    cdef float *score
    pn_cand_exp(s, 1)
    entropy = pn_cand_entropy(s)
    if s.n > NARROW_ABOVE:
        fill_scores(s, entropy, <float *> s.key)
        narrow(s, <const float *> s.key, typical_p, least)
    if s.order != PN_ORDER_LOGIT:        # so that equal scores come by logit, then id
        pn_cand_sort(s)
        pn_cand_weigh(s, 1)
    score = <float *> s.key2
    fill_scores(s, entropy, score)
    for i in range(s.n):
        s.key[i] = <uint64_t> ~pn_order_of(score[i]) << 32 | <uint32_t> i
    pn_key_sort(s.key, s.key2, s.n)
    while kept < s.n:
        held += s.e[<uint32_t> s.key[kept]]
        kept += 1
        if held > typical_p * s.sum and kept >= least:
            break
    for i in range(kept):
        at = <uint32_t> s.key[i]
        s.key2[i] = <uint64_t> pn_order_of(s.logit[at]) << 32 | s.id[at]
    for i in range(kept):
        s.id[i] = <uint32_t> s.key2[i]
        s.logit[i] = pn_float_of(<uint32_t> (s.key2[i] >> 32))
    s.n = kept
    s.order = PN_ORDER_SCORE


cdef void pn_cut_top_p(pn_scratch *s, float top_p, int min_keep, double total) noexcept nogil:
    cdef int least = min_keep if min_keep > 1 else 1, kept = 0
    cdef double held = 0
    pn_cand_exp(s, 1)
    if total > 0:
        s.sum = total
    if s.order != PN_ORDER_LOGIT:
        if s.n > NARROW_ABOVE:
            narrow(s, NULL, top_p, least)
        pn_cand_sort(s)
        pn_cand_weigh(s, 1)
    while kept < s.n:
        held += s.e[kept]
        kept += 1
        if held >= top_p * s.sum and kept >= least:
            break
    s.n = kept


cdef void pn_cut_min_p(pn_scratch *s, float min_p, int min_keep) noexcept nogil:
    cdef float floor = pn_min_p_floor(pn_max_of(s.logit, s.n), min_p)
    cdef int i, above = 0, kept = 0
    for i in range(s.n):
        above += s.logit[i] >= floor
    if above < min_keep or above == 0:
        pn_cand_keep_top(s, min_keep if min_keep > 1 else 1)
        return
    for i in range(s.n):
        s.id[kept] = s.id[i]
        s.logit[kept] = s.logit[i]
        kept += s.logit[i] >= floor
    s.n = kept


cdef void pn_cut_xtc(pn_scratch *s, float probability, float threshold, int min_keep, uint64_t *rng) noexcept nogil:
    cdef double floor
    cdef int i, choices = 0, last = 0, kept = 0
    if probability <= 0 or threshold > 0.5 or s.n < 2 or pn_rng_uniform(rng) > probability:
        return
    pn_cand_exp(s, 1)
    floor = threshold * s.sum
    for i in range(s.n):
        if s.e[i] >= floor:              # `last`: the least likely of the top choices, the one that stays
            if choices == 0 or s.logit[i] < s.logit[last] or (s.logit[i] == s.logit[last] and s.id[i] > s.id[last]):
                last = i
            choices += 1
    if choices < 2 or s.n - (choices - 1) < min_keep:
        return
    for i in range(s.n):
        if s.e[i] < floor or i == last:
            s.id[kept] = s.id[i]
            s.logit[kept] = s.logit[i]
            kept += 1
    s.n = kept
