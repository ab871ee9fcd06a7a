"""What a pn_cost adds up to (see cost.pxd for the contract)."""
from libc.math cimport floor
from libc.stdint cimport int64_t, uint64_t

from pantheon._core.base.report cimport pn_set_error
from pantheon._core.types cimport PN_COST_AREAS, PN_MODEL_MAX_DIES, pn_cost


cdef uint64_t allocated(const pn_cost *c, int n) noexcept nogil:
    cdef int64_t rows = (<int64_t>max(n, 0) + 7) // 8 * 8
    cdef int i
    cdef uint64_t groups, bytes = 0
    if rows > 0 and c.row_share > 0:
        rows = max(1, <int64_t>floor(<double>rows * c.row_share))
    if c.rows_max > 0:
        rows = min(rows, <int64_t>c.rows_max)
    groups = (<uint64_t>rows + 7) // 8
    for i in range(min(c.n_areas, <int>PN_COST_AREAS)):
        bytes += c.areas[i].n * ((c.areas[i].group_bytes * groups + 63) // 64 * 64)
    return bytes


cdef uint64_t pn_cost_kv(const pn_cost *c, int n) noexcept nogil:
    cdef uint64_t bytes
    cdef int i
    if c == NULL:
        pn_set_error(b"cost is NULL")
        return 0
    bytes = allocated(c, n)
    if c.n_ctx == 0 or n <= 0:
        return bytes
    for i in range(min(c.n_areas, <int>PN_COST_AREAS)):      # the last page of each area is touched in part
        bytes += c.areas[i].n * c.page_bytes
    return min(bytes, allocated(c, c.n_ctx))


cdef uint64_t pn_cost_total(const pn_cost *c, int n) noexcept nogil:
    if c == NULL:
        pn_set_error(b"cost is NULL")
        return 0
    return (pn_cost_kv(c, n) + c.state_bytes + c.scratch_bytes + c.logits_bytes
            + c.checkpoint_bytes * <uint64_t>max(c.n_checkpoints, 0))


cdef uint64_t pn_cost_need(const pn_cost *c, int n) noexcept nogil:
    cdef uint64_t held, total
    if c == NULL:
        pn_set_error(b"cost is NULL")
        return 0
    held = c.held_bytes + min(c.scratch_held, c.scratch_bytes)
    total = pn_cost_total(c, n)
    return total - held if total > held else 0


cdef uint64_t pn_cost_die(const pn_cost *c, int die, int n) noexcept nogil:
    if c == NULL or not 0 <= die < PN_MODEL_MAX_DIES:
        pn_set_error(b"cost is NULL, or die %d is not in 0..15", die)
        return 0
    return c.die_state_bytes[die] + c.die_token_bytes[die] * <uint64_t>max(n, 0)


cdef int pn_cost_fit(const pn_cost *c, uint64_t have, int n) noexcept nogil:
    cdef int low = 0, high = n, middle
    while low < high:                    # need grows with the tokens
        middle = low + (high - low + 1) // 2
        if pn_cost_need(c, middle) <= have:
            low = middle
        else:
            high = middle - 1
    return low
