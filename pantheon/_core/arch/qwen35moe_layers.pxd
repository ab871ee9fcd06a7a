# The layers of Qwen3.5, run by all ranks of a team together.
from libc.stdint cimport uint32_t

from pantheon._core.arch.qwen35moe cimport pn_qwen35moe_model, pn_qwen35moe_work
from pantheon._core.attention cimport pn_attn_step
from pantheon._core.deltanet cimport pn_deltanet_step
from pantheon._core.types cimport fw_pool, pn_config

cdef struct qwen_job:                    # one run
    const pn_config *c
    pn_qwen35moe_model *w
    pn_qwen35moe_work *work
    fw_pool *pool
    int n_tok
    const uint32_t *tokens               # (n_tok,)
    const float *embd_override           # (n_embd,) or NULL: in place of the only token's row
    int first_out                        # logits are wanted for tokens first_out.. to the last
    float *logits                        # (n_tok - first_out, n_vocab)
    pn_attn_step attn
    pn_deltanet_step delta
    bint stop                            # set by rank 0 when the caller wants to stop

# nogil. What every rank of a run does; arg is a qwen_job. With stop set on return the run ended between two layers.
cdef void qwen_task(void *arg, int rank, int n) noexcept nogil
