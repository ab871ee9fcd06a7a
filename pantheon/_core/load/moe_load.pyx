"""Weights of a mixture-of-experts feed-forward.

Accepts experts stacked in one tensor (ffn_gate_exps, ffn_up_exps, ffn_down_exps), gate and up stacked and fused
(ffn_gate_up_exps), and one tensor per expert (ffn_gate.0, ...) as in GGUF of early 2024 and most safetensors.
"""
from pantheon._core.kernels.table cimport PN_ACT_ROW
from pantheon._core.layers.matrix cimport matrix_to_f32, matrix_view, pn_matrix
from pantheon._core.layers.moe_weights cimport moe_init, moe_set_expert, moe_set_router, pn_moe
from pantheon._core.load.source cimport Source, source_name
from pantheon._core.load.tensors cimport matrix_load, matrix_stack_load, tensor_present
from pantheon._core.types cimport pn_config


cdef bint moe_layer(const pn_config *c, Source f, str block):
    return c.n_experts > 0 and not tensor_present(f, block + "ffn_down.weight")


cdef int load_router(pn_moe *moe, const pn_config *c, Source f, str b) except -1:
    cdef pn_matrix router, gate
    matrix_load(&router, f, b + "ffn_gate_inp.weight", c.n_experts, c.n_embd, False)
    matrix_to_f32(&router, f.owned)
    if c.n_ff_shared > 0:
        matrix_load(&gate, f, b + "ffn_gate_inp_shexp.weight", 1, c.n_embd, False)
        matrix_to_f32(&gate, f.owned)
    moe_set_router(moe, &router, &gate if c.n_ff_shared > 0 else NULL)
    return 0


cdef int check_input(const pn_matrix *m, Source f, str name) except -1:
    """Inputs of experts are gathered block by block; one scale for a whole vector is not among the forms."""
    if m.ops.act == PN_ACT_ROW:
        raise ValueError(f"{f.path}: tensor {source_name(f, name)} has type {m.ops.name.decode()}, "
                         "which experts cannot have")
    return 0


cdef int load_separate(pn_moe *moe, int e, str suffix, int n_ff, const pn_config *c, Source f, str b) except -1:
    """Expert e from three tensors of its own."""
    cdef pn_matrix gate, up, down
    matrix_load(&gate, f, f"{b}ffn_gate{suffix}.weight", n_ff, c.n_embd, False)
    matrix_load(&up, f, f"{b}ffn_up{suffix}.weight", n_ff, c.n_embd, False)
    matrix_load(&down, f, f"{b}ffn_down{suffix}.weight", c.n_embd, n_ff, False)
    check_input(&gate, f, f"{b}ffn_gate{suffix}.weight")
    check_input(&up, f, f"{b}ffn_up{suffix}.weight")
    check_input(&down, f, f"{b}ffn_down{suffix}.weight")
    moe_set_expert(moe, e, &gate, &up, &down)
    return 0


cdef int load_stacked(pn_moe *moe, const pn_config *c, Source f, str b) except -1:
    cdef pn_matrix gate, up, down, fused
    cdef size_t gate_step, up_step, down_step
    cdef int n = c.n_experts, ff = c.n_ff_expert, e
    if matrix_stack_load(&fused, &gate_step, f, b + "ffn_gate_up_exps.weight", n, 2 * ff, c.n_embd, True):
        gate = matrix_view(&fused, 0, ff)
        up = matrix_view(&fused, ff, ff)
        up_step = gate_step
    else:
        matrix_stack_load(&gate, &gate_step, f, b + "ffn_gate_exps.weight", n, ff, c.n_embd, False)
        matrix_stack_load(&up, &up_step, f, b + "ffn_up_exps.weight", n, ff, c.n_embd, False)
    matrix_stack_load(&down, &down_step, f, b + "ffn_down_exps.weight", n, c.n_embd, ff, False)
    check_input(&gate, f, b + "ffn_gate_exps.weight")
    check_input(&up, f, b + "ffn_up_exps.weight")
    check_input(&down, f, b + "ffn_down_exps.weight")
    for e in range(n):
        moe_set_expert(moe, e, &gate, &up, &down)
        gate.data += gate_step
        up.data += up_step
        down.data += down_step
    return 0


cdef bint separate(Source f, str b):
    """Whether each expert has tensors of its own; safetensors have either these or gate and up fused."""
    return tensor_present(f, b + "ffn_down.0.weight") or (
        f.gguf == NULL and not tensor_present(f, b + "ffn_gate_up_exps.weight"))


cdef int moe_load(pn_moe *moe, const pn_config *c, Source f, str block) except -1:
    cdef int e
    moe_init(moe, f.owned, c.n_embd, c.n_experts, c.n_experts_used, c.n_ff_expert, c.n_ff_shared,
             c.expert_renormalise, c.expert_scale)
    load_router(moe, c, f, block)
    if separate(f, block):
        for e in range(c.n_experts):
            load_separate(moe, e, f".{e}", c.n_ff_expert, c, f, block)
    else:
        load_stacked(moe, c, f, block)
    if c.n_ff_shared > 0:
        load_separate(moe, c.n_experts, "_shexp", c.n_ff_shared, c, f, block)
    return 0
