"""The DRY penalty. In time linear in the window and the breakers, apart from breakers with equal heads.

Positions count back from the last token: x(0) is the last one. A repeat is a run of tokens that ends at x(0) and also
at an earlier x(k); the token that followed there, x(k-1), would make the repeat one longer, so it pays.
"""
from libc.math cimport floor, log, pow
from libc.stdint cimport int32_t, uint32_t

from pantheon._core.base.report cimport pn_set_error
from pantheon._core.sampling.scratch cimport pn_scratch, pn_slot
from pantheon._core.sampling.window cimport pn_touch, pn_window_build, pn_window_find
from pantheon._core.types cimport pn_sampling_params

cdef enum:
    BAD_BREAKERS = -1


cdef int repeat_limit(pn_scratch *s, const pn_sampling_params *params, const uint32_t *x, int n) noexcept nogil:
    """Tokens since the most recent breaker, n without one; marks the tokens that are breakers alone. x points at x(0).

    Every breaker's head is looked up in the window, rather than every position of the window in the breakers: a
    one-character breaker has thousands of heads, a window has few tokens.
    """
    cdef const int32_t *id = params.dry_breaker_ids
    cdef int total = params.n_dry_breaker_ids, at = 0, tail, i, j
    cdef int best = n, best_tail = 0     # position of the most recent head found, and the longest tail found there
    cdef pn_slot *slot
    while at < total:
        if total - at < 2 or id[at] < 0 or id[at + 1] < 0 or id[at + 1] > total - at - 2:
            return BAD_BREAKERS
        tail = id[at + 1]
        slot = pn_window_find(s, <uint32_t> id[at])
        if slot != NULL:
            if tail == 0:
                slot.breaker = True
            i = slot.first
            while 0 <= i <= best:
                if tail <= i and not (i == best and tail <= best_tail):
                    j = 0
                    while j < tail and x[-(i - 1 - j)] == <uint32_t> id[at + 2 + j]:
                        j += 1
                    if j == tail:
                        best = i
                        best_tail = tail
                        break
                i = s.older[i]
        at += 2 + tail
    return best - best_tail


cdef void measure_repeats(pn_scratch *s, const uint32_t *x, int n) noexcept nogil:
    """s.suffix[k], k >= 1: how many of x(0), x(1), ... equal x(k), x(k+1), ...: the Z array of the reversed text."""
    cdef int left = 0, right = 0, k, length
    for k in range(1, n):
        length = 0
        if k < right:
            length = s.suffix[k - left]
            if length > right - k:
                length = right - k
        while k + length < n and x[-length] == x[-(k + length)]:
            length += 1
        if k + length > right:
            left = k
            right = k + length
        s.suffix[k] = length


cdef int pn_apply_dry(pn_scratch *s, float *logits, int n_vocab, const pn_sampling_params *params,
                      const uint32_t *recent, int n_recent) noexcept nogil:
    cdef int n = params.dry_penalty_last_n if params.dry_penalty_last_n < n_recent else n_recent
    cdef int allowed = params.dry_allowed_length
    cdef double base = params.dry_base, most = -1, exponent
    cdef const uint32_t *x
    cdef pn_slot *slot
    cdef int limit, k, repeat
    if params.dry_multiplier == 0 or base < 1 or n <= 0 or n <= allowed:
        return 0
    x = recent + n_recent - 1
    pn_window_build(s, recent, n_recent, n)
    limit = repeat_limit(s, params, x, n)
    if limit == BAD_BREAKERS:
        pn_set_error(b"dry_breakers: not a list of head, length of the tail, tail")
        return -1
    if limit < allowed:
        return 0
    measure_repeats(s, x, n)
    for k in range(1, n):
        repeat = s.suffix[k] if s.suffix[k] < limit else limit
        if repeat >= allowed:
            slot = pn_window_find(s, x[-(k - 1)])
            if repeat > slot.repeat:
                slot.repeat = repeat
    if base > 1.000001:
        most = floor(88.7228 / log(base))          # base ** most still fits a float
    for k in range(s.n_slots):
        slot = &s.slots[k]
        if slot.repeat < 0 or slot.breaker or slot.token >= <uint32_t> n_vocab:
            continue
        exponent = slot.repeat - allowed
        if 0 <= most < exponent:
            exponent = most
        pn_touch(s, logits, slot.token)
        logits[slot.token] -= <float> (params.dry_multiplier * pow(base, exponent))
    return 0
