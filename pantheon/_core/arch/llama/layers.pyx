"""Layers of the transformer family (see layers.pxd for the contract).

x = embedding; per layer x += out(attention(norm(x))), x += down(silu(gate(norm(x))) * up(norm(x))), or the same of the
layer's experts (moe.pyx); logits = head(norm(x)). BitNet norms what out and down read once more, and has relu(gate)^2
in place of silu.

One layer function serves the single token, the prefill chunk and the batch. All ranks of a run execute it together and
meet at barriers. With several tokens, ranks split them for norms and quantisation; a single token is normed and
quantised by every rank for itself, which costs less than a barrier.
"""
from libc.string cimport memcpy

from pantheon._core.arch.run cimport run_add, run_embed, run_logits, run_norm
from pantheon._core.arch.structs cimport IN_EMBD, IN_HEAD, pn_stream
from pantheon._core.arch.work cimport layout_experts, layout_floats, layout_input, layout_reads
from pantheon._core.base.carver cimport carve_floats
from pantheon._core.kernels.table cimport PN_ACT_F32, PN_ACT_ROW
from pantheon._core.layers.attention cimport attention, attention_heads, attention_scratch
from pantheon._core.layers.gated cimport gated_product, gated_scratch
from pantheon._core.layers.kvcache cimport kvcache_k, kvcache_v, pn_llama_kv_cache
from pantheon._core.layers.linear cimport (
    group_prefetch,
    group_product,
    input_pack,
    input_prepare,
    pn_group,
    team_barrier,
    team_range,
)
from pantheon._core.layers.moe cimport MOE_COUNTERS, moe_prepare, moe_step
from pantheon._core.layers.rope cimport pn_rope, rope_angles
from pantheon._core.types cimport PN_ROPE_NEOX, pn_config

# ---- buffers ---------------------------------------------------------------------------------------------------------

cdef bint whole_ff(const pn_llama_model *w, const pn_llama_layer *layer) noexcept nogil:
    """Whether down's input must be there whole before it is quantised, so that it cannot be made in blocks."""
    return (w.squared_relu or layer.ffn_sub_norm != NULL or layer.gate_up.scattered
            or layer.down.kinds[<int>PN_ACT_ROW])


cdef void llama_walk(pn_layout *l, pn_work *work) noexcept nogil:
    cdef const pn_llama_model *w = <const pn_llama_model *>l.w
    cdef pn_llama_work *b = <pn_llama_work *>work
    cdef const pn_config *c = l.c
    cdef const pn_llama_layer *layer
    cdef bint dense = False, whole = False, floats = False
    cdef size_t n_ff
    cdef int i
    for i in range(c.n_layer):
        layer = &w.layers[i]
        layout_reads(l, IN_EMBD, &layer.qkv)
        layout_reads(l, IN_HEADS, &layer.out)
        if layer.moe != NULL:
            layout_experts(l, layer.moe)
            continue
        layout_reads(l, IN_EMBD, &layer.gate_up)
        layout_reads(l, IN_FF, &layer.down)
        dense = True
        whole = whole or whole_ff(w, layer)
        floats = floats or layer.down.kinds[<int>PN_ACT_F32] or layer.ffn_norm == NULL
    layout_reads(l, IN_HEAD, &w.head)
    n_ff = c.n_ff if dense else 0
    b.q = layout_floats(l, c.n_head * c.head_dim)
    b.k = layout_floats(l, c.n_kv_head * c.head_dim)
    b.v = layout_floats(l, c.n_kv_head * c.head_dim)
    b.heads = layout_floats(l, c.n_head * c.head_dim)
    b.gate = layout_floats(l, n_ff) if whole else carve_floats(&l.m, 1, n_ff)
    b.up = layout_floats(l, n_ff) if whole else carve_floats(&l.m, 1, n_ff)
    b.gated = b.gate if whole else layout_floats(l, n_ff) if floats and l.n_tok > 1 else NULL
    b.delta_ffn = layout_floats(l, c.n_embd) if w.layers[0].ffn_norm == NULL else NULL
    if not w.sub_norms:                  # else the norms' results need room of their own: ranks share what they read
        layout_input(l, IN_HEADS, b.heads, b.heads)
        layout_input(l, IN_FF, b.gated, b.gate)
    l.n_angles = 2 * w.rope.n_pair
    l.n_counters = (3 + MOE_COUNTERS) * c.n_layer            # qkv, attention, out, then the widest feed-forward
    l.mixer = attention_scratch(c.n_head, c.n_kv_head, c.head_dim)
    l.gated = gated_scratch(l.n_tok)

# ---- layers ----------------------------------------------------------------------------------------------------------

cdef const pn_rope *rope_of(const pn_pass *p, int t) noexcept nogil:
    """The rotation of token t's state: one for all its positions, since its keys were rotated by it."""
    if model_of(p).rope_long.freq != NULL and p.attn.caches[t].stretched:
        return &model_of(p).rope_long
    return &model_of(p).rope


cdef void llama_enter(pn_pass *p) noexcept nogil:
    """Rows of the embedding table, rotation angles, and the first layer's input."""
    cdef int t
    p.attn.q, p.attn.out = work_of(p).q, work_of(p).heads
    run_embed(p, &model_of(p).embd)
    for t in range(p.t0, p.t1):
        rope_angles(rope_of(p, t), p.attn.pos[t], p.s.angles + <size_t>t * 2 * model_of(p).rope.n_pair)
    llama_next(p, -1)


cdef void llama_next(pn_pass *p, int l) noexcept nogil:
    cdef pn_llama_layer *layer
    if l + 1 < p.c.n_layer:
        layer = &model_of(p).layers[l + 1]
        run_norm(p, layer.attn_norm, layer.attn_norm_bias)
        input_prepare(&p.team, &p.s.input[IN_EMBD], &layer.qkv, p.t0, p.t1)


cdef void rotate_heads(const pn_pass *p, float *x, const float *norm, const float *cs, int h0, int h1) noexcept nogil:
    """Per-head norm and rotation of heads [h0, h1) of one token's q or k."""
    cdef int h, dim = p.c.head_dim, n_pair = model_of(p).rope.n_pair
    if norm != NULL:
        for h in range(h0, h1):
            p.k.rms_norm(x + h * dim, norm, p.c.norm_eps, dim, x + h * dim)
    if p.c.rope_kind == PN_ROPE_NEOX:
        p.k.rope_neox(x + h0 * dim, h1 - h0, dim, cs, n_pair)
    else:
        p.k.rope_norm(x + h0 * dim, h1 - h0, dim, cs, n_pair)


cdef void rotate_and_store(pn_pass *p, const pn_llama_layer *layer, int l) noexcept nogil:
    """Biases, head norms and rotation of q and k; k and v go into the caches. A single token is split by heads."""
    cdef const pn_config *c = p.c
    cdef pn_llama_work *work = work_of(p)
    cdef int dim = c.head_dim, q0 = 0, q1 = c.n_head, k0 = 0, k1 = c.n_kv_head, t, h, pos
    cdef float *q
    cdef float *k
    cdef float *v
    cdef const float *cs
    cdef pn_llama_kv_cache *kv
    if p.n_tok == 1:
        attention_heads(&p.team, c.n_head, &q0, &q1)
        team_range(&p.team, c.n_kv_head, 1, &k0, &k1)
    for t in range(p.t0, p.t1):
        q = work.q + <size_t>t * c.n_head * dim
        k = work.k + <size_t>t * c.n_kv_head * dim
        v = work.v + <size_t>t * c.n_kv_head * dim
        cs = p.s.angles + <size_t>t * 2 * model_of(p).rope.n_pair
        kv = p.attn.caches[t]
        pos = p.attn.pos[t]
        if layer.q_bias != NULL:
            p.k.add(q + q0 * dim, layer.q_bias + q0 * dim, (q1 - q0) * dim)
        if layer.k_bias != NULL:
            p.k.add(k + k0 * dim, layer.k_bias + k0 * dim, (k1 - k0) * dim)
        if layer.v_bias != NULL:
            p.k.add(v + k0 * dim, layer.v_bias + k0 * dim, (k1 - k0) * dim)
        rotate_heads(p, q, layer.q_norm, cs, q0, q1)
        rotate_heads(p, k, layer.k_norm, cs, k0, k1)
        for h in range(k0, k1):
            kv.ops.store_k(kvcache_k(kv, l, h), pos, dim, k + h * dim)
            kv.ops.store_v(kvcache_v(kv, l, h), pos, dim, v + h * dim)


cdef void squared_relu_mul(float *gate, const float *up, int n) noexcept nogil:
    """gate = relu(gate)^2 * up."""
    cdef int i
    cdef float g
    for i in range(n):
        g = gate[i] if gate[i] > 0 else <float>0
        gate[i] = g * g * up[i]


cdef void activate(const pn_pass *p, const pn_llama_layer *layer, int t, int r0, int r1) noexcept nogil:
    """gate = activation(gate) * up of features [r0, r1) of token t."""
    cdef float *gate = work_of(p).gate + <size_t>t * p.c.n_ff
    cdef float *up = work_of(p).up + <size_t>t * p.c.n_ff
    if layer.gate_bias != NULL:
        p.k.add(gate + r0, layer.gate_bias + r0, r1 - r0)
    if layer.up_bias != NULL:
        p.k.add(up + r0, layer.up_bias + r0, r1 - r0)
    if model_of(p).squared_relu:
        squared_relu_mul(gate + r0, up + r0, r1 - r0)
    else:
        p.k.silu_mul(gate + r0, up + r0, r1 - r0)


cdef void sub_norm(const pn_pass *p, const float *x, const float *weight, int n, float *y) noexcept nogil:
    """Norm of this rank's tokens of x (n_tok, n) into y; without a weight y is x, or nothing reads it."""
    cdef int t
    if weight == NULL:
        return
    for t in range(p.t0, p.t1):
        p.k.rms_norm(x + <size_t>t * n, weight, p.c.norm_eps, n, y + <size_t>t * n)


cdef void mlp(pn_pass *p, const pn_llama_layer *layer) noexcept nogil:
    """delta = down(silu(gate x) * up x), of the input prepared in IN_EMBD; whole after the next barrier."""
    cdef pn_llama_work *work = work_of(p)
    cdef pn_stream *s = p.s
    cdef bint several = p.n_tok > 1
    cdef int r0 = 0, r1 = p.c.n_ff, t
    cdef float *y[2]
    cdef size_t ldy[2]
    if several and not whole_ff(model_of(p), layer):
        gated_product(&p.team, &layer.gate_up, &s.input[IN_EMBD], layer.gate_bias, layer.up_bias, &layer.down,
                      &s.input[IN_FF], work.base.ranks[p.team.rank].gated)
        team_barrier(&p.team)
        input_pack(&s.input[IN_FF], &layer.down, p.t0, p.t1)
    else:
        y[0], y[1] = work.gate, work.up
        ldy[0], ldy[1] = p.c.n_ff, p.c.n_ff
        group_product(&p.team, &layer.gate_up, &s.input[IN_EMBD], y, ldy)
        if several or layer.gate_up.scattered:
            team_barrier(&p.team)
        if not several:
            team_range(&p.team, p.c.n_ff, 8, &r0, &r1)       # unless scattered, the rows that this rank computed
        for t in range(p.t0, p.t1):
            activate(p, layer, t, r0, r1)
        if not several:
            group_prefetch(&p.team, &layer.down)
            team_barrier(&p.team)
        sub_norm(p, work.gate, layer.ffn_sub_norm, p.c.n_ff, s.input[IN_FF].f)
        input_prepare(&p.team, &s.input[IN_FF], &layer.down, p.t0, p.t1)
    if several:
        team_barrier(&p.team)
    y[0], ldy[0] = work.base.delta, p.c.n_embd
    group_product(&p.team, &layer.down, &s.input[IN_FF], y, ldy)


cdef void qkv(pn_pass *p, int l) noexcept nogil:
    """q, k and v of a layer, rotated; k and v are in the caches. Whole on return."""
    cdef pn_llama_layer *layer = &model_of(p).layers[l]
    cdef pn_llama_work *work = work_of(p)
    cdef float *y[3]
    cdef size_t ldy[3]
    y[0], y[1], y[2] = work.q, work.k, work.v
    ldy[0], ldy[1] = <size_t>p.c.n_head * p.c.head_dim, <size_t>p.c.n_kv_head * p.c.head_dim
    ldy[2] = ldy[1]
    group_product(&p.team, &layer.qkv, &p.s.input[IN_EMBD], y, ldy)
    team_barrier(&p.team)
    rotate_and_store(p, layer, l)
    team_barrier(&p.team)


cdef void attend(pn_pass *p, int l) noexcept nogil:
    """Attention of a layer whose q, k and v are there."""
    p.attn.window = model_of(p).layers[l].window
    attention(&p.team, &p.attn, l, p.run.work.ranks[p.team.rank].mixer)


cdef void llama_attention(pn_pass *p, int l) noexcept nogil:
    qkv(p, l)
    attend(p, l)


cdef void feed_forward(pn_pass *p, const pn_llama_layer *layer, const pn_group *then) noexcept nogil:
    """delta = the feed-forward of the normed residual stream, whole for this rank's tokens. then: what is read next."""
    cdef bint several = p.n_tok > 1
    if layer.moe != NULL:
        moe_prepare(&p.team, layer.moe, &p.s.input[IN_EMBD], p.t0, p.t1)
        if several:
            team_barrier(&p.team)
        moe_step(&p.team, layer.moe, &p.s.input[IN_EMBD], p.run.work.moe, p.run.work.delta, p.t0, p.t1)
        return
    input_prepare(&p.team, &p.s.input[IN_EMBD], &layer.gate_up, p.t0, p.t1)
    if several:
        team_barrier(&p.team)
    mlp(p, layer)
    if not several:
        group_prefetch(&p.team, then)
    team_barrier(&p.team)


cdef void narrow(pn_pass *p) noexcept nogil:
    """Goes on with the last of several tokens alone; its residual stream is copied to this rank's own."""
    cdef int last = p.n_tok - 1
    cdef pn_stream *single = &p.run.work.ranks[p.team.rank].single
    memcpy(single.x, p.s.x + <size_t>last * p.c.n_embd, p.c.n_embd * sizeof(float))
    p.s = single
    p.n_tok = p.attn.n_tok = p.t1 = 1
    p.first_out = p.t0 = 0
    p.attn.q += <size_t>last * p.c.n_head * p.c.head_dim
    p.attn.caches += last
    p.attn.pos += last


cdef void llama_layer(pn_pass *p, int l) noexcept nogil:
    cdef pn_llama_model *w = model_of(p)
    cdef pn_llama_layer *layer = &w.layers[l]
    cdef pn_llama_work *work = work_of(p)
    cdef bint last = l + 1 == p.c.n_layer
    cdef bint several
    cdef float *y[1]
    cdef size_t ldy[1]
    qkv(p, l)
    if last and p.n_tok > 1 and p.first_out == p.n_tok - 1:  # only the last token has a use for the last layer's result
        narrow(p)
    several = p.n_tok > 1
    attend(p, l)
    if not several:
        group_prefetch(&p.team, &layer.out)
    team_barrier(&p.team)

    sub_norm(p, work.heads, layer.attn_sub_norm, p.c.n_head * p.c.head_dim, p.s.input[IN_HEADS].f)
    input_prepare(&p.team, &p.s.input[IN_HEADS], &layer.out, p.t0, p.t1)
    if several:
        team_barrier(&p.team)
    y[0], ldy[0] = work.base.delta, p.c.n_embd
    group_product(&p.team, &layer.out, &p.s.input[IN_HEADS], y, ldy)
    if not several:
        group_prefetch(&p.team, &layer.gate_up if layer.moe == NULL else &layer.moe.router)
    team_barrier(&p.team)

    run_add(p, work.base.delta, layer.out_bias)
    run_norm(p, layer.ffn_norm, NULL)
    feed_forward(p, layer, &w.head if last else &layer[1].qkv)
    run_add(p, work.base.delta, layer.down_bias)
    llama_next(p, l)
    if several:
        team_barrier(&p.team)


cdef void llama_leave(pn_pass *p) noexcept nogil:
    cdef pn_llama_model *w = model_of(p)
    run_logits(p, &w.head, w.output_norm, w.output_norm_bias, w.head_bias)
