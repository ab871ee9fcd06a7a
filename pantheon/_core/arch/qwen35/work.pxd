# Work buffers of Qwen3.5 runs: one set per model, used by one run after the other.
from pantheon._core.arch.qwen35.structs cimport pn_qwen35moe_work
from pantheon._core.types cimport pn_model

# nogil. The model's buffers, grown to n_tok tokens and n_out logits; NULL with pn_last_error() when there is no memory.
cdef pn_qwen35moe_work *qwen35moe_work(pn_model *model, int n_tok, int n_out) noexcept nogil
# nogil. Bytes of the buffers of n_tok tokens, n_out of them with logits, without making them.
cdef size_t qwen35moe_work_need(const pn_model *model, int n_tok, int n_out) noexcept nogil
# nogil. Makes them ready for a run of n_tok tokens, n_out of them with logits.
cdef void qwen35moe_work_begin(pn_qwen35moe_work *work, int n_tok, int n_out) noexcept nogil
