# The ladder: from how much memory is free to what is to be done about it.
from libc.stdint cimport uint64_t

from pantheon._core.types cimport pn_ladder_plan, pn_mem_level, pn_mem_state

# nogil. Level of avail bytes out of total, of which reserved are promised, given the level before: leaving one needs
# more than entering it. OK when total is 0.
cdef pn_mem_level pn_ladder_level_of(uint64_t avail, uint64_t reserved, uint64_t total,
                                     pn_mem_level before) noexcept nogil
# nogil. Bytes that new work may take of avail out of total.
cdef uint64_t pn_ladder_have(uint64_t avail, uint64_t reserved, uint64_t total) noexcept nogil
# Of the C API: engine.pxd explains it.
cdef void pn_ladder_plan_from_state(const pn_mem_state *st, pn_ladder_plan *plan) noexcept nogil
