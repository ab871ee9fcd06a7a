"""Phi-2, Phi-3, Phi-3.5, Phi-4, from the parts of the Llama family.

Phi-2: one LayerNorm n per layer feeds attention and a feed-forward side by side,
x += out(attention(n)) + down(gelu(up(n))), biases everywhere, rotation of a part of each head.
Phi-3 and later: the Llama layer with fused matrices, sliding window and LongRoPE, which are the loader's and the
state's business.
"""
from libc.stdint cimport uint32_t

from pantheon._core.arch.llama.layers cimport IN_FF, IN_HEADS, llama_attention, llama_next, model_of, work_of
from pantheon._core.arch.llama.ops cimport pn_llama_ops
from pantheon._core.arch.llama.structs cimport pn_llama_layer, pn_llama_work
from pantheon._core.arch.ops cimport pn_arch_ops
from pantheon._core.arch.run cimport run_add, run_forward
from pantheon._core.arch.structs cimport IN_EMBD, pn_pass
from pantheon._core.layers.linear cimport group_prefetch, group_product, input_prepare, team_barrier, team_range
from pantheon._core.types cimport PN_ARCH_PHI2, PN_ROPE_NEOX, pn_arch, pn_model, pn_state, tm_tensor


cdef void activate(const pn_pass *p, const pn_llama_layer *layer, float *x, int r0, int r1) noexcept nogil:
    """gelu(x + bias) of features [r0, r1) of one token."""
    if layer.up_bias != NULL:
        p.k.add(x + r0, layer.up_bias + r0, r1 - r0)
    p.k.gelu_tanh(x + r0, r1 - r0)


cdef void phi2_layer(pn_pass *p, int l) noexcept nogil:
    cdef pn_llama_layer *layer = &model_of(p).layers[l]
    cdef pn_llama_work *work = work_of(p)
    cdef bint several = p.n_tok > 1
    cdef int t, r0, r1, n_ff = p.c.n_ff
    cdef float *up = work.gated if several else work.gate
    cdef float *y[1]
    cdef size_t ldy[1]
    llama_attention(p, l)
    # qkv was read before attention's barriers: the packed forms may be made anew for up
    input_prepare(&p.team, &p.s.input[IN_EMBD], &layer.gate_up, p.t0, p.t1)
    if several:
        team_barrier(&p.team)
    y[0], ldy[0] = up, n_ff
    group_product(&p.team, &layer.gate_up, &p.s.input[IN_EMBD], y, ldy)
    if not several:
        team_range(&p.team, n_ff, 8, &r0, &r1)   # the rows that this rank computed
        activate(p, layer, up, r0, r1)
        group_prefetch(&p.team, &layer.out)
    team_barrier(&p.team)

    for t in range(p.t0, p.t1 if several else p.t0):
        activate(p, layer, up + <size_t>t * n_ff, 0, n_ff)
    input_prepare(&p.team, &p.s.input[IN_HEADS], &layer.out, p.t0, p.t1)
    input_prepare(&p.team, &p.s.input[IN_FF], &layer.down, p.t0, p.t1)
    if several:
        team_barrier(&p.team)
    y[0], ldy[0] = work.base.delta, p.c.n_embd
    group_product(&p.team, &layer.out, &p.s.input[IN_HEADS], y, ldy)
    y[0] = work.delta_ffn
    group_product(&p.team, &layer.down, &p.s.input[IN_FF], y, ldy)
    team_barrier(&p.team)
    run_add(p, work.base.delta, layer.out_bias)
    run_add(p, work.delta_ffn, layer.down_bias)
    llama_next(p, l)
    if several:
        team_barrier(&p.team)


cdef tm_tensor *pn_phi_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil:
    return run_forward(model, token, state)


cdef pn_arch_ops pn_phi_ops(const char *name, pn_arch arch) noexcept nogil:
    cdef pn_arch_ops ops = pn_llama_ops(name, arch, PN_ROPE_NEOX)
    ops.forward = pn_phi_forward
    if arch == PN_ARCH_PHI2:
        ops.layer = phi2_layer
    return ops
