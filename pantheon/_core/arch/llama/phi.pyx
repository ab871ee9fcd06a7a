"""Phi-2, Phi-3, Phi-3.5, Phi-4, from the parts of the Llama family.

Phi-2: one LayerNorm n per layer feeds attention and a feed-forward side by side,
x += out(attention(n)) + down(gelu(up(n))), biases everywhere, rotation of a part of each head.
Phi-3 and later: the Llama layer with fused matrices, sliding window and LongRoPE, which are the loader's and the
state's business.
"""
from libc.stdint cimport uint32_t

from pantheon._core.arch.llama.layers cimport llama_add, llama_attention, llama_layer, llama_next
from pantheon._core.arch.llama.ops cimport llama_forward, llama_forward_batch, llama_prefill, pn_llama_ops
from pantheon._core.arch.llama.structs cimport llama_job, llama_layer_fn, pn_llama_layer, pn_llama_stream, pn_llama_work
from pantheon._core.arch.ops cimport pn_arch_ops
from pantheon._core.layers.linear cimport (
    group_prefetch,
    group_product,
    input_prepare,
    pn_team,
    team_barrier,
    team_range,
)
from pantheon._core.types cimport PN_ARCH_PHI2, PN_ROPE_NEOX, pn_arch, pn_model, pn_state, tm_tensor


cdef void activate(llama_job *job, const pn_llama_layer *layer, float *x, int r0, int r1) noexcept nogil:
    """gelu(x + bias) of features [r0, r1) of one token."""
    if layer.up_bias != NULL:
        job.w.k.add(x + r0, layer.up_bias + r0, r1 - r0)
    job.w.k.gelu_tanh(x + r0, r1 - r0)


cdef void phi2_layer(llama_job *job, pn_team *team, pn_llama_stream *s, int l, int t0, int t1) noexcept nogil:
    cdef pn_llama_layer *layer = &job.w.layers[l]
    cdef pn_llama_work *work = job.work
    cdef bint several = job.n_tok > 1
    cdef int t, r0, r1, n_ff = job.c.n_ff
    cdef float *up = work.gated if several else work.gate
    cdef float *y[1]
    cdef size_t ldy[1]
    llama_attention(job, team, s, l, t0, t1)
    # qkv was read before attention's barriers: the packed forms may be made anew for up
    input_prepare(team, &s.embd, &layer.gate_up, t0, t1)
    if several:
        team_barrier(team)
    y[0], ldy[0] = up, n_ff
    group_product(team, &layer.gate_up, &s.embd, y, ldy)
    if not several:
        team_range(team, n_ff, 8, &r0, &r1)          # the rows that this rank computed
        activate(job, layer, up, r0, r1)
        group_prefetch(team, &layer.out)
    team_barrier(team)

    for t in range(t0, t1 if several else t0):
        activate(job, layer, up + <size_t>t * n_ff, 0, n_ff)
    input_prepare(team, &s.heads, &layer.out, t0, t1)
    input_prepare(team, &s.ff, &layer.down, t0, t1)
    if several:
        team_barrier(team)
    y[0], ldy[0] = work.delta, job.c.n_embd
    group_product(team, &layer.out, &s.heads, y, ldy)
    y[0] = work.delta_ffn
    group_product(team, &layer.down, &s.ff, y, ldy)
    team_barrier(team)
    llama_add(job, s, work.delta, layer.out_bias, t0, t1)
    llama_add(job, s, work.delta_ffn, layer.down_bias, t0, t1)
    llama_next(job, team, s, l, t0, t1)
    if several:
        team_barrier(team)


cdef llama_layer_fn layer_of(const pn_model *model) noexcept nogil:
    return phi2_layer if model.config.arch == PN_ARCH_PHI2 else llama_layer


cdef tm_tensor *pn_phi_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil:
    return llama_forward(model, token, state, layer_of(model))


cdef int prefill(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out,
                 bint all) noexcept nogil:
    return llama_prefill(model, tokens, n, state, logits_out, all, layer_of(model))


cdef int forward_batch(pn_model *model, const uint32_t *tokens, pn_state **states, int n,
                       float *logits_out) noexcept nogil:
    return llama_forward_batch(model, tokens, states, n, logits_out, layer_of(model))


cdef pn_arch_ops pn_phi_ops(const char *name, pn_arch arch) noexcept nogil:
    cdef pn_arch_ops ops = pn_llama_ops(name, arch, PN_ROPE_NEOX)
    ops.forward = pn_phi_forward
    ops.prefill = prefill
    ops.forward_batch = forward_batch
    return ops
