"""The distinct tokens of a window of recent tokens, in a small open-addressing table of the thread's scratch."""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from pantheon._core.sampling.scratch cimport pn_scratch, pn_slot


cdef inline uint32_t home(uint32_t token, int mask) noexcept nogil:
    return <uint32_t> ((token * <uint64_t> 0x9E3779B97F4A7C15) >> 32) & <uint32_t> mask


cdef pn_slot *pn_window_find(pn_scratch *s, uint32_t token) noexcept nogil:
    cdef uint32_t at = home(token, s.table_mask)
    while s.table[at]:
        if s.slots[s.table[at] - 1].token == token:
            return &s.slots[s.table[at] - 1]
        at = (at + 1) & <uint32_t> s.table_mask
    return NULL


cdef void pn_window_build(pn_scratch *s, const uint32_t *recent, int n_recent, int n) noexcept nogil:
    cdef int size = 16, i
    cdef uint32_t token, at
    cdef pn_slot *slot
    while size < 2 * n:                  # only as much of the table as this window needs is cleared
        size *= 2
    s.table_mask = size - 1
    memset(s.table, 0, <size_t> size * sizeof(s.table[0]))
    s.n_slots = 0
    for i in range(n):
        token = recent[n_recent - 1 - i]
        s.older[i] = -1
        slot = pn_window_find(s, token)
        if slot != NULL:
            slot.count += 1
            s.older[slot.last] = i
            slot.last = i
            continue
        at = home(token, s.table_mask)
        while s.table[at]:
            at = (at + 1) & <uint32_t> s.table_mask
        slot = &s.slots[s.n_slots]
        slot.token = token
        slot.count = 1
        slot.first = slot.last = i
        slot.repeat = -1
        slot.breaker = False
        s.n_slots += 1
        s.table[at] = s.n_slots
