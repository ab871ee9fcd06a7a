# Phi-2, Phi-3, Phi-3.5, Phi-4.
from libc.stdint cimport uint32_t

from pantheon._core.arch.ops cimport pn_arch_ops
from pantheon._core.types cimport pn_arch, pn_model, pn_state, tm_tensor

# nogil. The registry row of one architecture of the family.
cdef pn_arch_ops pn_phi_ops(const char *name, pn_arch arch) noexcept nogil
# nogil; see pn_forward_fn.
cdef tm_tensor *pn_phi_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil
