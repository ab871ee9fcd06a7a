# Buffers of runs: one walk over an architecture's layers names what they read and write, and sizes and places it all.
#
# The walk fills the pn_layout and its own part of the work struct. It is made once without memory, which counts, and
# once with memory, which places: when the tokens of a run, the logits that it wants or the ranks become more than
# before.
from libc.stdint cimport uint8_t

from pantheon._core.arch.structs cimport pn_layout, pn_work
from pantheon._core.layers.linear cimport pn_group
from pantheon._core.layers.moe_weights cimport pn_moe
from pantheon._core.types cimport pn_model

# For walks, nogil.
# g reads this input.
cdef void layout_reads(pn_layout *l, int input, const pn_group *g) noexcept nogil
# The layer has experts, which read IN_EMBD.
cdef void layout_experts(pn_layout *l, const pn_moe *moe) noexcept nogil
# The floats of an input are these buffers (n_tok, n), of a single token (1, n), in place of room of its own.
cdef void layout_input(pn_layout *l, int input, float *shared, float *single) noexcept nogil
# A buffer of (n_tok, n).
cdef float *layout_floats(pn_layout *l, size_t n) noexcept nogil

# nogil. Bytes of the buffers of n_tok tokens, n_out of them with logits.
cdef size_t work_need(const pn_model *model, int n_tok, int n_out) noexcept nogil
# nogil. Places them in work_need bytes, 64-byte aligned.
cdef pn_work *work_place(const pn_model *model, uint8_t *memory, int n_tok, int n_out) noexcept nogil
# nogil. The model's buffers, grown to n_tok tokens and n_out logits; NULL with pn_last_error() when there is no memory.
cdef pn_work *work_grown(pn_model *model, int n_tok, int n_out) noexcept nogil
# nogil. Makes them ready for a run of n_tok tokens, n_out of them with logits.
cdef void work_begin(pn_work *work, int n_tok, int n_out) noexcept nogil
