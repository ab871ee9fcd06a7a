# The layers of Qwen3.5, run by all ranks of a team together.
from pantheon._core.arch.structs cimport pn_layout, pn_pass, pn_run, pn_work
from pantheon._core.types cimport pn_state

# The entries of pn_arch_ops, nogil; see there.
cdef void qwen_walk(pn_layout *l, pn_work *work) noexcept nogil
cdef void qwen_add(pn_run *run, pn_state *state, int first, int n) noexcept nogil
cdef void qwen_enter(pn_pass *p) noexcept nogil
cdef void qwen_layer(pn_pass *p, int i) noexcept nogil
cdef void qwen_leave(pn_pass *p) noexcept nogil
