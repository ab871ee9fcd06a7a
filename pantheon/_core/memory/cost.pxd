# What a pn_cost adds up to. An architecture fills it (arch/ops.pxd); everything that quotes memory reads it here. These
# are of the C API: engine.pxd explains them.
from libc.stdint cimport uint64_t

from pantheon._core.types cimport pn_cost

cdef uint64_t pn_cost_kv(const pn_cost *c, int n) noexcept nogil
cdef uint64_t pn_cost_total(const pn_cost *c, int n) noexcept nogil
cdef uint64_t pn_cost_need(const pn_cost *c, int n) noexcept nogil
cdef uint64_t pn_cost_die(const pn_cost *c, int die, int n) noexcept nogil
cdef int pn_cost_fit(const pn_cost *c, uint64_t have, int n) noexcept nogil
