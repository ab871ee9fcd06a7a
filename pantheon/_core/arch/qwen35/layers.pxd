# The layers of Qwen3.5, run by all ranks of a team together.
from pantheon._core.arch.qwen35.structs cimport pn_qwen35moe_model, pn_qwen35moe_work
from pantheon._core.arch.run cimport pn_run
from pantheon._core.layers.attention cimport pn_attn_step
from pantheon._core.layers.deltanet cimport pn_deltanet_step
from pantheon._core.types cimport pn_config

cdef struct qwen_job:                    # one run
    pn_run *run
    const pn_config *c
    pn_qwen35moe_model *w
    pn_qwen35moe_work *work
    int n_tok                            # of the run
    pn_attn_step attn
    pn_deltanet_step delta

# nogil. What every rank of a run does; arg is a qwen_job.
cdef void qwen_task(void *arg, int rank, int n) noexcept nogil
