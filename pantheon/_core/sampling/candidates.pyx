"""The list of candidates: collecting it from a vocabulary of logits, ordering it, turning it into probabilities.

A candidate's place in the order is one 64-bit key: above, its logit as an integer that orders as the float does; below,
the complement of its id. So "larger logit first, then lower id" is the order of falling keys, and no two are equal.
"""
from libc.math cimport INFINITY, log, sqrt
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from pantheon._core.sampling.rng cimport pn_rng_uniform
from pantheon._core.sampling.scratch cimport PN_ORDER_ID, PN_ORDER_LOGIT, pn_scratch

cdef extern from "sampling/loops.h" nogil:
    enum:
        PN_SCAN_BLOCK
    float FLT_MAX
    int pn_scan_max(const float *x, int n, float *block_max, float *max)
    float pn_max_of(const float *x, int n)
    double pn_exp_sum(const float *x, int n, float max, float inv_t, float floor, float *e)
    double pn_weighted_sum(const float *x, const float *e, int n, float max)
    int pn_find_share(const float *e, int n, double target)
    void pn_moments(const float *x, int n, float max, int64_t *count, double *sum, double *sum2)
    int pn_collect(const float *x, int n, const float *block_max, float floor, uint32_t *id, float *v)
    uint32_t pn_order_of(float x)
    float pn_float_of(uint32_t u)
cdef enum:
    INSERTION_MAX = 32                   # below it, insertion sort beats the fixed cost of the radix passes


cdef int pn_cand_scan(pn_scratch *s, const float *logits, int n, float *max) noexcept nogil:
    return pn_scan_max(logits, n, s.block_max, max)


cdef int pn_cand_argmax(pn_scratch *s, const float *logits, int n, float max) noexcept nogil:
    cdef int b = 0, i
    while s.block_max[b] != max:
        b += 1
    i = b * PN_SCAN_BLOCK
    while logits[i] != max:
        i += 1
    return i


cdef void pn_cand_only(pn_scratch *s, int id, float l) noexcept nogil:
    s.id[0] = <uint32_t> id
    s.logit[0] = l
    s.n = 1
    s.order = PN_ORDER_LOGIT


cdef void pn_cand_moments(const float *logits, int n, float max, double *mean, double *deviation) noexcept nogil:
    cdef int64_t count
    cdef double total, squares, shifted, variance
    pn_moments(logits, n, max, &count, &total, &squares)
    shifted = total / count
    variance = squares / count - shifted * shifted
    mean[0] = max + shifted
    deviation[0] = sqrt(variance) if variance > 0 else 0.0


cdef double pn_cand_total(const float *logits, int n, float max, float inv_t, float floor) noexcept nogil:
    return pn_exp_sum(logits, n, max, inv_t, floor, NULL)


cdef void pn_cand_collect(pn_scratch *s, const float *logits, int n, float floor) noexcept nogil:
    s.n = pn_collect(logits, n, s.block_max, floor if floor > -FLT_MAX else -FLT_MAX, s.id, s.logit)
    s.order = PN_ORDER_ID


cdef uint64_t select_key(const uint64_t *key, int n, int k) noexcept nogil:
    """The k-th largest (1 <= k <= n) of n distinct keys, found digit by digit from the top: at most 8 passes."""
    cdef int count[256]
    cdef uint64_t prefix = 0, mask = 0
    cdef int shift = 56, i, digit
    while True:
        memset(count, 0, sizeof(count))
        for i in range(n):
            if (key[i] & mask) == prefix:
                count[(key[i] >> shift) & 255] += 1
        digit = 255
        while count[digit] < k:
            k -= count[digit]
            digit -= 1
        prefix |= <uint64_t> digit << shift
        mask |= <uint64_t> 255 << shift
        if count[digit] == k or shift == 0:
            return prefix                # all keys of this bucket are wanted: its lower end serves as well as the key
        shift -= 8


cdef void pn_cand_collect_top(pn_scratch *s, const float *logits, int n, float floor, int k) noexcept nogil:
    cdef int blocks = (n + PN_SCAN_BLOCK - 1) // PN_SCAN_BLOCK, b
    cdef float least
    # The k-th largest block maximum is a lower bound for the k-th largest logit, and usually a close one.
    if k <= blocks:
        for b in range(blocks):
            s.key[b] = <uint64_t> pn_order_of(s.block_max[b]) << 32 | <uint32_t> ~b
        least = pn_float_of(<uint32_t> (select_key(s.key, blocks, k) >> 32))
        if least > floor:                # false for NaN, which the lower end of the lowest bucket may be
            floor = least
    pn_cand_collect(s, logits, n, floor)
    pn_cand_keep_top(s, k)


cdef void pn_key_sort(uint64_t *key, uint64_t *tmp, int n) noexcept nogil:
    cdef int start[256]
    cdef int i, j, shift, total, count
    cdef uint64_t x
    cdef uint64_t *source = key
    cdef uint64_t *target = tmp
    cdef uint64_t *swap
    if n <= INSERTION_MAX:
        for i in range(1, n):
            x = key[i]
            j = i
            while j > 0 and (key[j - 1] >> 32) < (x >> 32):
                key[j] = key[j - 1]
                j -= 1
            key[j] = x
        return
    for shift in range(32, 64, 8):       # an even number of passes: the result ends in key
        memset(start, 0, sizeof(start))
        for i in range(n):
            start[(source[i] >> shift) & 255] += 1
        total = 0
        for i in range(255, -1, -1):     # falling
            count = start[i]
            start[i] = total
            total += count
        for i in range(n):
            x = source[i]
            j = (x >> shift) & 255
            target[start[j]] = x
            start[j] += 1
        swap = source
        source = target
        target = swap


cdef void fill_keys(pn_scratch *s) noexcept nogil:
    cdef int i
    for i in range(s.n):
        s.key[i] = <uint64_t> pn_order_of(s.logit[i]) << 32 | <uint32_t> ~s.id[i]


cdef void sort_keys(pn_scratch *s) noexcept nogil:
    """Orders s.key (s.n,) and writes it back to the list. Equal logits must stand in the order of their ids."""
    cdef int i
    pn_key_sort(s.key, s.key2, s.n)
    for i in range(s.n):
        s.id[i] = ~<uint32_t> s.key[i]
        s.logit[i] = pn_float_of(<uint32_t> (s.key[i] >> 32))
    s.order = PN_ORDER_LOGIT


cdef void pn_cand_sort(pn_scratch *s) noexcept nogil:
    if s.order != PN_ORDER_LOGIT:
        fill_keys(s)
        sort_keys(s)


cdef void pn_cand_keep_top(pn_scratch *s, int k) noexcept nogil:
    cdef uint64_t least
    cdef int i, kept = 0
    if s.order == PN_ORDER_LOGIT:
        if k < s.n:
            s.n = k
        return
    fill_keys(s)
    if k < s.n:
        least = select_key(s.key, s.n, k)
        for i in range(s.n):
            s.key[kept] = s.key[i]
            kept += s.key[i] >= least
        s.n = kept
    sort_keys(s)


cdef void pn_cand_exp(pn_scratch *s, float inv_t) noexcept nogil:
    s.max = s.logit[0] if s.order == PN_ORDER_LOGIT else pn_max_of(s.logit, s.n)
    s.sum = pn_exp_sum(s.logit, s.n, s.max, inv_t, -INFINITY, s.e)


cdef void pn_cand_weigh(pn_scratch *s, float inv_t) noexcept nogil:
    pn_exp_sum(s.logit, s.n, s.max, inv_t, -INFINITY, s.e)


cdef double pn_cand_entropy(pn_scratch *s) noexcept nogil:
    # -sum p ln p, with ln p = (l - max) - ln sum
    return log(s.sum) - pn_weighted_sum(s.logit, s.e, s.n, s.max) / s.sum


cdef int pn_cand_draw(const pn_scratch *s, uint64_t *rng) noexcept nogil:
    return pn_find_share(s.e, s.n, pn_rng_uniform(rng) * s.sum)
