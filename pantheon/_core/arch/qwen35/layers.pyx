"""The layers of Qwen3.5 (see layers.pxd for the contract).

x = embedding; per layer x += mixer(norm(x)), x += ffn(norm(x)); logits = head(norm(x)).

With several tokens, ranks split them for norms and quantisation; a single token is normed and quantised by every rank
for itself, which costs less than a barrier.
"""
from pantheon._core.arch.qwen35.structs cimport pn_qwen35moe_layer, pn_qwen35moe_model, pn_qwen35moe_work
from pantheon._core.arch.run cimport run_add, run_embed, run_logits, run_norm
from pantheon._core.arch.sequence cimport sequence_of
from pantheon._core.arch.structs cimport IN_EMBD, IN_HEAD, IN_OWN
from pantheon._core.arch.work cimport layout_experts, layout_floats, layout_input, layout_reads
from pantheon._core.base.carver cimport carve, carve_floats
from pantheon._core.kernels.table cimport PN_ACT_F32
from pantheon._core.layers.attention cimport attention, attention_heads, attention_scratch
from pantheon._core.layers.deltanet cimport (
    deltanet_channels,
    deltanet_conv_size,
    deltanet_mix,
    deltanet_scratch,
    deltanet_values,
    pn_deltanet_run,
)
from pantheon._core.layers.gated cimport gated_product, gated_scratch
from pantheon._core.layers.kvcache cimport kvcache_k, kvcache_v, pn_llama_kv_cache
from pantheon._core.layers.linear cimport (
    group_prefetch,
    group_product,
    input_pack,
    input_prepare,
    input_quantize,
    pn_group,
    pn_input,
    team_barrier,
    team_range,
)
from pantheon._core.layers.moe cimport MOE_COUNTERS, moe_prepare, moe_step
from pantheon._core.layers.rope cimport mrope_angles
from pantheon._core.types cimport pn_config

cdef enum:                               # inputs beside the frame's
    IN_HEADS = IN_OWN                    # of an attention layer's out
    IN_VALUES = IN_OWN + 1               # of a recurrent layer's out
    IN_FF = IN_OWN + 2                   # of a dense layer's down


cdef inline pn_qwen35moe_model *model_of(const pn_pass *p) noexcept nogil:
    return <pn_qwen35moe_model *>p.run.model.weights


cdef inline pn_qwen35moe_work *work_of(const pn_pass *p) noexcept nogil:
    return <pn_qwen35moe_work *>p.run.work


cdef inline const pn_group *mixer_reads(const pn_qwen35moe_layer *layer) noexcept nogil:
    return &layer.delta.input if layer.recurrent else &layer.qkv


# ---- buffers ---------------------------------------------------------------------------------------------------------

cdef void place_mixers(pn_qwen35moe_work *work, pn_layout *l, const pn_qwen35moe_model *w) noexcept nogil:
    """Buffers of the two kinds of mixer, in one place: a layer has one of them."""
    cdef const pn_config *c = l.c
    cdef size_t start = l.m.used, end
    work.qg = layout_floats(l, 2 * c.n_head * c.head_dim)
    work.q = layout_floats(l, c.n_head * c.head_dim)
    work.k = layout_floats(l, c.n_kv_head * c.head_dim)
    work.v = layout_floats(l, c.n_kv_head * c.head_dim)
    work.heads = layout_floats(l, c.n_head * c.head_dim)
    end = l.m.used
    l.m.used = start
    work.qkv = layout_floats(l, deltanet_channels(&w.dims))
    work.z = layout_floats(l, deltanet_values(&w.dims))
    work.beta = layout_floats(l, w.dims.n_v_head)
    work.alpha = layout_floats(l, w.dims.n_v_head)
    l.m.used = max(l.m.used, end)
    work.step.dims = &w.dims
    work.step.runs = <pn_deltanet_run *>carve(&l.m, l.n_tok * sizeof(pn_deltanet_run))
    work.step.qkv, work.step.z, work.step.beta, work.step.alpha = work.qkv, work.z, work.beta, work.alpha


cdef void qwen_walk(pn_layout *l, pn_work *base) noexcept nogil:
    cdef const pn_qwen35moe_model *w = <const pn_qwen35moe_model *>l.w
    cdef pn_qwen35moe_work *work = <pn_qwen35moe_work *>base
    cdef const pn_config *c = l.c
    cdef const pn_qwen35moe_layer *layer
    cdef bint floats = False
    cdef int i, n_ff = 0
    for i in range(c.n_layer):
        layer = &w.layers[i]
        layout_reads(l, IN_EMBD, mixer_reads(layer))
        if layer.recurrent:
            layout_reads(l, IN_VALUES, &layer.delta.out)
        else:
            layout_reads(l, IN_HEADS, &layer.out)
        if layer.moe.n_experts > 0:
            layout_experts(l, &layer.moe)
        else:
            layout_reads(l, IN_EMBD, &layer.gate_up)
            layout_reads(l, IN_FF, &layer.down)
            n_ff = c.n_ff
            floats = floats or layer.down.kinds[<int>PN_ACT_F32]
    layout_reads(l, IN_HEAD, &w.head)
    place_mixers(work, l, w)
    work.gate = carve_floats(&l.m, 1, n_ff)
    work.up = carve_floats(&l.m, 1, n_ff)
    work.gated = layout_floats(l, n_ff) if floats and l.n_tok > 1 else NULL
    layout_input(l, IN_HEADS, work.heads, work.heads)
    layout_input(l, IN_VALUES, work.z, work.z)
    layout_input(l, IN_FF, work.gated, work.gate)
    l.n_angles = 2 * w.rope.n_pair
    l.n_counters = (3 + max(2, <int>MOE_COUNTERS)) * c.n_layer       # the mixer's, then the widest feed-forward's
    l.mixer = max(attention_scratch(c.n_head, c.n_kv_head, c.head_dim), deltanet_scratch(&w.dims))
    l.gated = gated_scratch(l.n_tok) if n_ff > 0 else 0


cdef void qwen_add(pn_run *run, pn_state *state, int first, int n) noexcept nogil:
    """The recurrent part of the sequence: the convolutions of all recurrent layers, then what their heads keep."""
    cdef pn_qwen35moe_work *work = <pn_qwen35moe_work *>run.work
    cdef const pn_qwen35moe_model *w = <const pn_qwen35moe_model *>run.model.weights
    cdef int i = 0 if first == 0 else work.step.n_runs
    cdef pn_deltanet_run *tokens = &work.step.runs[i]
    tokens.conv = sequence_of(state).recurrent
    tokens.s = tokens.conv + w.n_recurrent * deltanet_conv_size(&w.dims)
    tokens.first = first
    tokens.n = n
    work.step.n_runs = i + 1


# ---- layers ----------------------------------------------------------------------------------------------------------

cdef void qwen_enter(pn_pass *p) noexcept nogil:
    """Rows of the embedding table, rotation angles, and the first layer's input."""
    cdef pn_qwen35moe_model *w = model_of(p)
    cdef int pos[3]
    cdef int t
    p.attn.q, p.attn.out = work_of(p).q, work_of(p).heads
    run_embed(p, &w.embd)
    for t in range(p.t0, p.t1):
        pos[0] = pos[1] = pos[2] = p.attn.pos[t]             # text: no rows and columns
        mrope_angles(&w.rope, w.sections, pos, p.s.angles + <size_t>t * 2 * w.rope.n_pair)
    enter_layer(p, w.layers)


cdef void enter_layer(pn_pass *p, const pn_qwen35moe_layer *layer) noexcept nogil:
    """What the layer's mixer reads of this rank's tokens."""
    run_norm(p, layer.attn_norm, NULL)
    input_prepare(&p.team, &p.s.input[IN_EMBD], mixer_reads(layer), p.t0, p.t1)


cdef void project(pn_pass *p, pn_input *x, const pn_group *g) noexcept nogil:
    """delta = g of the vectors of x, which are whole."""
    cdef float *y[1]
    cdef size_t ldy[1]
    input_prepare(&p.team, x, g, p.t0, p.t1)
    if p.n_tok > 1:
        team_barrier(&p.team)
    y[0], ldy[0] = p.run.work.delta, p.c.n_embd
    group_product(&p.team, g, x, y, ldy)


cdef void rotate_and_store(pn_pass *p, const pn_qwen35moe_layer *layer) noexcept nogil:
    """Head norms and rotation of q and k; k and v go into the caches. A single token is split by heads."""
    cdef const pn_config *c = p.c
    cdef pn_qwen35moe_work *work = work_of(p)
    cdef int dim = c.head_dim, n_pair = model_of(p).rope.n_pair, q0 = 0, q1 = c.n_head, k0 = 0, k1 = c.n_kv_head, t, h
    cdef float *q
    cdef float *k
    cdef const float *cs
    cdef pn_llama_kv_cache *kv
    if p.n_tok == 1:
        attention_heads(&p.team, c.n_head, &q0, &q1)
        team_range(&p.team, c.n_kv_head, 1, &k0, &k1)
    for t in range(p.t0, p.t1):
        cs = p.s.angles + <size_t>t * 2 * n_pair
        for h in range(q0, q1):
            q = work.q + (<size_t>t * c.n_head + h) * dim
            p.k.rms_norm(work.qg + (<size_t>t * c.n_head + h) * 2 * dim, layer.q_norm, c.norm_eps, dim, q)
            p.k.rope_neox(q, 1, dim, cs, n_pair)
        kv = p.attn.caches[t]
        for h in range(k0, k1):
            k = work.k + (<size_t>t * c.n_kv_head + h) * dim
            p.k.rms_norm(k, layer.k_norm, c.norm_eps, dim, k)
            p.k.rope_neox(k, 1, dim, cs, n_pair)
            kv.ops.store_k(kvcache_k(kv, layer.slot, h), p.attn.pos[t], dim, k)
            kv.ops.store_v(kvcache_v(kv, layer.slot, h), p.attn.pos[t], dim,
                           work.v + (<size_t>t * c.n_kv_head + h) * dim)


cdef void gate_heads(pn_pass *p, int h0, int h1) noexcept nogil:
    """Attention's result times sigmoid(gate), of this rank's tokens, heads [h0, h1)."""
    cdef int t, h, dim = p.c.head_dim
    cdef size_t head
    for t in range(p.t0, p.t1):
        for h in range(h0, h1):
            head = <size_t>t * p.c.n_head + h
            p.k.sigmoid_mul(work_of(p).heads + head * dim, work_of(p).qg + (2 * head + 1) * dim, dim)


cdef void attention_mixer(pn_pass *p, const pn_qwen35moe_layer *layer) noexcept nogil:
    cdef const pn_config *c = p.c
    cdef pn_qwen35moe_work *work = work_of(p)
    cdef int h0, h1
    cdef float *y[3]
    cdef size_t ldy[3]
    y[0], y[1], y[2] = work.qg, work.k, work.v
    ldy[0] = 2 * <size_t>c.n_head * c.head_dim
    ldy[1] = ldy[2] = <size_t>c.n_kv_head * c.head_dim
    group_product(&p.team, &layer.qkv, &p.s.input[IN_EMBD], y, ldy)
    team_barrier(&p.team)
    rotate_and_store(p, layer)
    team_barrier(&p.team)
    attention(&p.team, &p.attn, layer.slot, work.base.ranks[p.team.rank].mixer)
    if p.n_tok == 1:
        attention_heads(&p.team, c.n_head, &h0, &h1)         # those that this rank worked on
        gate_heads(p, h0, h1)
        group_prefetch(&p.team, &layer.out)
        team_barrier(&p.team)
    else:
        team_barrier(&p.team)
        gate_heads(p, 0, c.n_head)
    project(p, &p.s.input[IN_HEADS], &layer.out)


cdef void recurrent_mixer(pn_pass *p, const pn_qwen35moe_layer *layer) noexcept nogil:
    cdef pn_qwen35moe_work *work = work_of(p)
    cdef float *y[4]
    cdef size_t ldy[4]
    y[0], y[1], y[2], y[3] = work.qkv, work.z, work.beta, work.alpha
    ldy[0], ldy[1] = deltanet_channels(&model_of(p).dims), deltanet_values(&model_of(p).dims)
    ldy[2] = ldy[3] = model_of(p).dims.n_v_head
    group_product(&p.team, &layer.delta.input, &p.s.input[IN_EMBD], y, ldy)
    team_barrier(&p.team)
    deltanet_mix(&p.team, &layer.delta, &work.step, layer.slot, p.n_tok == 1, work.base.ranks[p.team.rank].mixer)
    if p.n_tok == 1:
        group_prefetch(&p.team, &layer.delta.out)
    team_barrier(&p.team)
    project(p, &p.s.input[IN_VALUES], &layer.delta.out)


cdef void mlp(pn_pass *p, const pn_qwen35moe_layer *layer) noexcept nogil:
    """delta = down(silu(gate x) * up x), of the input prepared in IN_EMBD; whole after the next barrier."""
    cdef pn_qwen35moe_work *work = work_of(p)
    cdef int r0, r1
    cdef float *y[2]
    cdef size_t ldy[2]
    if p.n_tok > 1:
        gated_product(&p.team, &layer.gate_up, &p.s.input[IN_EMBD], NULL, NULL, &layer.down, &p.s.input[IN_FF],
                      work.base.ranks[p.team.rank].gated)
        team_barrier(&p.team)
        input_pack(&p.s.input[IN_FF], &layer.down, p.t0, p.t1)
        team_barrier(&p.team)
    else:
        y[0], y[1] = work.gate, work.up
        ldy[0], ldy[1] = p.c.n_ff, p.c.n_ff
        group_product(&p.team, &layer.gate_up, &p.s.input[IN_EMBD], y, ldy)
        team_range(&p.team, p.c.n_ff, 8, &r0, &r1)         # the rows that this rank computed
        p.k.silu_mul(work.gate + r0, work.up + r0, r1 - r0)
        group_prefetch(&p.team, &layer.down)
        team_barrier(&p.team)
        input_quantize(&p.team, &p.s.input[IN_FF], &layer.down, 0, 1)
    y[0], ldy[0] = work.base.delta, p.c.n_embd
    group_product(&p.team, &layer.down, &p.s.input[IN_FF], y, ldy)


cdef void qwen_layer(pn_pass *p, int i) noexcept nogil:
    cdef pn_qwen35moe_layer *layer = &model_of(p).layers[i]
    cdef bint several = p.n_tok > 1, last = i + 1 == p.c.n_layer, experts = layer.moe.n_experts > 0
    if layer.recurrent:
        recurrent_mixer(p, layer)
    else:
        attention_mixer(p, layer)
    if not several:
        group_prefetch(&p.team, &layer.moe.router if experts else &layer.gate_up)
    team_barrier(&p.team)

    run_add(p, p.run.work.delta, NULL)
    run_norm(p, layer.ffn_norm, NULL)
    if experts:
        moe_prepare(&p.team, &layer.moe, &p.s.input[IN_EMBD], p.t0, p.t1)
    else:
        input_prepare(&p.team, &p.s.input[IN_EMBD], &layer.gate_up, p.t0, p.t1)
    if several:
        team_barrier(&p.team)
    if experts:
        moe_step(&p.team, &layer.moe, &p.s.input[IN_EMBD], p.run.work.moe, p.run.work.delta, p.t0, p.t1)
    else:
        mlp(p, layer)
        if not several and not last:
            group_prefetch(&p.team, mixer_reads(&layer[1]))
        team_barrier(&p.team)
    run_add(p, p.run.work.delta, NULL)
    if not last:
        enter_layer(p, &layer[1])
    if several:
        team_barrier(&p.team)


cdef void qwen_leave(pn_pass *p) noexcept nogil:
    run_logits(p, &model_of(p).head, model_of(p).output_norm, NULL, NULL)
