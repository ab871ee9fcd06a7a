# What a pn_cost adds up to. An architecture fills it (arch/ops.pxd); everything that quotes memory reads it here.
from libc.stdint cimport uint64_t

from pantheon._core.memory.state cimport pn_cost

# nogil. Bytes of KV of n positions: what is allocated for them, or with c.n_ctx what they touch of it.
cdef uint64_t pn_cost_kv(const pn_cost *c, int n) noexcept nogil
# nogil. Bytes of a sequence of n tokens, scratch, logits and the request's checkpoints included.
cdef uint64_t pn_cost_total(const pn_cost *c, int n) noexcept nogil
# nogil. The part of pn_cost_total that the process does not hold yet.
cdef uint64_t pn_cost_need(const pn_cost *c, int n) noexcept nogil
# nogil. The same on one die.
cdef uint64_t pn_cost_die(const pn_cost *c, int die, int n) noexcept nogil
# nogil. The most tokens up to n whose need is not above have.
cdef int pn_cost_fit(const pn_cost *c, uint64_t have, int n) noexcept nogil
