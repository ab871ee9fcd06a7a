"""The transformer family: Llama 2/3, Mistral, Mixtral, Qwen2, Qwen3 and their mixtures of experts, BitNet b1.58.

x = embedding; per layer x += out(attention(norm(x))), x += down(silu(gate(norm(x))) * up(norm(x))), or the same of the
layer's experts (moe.pyx); logits = head(norm(x)). BitNet norms what out and down read once more, and has relu(gate)^2
in place of silu.

One layer function serves the single token, the prefill chunk and the batch. All ranks of a run execute it together and
meet at barriers. With several tokens, ranks split them for norms and quantisation; a single token is normed and
quantised by every rank for itself, which costs less than a barrier.
"""
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from pantheon._core.arch.llama_load cimport llama_load_tensors
from pantheon._core.arch.ops cimport pn_arch_ops
from pantheon._core.arena cimport (
    compute_arena_size,
    pn_arena_alloc,
    pn_arena_free,
    pn_arena_new,
    pn_arena_reset,
    pn_arena_size,
)
from pantheon._core.attention cimport attention, attention_heads, attention_scratch, pn_attn_step
from pantheon._core.config cimport config_from_gguf, config_validate
from pantheon._core.config_hf cimport config_from_hf, hf_ternary_rule, hf_tied, hf_windows
from pantheon._core.gated cimport gated_product, gated_scratch
from pantheon._core.gguf cimport gguf_get_str
from pantheon._core.kernels.table cimport PN_ACT_F32, PN_ACT_ROW, PN_F32, pn_kernels_active
from pantheon._core.kvcache cimport (
    kvcache_free,
    kvcache_k,
    kvcache_new,
    kvcache_reset,
    kvcache_v,
    pn_llama_kv_cache,
)
from pantheon._core.linear cimport (
    TOKENS_ALIGN,
    group_panel_bytes,
    group_prefetch,
    group_product,
    input_begin,
    input_layout,
    input_pack,
    input_prepare,
    pn_group,
    pn_team,
    team_barrier,
    team_range,
)
from pantheon._core.moe cimport MOE_COUNTERS, moe_layout, moe_prepare, moe_step, pn_moe
from pantheon._core.pool cimport fw_pool_run, pn_counter, pn_counter_zero
from pantheon._core.report cimport pn_interrupted, pn_set_error
from pantheon._core.rope cimport pn_rope, rope_angles, rope_free
from pantheon._core.safetensors cimport safetensors_file
from pantheon._core.source cimport pn_source, source_safetensors
from pantheon._core.tensor cimport owned_free
from pantheon._core.types cimport (
    PN_ARCH_BITNET,
    PN_ARCH_BITNET_25,
    PN_ARCH_BITNET_B158,
    PN_ROPE_NEOX,
    pn_arch,
    pn_config,
    pn_kv_type,
    pn_model,
    pn_rope_kind,
    pn_state,
    tm_tensor,
)

cdef extern from "unistd.h" nogil:
    """
    #ifndef _SC_LEVEL3_CACHE_SIZE
    #define _SC_LEVEL3_CACHE_SIZE -1
    #endif
    """
    const int _SC_LEVEL3_CACHE_SIZE
    long sysconf(int name)

cdef enum:
    PREFILL_WINDOW = 512                 # most tokens of one pass
    LAYER_COUNTERS = 3 + MOE_COUNTERS    # qkv, attention, out, then the widest feed-forward

# ---- layer -----------------------------------------------------------------------------------------------------------

cdef const pn_rope *rope_of(const llama_job *job, int t) noexcept nogil:
    """The rotation of token t's state: a state keeps one for life, since its keys were rotated by it."""
    if job.w.rope_long.freq != NULL and job.attn.caches[t].n_ctx > job.c.rope_orig_ctx:
        return &job.w.rope_long
    return &job.w.rope


cdef void norm(const llama_job *job, const float *x, const float *weight, const float *bias, float *y) noexcept nogil:
    if bias != NULL:
        job.w.k.layer_norm(x, weight, bias, job.c.norm_eps, job.c.n_embd, y)
    else:
        job.w.k.rms_norm(x, weight, job.c.norm_eps, job.c.n_embd, y)


cdef void embed(llama_job *job, pn_llama_stream *s, int t0, int t1) noexcept nogil:
    """Rows of the embedding table and rotation angles of tokens [t0, t1)."""
    cdef int t
    cdef size_t n = job.c.n_embd
    for t in range(t0, t1):
        if job.embd_override != NULL:
            memcpy(s.x + t * n, job.embd_override, n * sizeof(float))
        else:
            job.w.embd.ops.dequant(job.w.embd.data + job.tokens[t] * job.w.embd.row_bytes, s.x + t * n, n)
        rope_angles(rope_of(job, t), job.attn.pos[t], s.angles + <size_t>t * 2 * job.w.rope.n_pair)


cdef void norm_tokens(llama_job *job, pn_llama_stream *s, const float *weight, const float *bias, int t0,
                      int t1) noexcept nogil:
    """Norm of the residual stream for tokens [t0, t1)."""
    cdef int t
    cdef size_t n = job.c.n_embd
    for t in range(t0, t1):
        norm(job, s.x + t * n, weight, bias, s.normed + t * n)


cdef void llama_add(llama_job *job, pn_llama_stream *s, const float *delta, const float *bias, int t0,
                    int t1) noexcept nogil:
    cdef int t
    cdef size_t n = job.c.n_embd
    for t in range(t0, t1):
        job.w.k.add(s.x + t * n, delta + t * n, job.c.n_embd)
        if bias != NULL:
            job.w.k.add(s.x + t * n, bias, job.c.n_embd)


cdef void llama_next(llama_job *job, const pn_team *team, pn_llama_stream *s, int l, int t0, int t1) noexcept nogil:
    cdef pn_llama_layer *layer
    if l + 1 < job.c.n_layer:
        layer = &job.w.layers[l + 1]
        norm_tokens(job, s, layer.attn_norm, layer.attn_norm_bias, t0, t1)
        input_prepare(team, &s.embd, &layer.qkv, t0, t1)


cdef void rotate_heads(llama_job *job, float *x, const float *norm, const float *cs, int h0, int h1) noexcept nogil:
    """Per-head norm and rotation of heads [h0, h1) of one token's q or k."""
    cdef int h, dim = job.c.head_dim
    if norm != NULL:
        for h in range(h0, h1):
            job.w.k.rms_norm(x + h * dim, norm, job.c.norm_eps, dim, x + h * dim)
    if job.c.rope_kind == PN_ROPE_NEOX:
        job.w.k.rope_neox(x + h0 * dim, h1 - h0, dim, cs, job.w.rope.n_pair)
    else:
        job.w.k.rope_norm(x + h0 * dim, h1 - h0, dim, cs, job.w.rope.n_pair)


cdef void rotate_and_store(llama_job *job, pn_team *team, pn_llama_stream *s, const pn_llama_layer *layer, int l,
                           int t0, int t1) noexcept nogil:
    """Biases, head norms and rotation of q and k; k and v go into the caches. A single token is split by heads."""
    cdef const pn_config *c = job.c
    cdef int dim = c.head_dim, q0 = 0, q1 = c.n_head, k0 = 0, k1 = c.n_kv_head, t, h, pos
    cdef float *q
    cdef float *k
    cdef float *v
    cdef pn_llama_kv_cache *kv
    if job.n_tok == 1:
        attention_heads(team, c.n_head, &q0, &q1)
        team_range(team, c.n_kv_head, 1, &k0, &k1)
    for t in range(t0, t1):
        q = job.work.q + <size_t>t * c.n_head * dim
        k = job.work.k + <size_t>t * c.n_kv_head * dim
        v = job.work.v + <size_t>t * c.n_kv_head * dim
        kv = job.attn.caches[t]
        pos = job.attn.pos[t]
        if layer.q_bias != NULL:
            job.w.k.add(q + q0 * dim, layer.q_bias + q0 * dim, (q1 - q0) * dim)
        if layer.k_bias != NULL:
            job.w.k.add(k + k0 * dim, layer.k_bias + k0 * dim, (k1 - k0) * dim)
        if layer.v_bias != NULL:
            job.w.k.add(v + k0 * dim, layer.v_bias + k0 * dim, (k1 - k0) * dim)
        rotate_heads(job, q, layer.q_norm, s.angles + <size_t>t * 2 * job.w.rope.n_pair, q0, q1)
        rotate_heads(job, k, layer.k_norm, s.angles + <size_t>t * 2 * job.w.rope.n_pair, k0, k1)
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


cdef void activate(llama_job *job, const pn_llama_layer *layer, int t, int r0, int r1) noexcept nogil:
    """gate = activation(gate) * up of features [r0, r1) of token t."""
    cdef float *gate = job.work.gate + <size_t>t * job.c.n_ff
    cdef float *up = job.work.up + <size_t>t * job.c.n_ff
    if layer.gate_bias != NULL:
        job.w.k.add(gate + r0, layer.gate_bias + r0, r1 - r0)
    if layer.up_bias != NULL:
        job.w.k.add(up + r0, layer.up_bias + r0, r1 - r0)
    if job.w.squared_relu:
        squared_relu_mul(gate + r0, up + r0, r1 - r0)
    else:
        job.w.k.silu_mul(gate + r0, up + r0, r1 - r0)


cdef void sub_norm(llama_job *job, const float *x, const float *weight, int n, float *y, int t0, int t1) noexcept nogil:
    """Norm of tokens [t0, t1) of x (n_tok, n) into y; without a weight y is x, or nothing reads it."""
    cdef int t
    if weight == NULL:
        return
    for t in range(t0, t1):
        job.w.k.rms_norm(x + <size_t>t * n, weight, job.c.norm_eps, n, y + <size_t>t * n)


cdef bint whole_ff(const pn_llama_model *w, const pn_llama_layer *layer) noexcept nogil:
    """Whether down's input must be there whole before it is quantised, so that it cannot be made in blocks."""
    return (w.squared_relu or layer.ffn_sub_norm != NULL or layer.gate_up.scattered
            or layer.down.kinds[<int>PN_ACT_ROW])


cdef void mlp(llama_job *job, pn_team *team, pn_llama_stream *s, const pn_llama_layer *layer, int t0,
              int t1) noexcept nogil:
    """delta = down(silu(gate x) * up x), of the input prepared in s.embd; whole after the next barrier."""
    cdef pn_llama_work *work = job.work
    cdef bint several = job.n_tok > 1
    cdef int r0 = 0, r1 = job.c.n_ff, t
    cdef float *y[2]
    cdef size_t ldy[2]
    if several and not whole_ff(job.w, layer):
        gated_product(team, &layer.gate_up, &s.embd, layer.gate_bias, layer.up_bias, &layer.down, &s.ff,
                      work.ranks[team.rank].gated)
        team_barrier(team)
        input_pack(&s.ff, &layer.down, t0, t1)
    else:
        y[0], y[1] = work.gate, work.up
        ldy[0], ldy[1] = job.c.n_ff, job.c.n_ff
        group_product(team, &layer.gate_up, &s.embd, y, ldy)
        if several or layer.gate_up.scattered:
            team_barrier(team)
        if not several:
            team_range(team, job.c.n_ff, 8, &r0, &r1)    # unless scattered, the rows that this rank computed
        for t in range(t0, t1):
            activate(job, layer, t, r0, r1)
        if not several:
            group_prefetch(team, &layer.down)
            team_barrier(team)
        sub_norm(job, work.gate, layer.ffn_sub_norm, job.c.n_ff, s.ff.f, t0, t1)
        input_prepare(team, &s.ff, &layer.down, t0, t1)
    if several:
        team_barrier(team)
    y[0], ldy[0] = work.delta, job.c.n_embd
    group_product(team, &layer.down, &s.ff, y, ldy)


cdef void qkv(llama_job *job, pn_team *team, pn_llama_stream *s, int l, int t0, int t1) noexcept nogil:
    """q, k and v of a layer, rotated; k and v are in the caches. Whole on return."""
    cdef pn_llama_layer *layer = &job.w.layers[l]
    cdef pn_llama_work *work = job.work
    cdef float *y[3]
    cdef size_t ldy[3]
    y[0], y[1], y[2] = work.q, work.k, work.v
    ldy[0], ldy[1] = <size_t>job.c.n_head * job.c.head_dim, <size_t>job.c.n_kv_head * job.c.head_dim
    ldy[2] = ldy[1]
    group_product(team, &layer.qkv, &s.embd, y, ldy)
    team_barrier(team)
    rotate_and_store(job, team, s, layer, l, t0, t1)
    team_barrier(team)


cdef void llama_attention(llama_job *job, pn_team *team, pn_llama_stream *s, int l, int t0, int t1) noexcept nogil:
    cdef pn_attn_step attn = job.attn
    attn.window = job.w.layers[l].window
    qkv(job, team, s, l, t0, t1)
    attention(team, &attn, l, job.work.ranks[team.rank].attention)


cdef void mix_and_think(llama_job *job, pn_team *team, pn_llama_stream *s, int l, int t0, int t1) noexcept nogil:
    """Attention and feed-forward of a layer whose q, k and v are there."""
    cdef pn_llama_layer *layer = &job.w.layers[l]
    cdef pn_llama_work *work = job.work
    cdef bint several = job.n_tok > 1
    cdef float *y[1]
    cdef size_t ldy[1]
    cdef pn_attn_step attn = job.attn
    attn.window = layer.window
    attention(team, &attn, l, work.ranks[team.rank].attention)
    if not several:
        group_prefetch(team, &layer.out)
    team_barrier(team)

    sub_norm(job, work.heads, layer.attn_sub_norm, job.c.n_head * job.c.head_dim, s.heads.f, t0, t1)
    input_prepare(team, &s.heads, &layer.out, t0, t1)
    if several:
        team_barrier(team)
    y[0], ldy[0] = work.delta, job.c.n_embd
    group_product(team, &layer.out, &s.heads, y, ldy)
    if not several:
        group_prefetch(team, &layer.gate_up if layer.moe == NULL else &layer.moe.router)
    team_barrier(team)

    llama_add(job, s, work.delta, layer.out_bias, t0, t1)
    norm_tokens(job, s, layer.ffn_norm, NULL, t0, t1)
    if layer.moe != NULL:
        moe_prepare(team, layer.moe, &s.embd, t0, t1)
        if several:
            team_barrier(team)
        moe_step(team, layer.moe, &s.embd, &work.moe, work.delta, t0, t1)
    else:
        input_prepare(team, &s.embd, &layer.gate_up, t0, t1)
        if several:
            team_barrier(team)
        mlp(job, team, s, layer, t0, t1)
        if not several:
            group_prefetch(team, &job.w.layers[l + 1].qkv if l + 1 < job.c.n_layer else &job.w.head)
        team_barrier(team)
    llama_add(job, s, work.delta, layer.down_bias, t0, t1)
    llama_next(job, team, s, l, t0, t1)
    if several:
        team_barrier(team)


cdef bint narrows(const llama_job *job) noexcept nogil:
    """Whether only the last of several tokens has a use for the last layer's result."""
    return job.layer == llama_layer and job.n_tok > 1 and job.first_out == job.n_tok - 1


cdef llama_job *narrowed(llama_job *job, const pn_team *team, const pn_llama_stream *s) noexcept nogil:
    """This rank's single-token job that goes on with the last of several tokens; its residual stream is copied."""
    cdef llama_job *tail = &job.work.ranks[team.rank].tail
    cdef int last = job.n_tok - 1
    tail[0] = job[0]
    tail.n_tok = tail.attn.n_tok = 1
    tail.first_out = 0
    tail.attn.q += <size_t>last * job.c.n_head * job.c.head_dim
    tail.attn.caches += last
    tail.attn.pos += last
    memcpy(job.work.ranks[team.rank].single.x, s.x + <size_t>last * job.c.n_embd, job.c.n_embd * sizeof(float))
    return tail


cdef void llama_layer(llama_job *job, pn_team *team, pn_llama_stream *s, int l, int t0, int t1) noexcept nogil:
    qkv(job, team, s, l, t0, t1)
    if l + 1 == job.c.n_layer and narrows(job):
        mix_and_think(narrowed(job, team, s), team, &job.work.ranks[team.rank].single, l, 0, 1)
    else:
        mix_and_think(job, team, s, l, t0, t1)


cdef void logits(llama_job *job, pn_team *team, pn_llama_stream *s) noexcept nogil:
    cdef int n_out = job.n_tok - job.first_out
    cdef int o, o0 = 0, o1 = 1, r0 = 0, r1 = job.c.n_vocab
    cdef size_t n = job.c.n_embd
    cdef float *y[1]
    cdef size_t ldy[1]
    if job.n_tok > 1:
        team_range(team, n_out, TOKENS_ALIGN, &o0, &o1)
    for o in range(o0, o1):
        norm(job, s.x + (job.first_out + o) * n, job.w.output_norm, job.w.output_norm_bias, s.normed + o * n)
    input_prepare(team, &s.head, &job.w.head, o0, o1)
    if job.n_tok > 1:
        team_barrier(team)
    y[0], ldy[0] = job.logits, job.c.n_vocab
    group_product(team, &job.w.head, &s.head, y, ldy)
    if job.w.head_bias == NULL:
        return
    if n_out > 1:
        team_barrier(team)
    else:
        o0, o1 = 0, 1
        team_range(team, job.c.n_vocab, 8, &r0, &r1)         # the rows that this rank computed
    for o in range(o0, o1):
        job.w.k.add(job.logits + o * ldy[0] + r0, job.w.head_bias + r0, r1 - r0)


cdef void llama_task(void *arg, int rank, int n) noexcept nogil:
    """What every rank of a run does."""
    cdef llama_job *job = <llama_job *>arg
    cdef pn_llama_work *work = job.work
    cdef pn_llama_stream *s = &work.ranks[rank].single if job.n_tok == 1 else &work.shared
    cdef pn_team team
    cdef int t0 = 0, t1 = 1, i
    team.k = job.w.k
    team.pool = job.pool
    team.rank = rank
    team.n = n
    team.counters = work.counters
    team.next_counter = 0
    team.panel = work.ranks[rank].panel
    if job.n_tok > 1:
        team_range(&team, job.n_tok, TOKENS_ALIGN, &t0, &t1)
    embed(job, s, t0, t1)
    llama_next(job, &team, s, -1, t0, t1)
    if job.n_tok > 1:
        team_barrier(&team)
    for i in range(job.c.n_layer):
        job.layer(job, &team, s, i, t0, t1)
        if job.n_tok > 1:
            if rank == 0 and pn_interrupted():
                job.stop = True
            team_barrier(&team)
            if job.stop:
                return
    if narrows(job):
        logits(&work.ranks[rank].tail, &team, &work.ranks[rank].single)
    else:
        logits(job, &team, s)


# ---- work buffers ----------------------------------------------------------------------------------------------------

cdef struct carver:
    uint8_t *base                        # NULL: only counts
    size_t used


cdef inline void *carve(carver *m, size_t n) noexcept nogil:
    cdef void *p = m.base + m.used if m.base != NULL else NULL
    m.used += (n + 63) // 64 * 64
    return p


cdef inline uint8_t *rest(carver *m) noexcept nogil:
    return m.base + m.used if m.base != NULL else NULL


cdef int dense_downs(const pn_llama_model *w, const pn_config *c, const pn_group **groups) noexcept nogil:
    """down of the layers without experts; returns how many there are."""
    cdef int i, n = 0
    for i in range(c.n_layer):
        if w.layers[i].moe == NULL:
            groups[n] = &w.layers[i].down
            n += 1
    return n


cdef int expert_layers(const pn_llama_model *w, const pn_config *c, const pn_moe **layers) noexcept nogil:
    cdef int i, n = 0
    for i in range(c.n_layer):
        if w.layers[i].moe != NULL:
            layers[n] = w.layers[i].moe
            n += 1
    return n


cdef void layout_inputs(pn_llama_stream *s, carver *m, const pn_llama_model *w, const pn_config *c, float *heads,
                        float *gate, int n_tok, int n_out) noexcept nogil:
    """Inputs are sized for the widest need of any layer; layers of one model mix types."""
    cdef const pn_group *groups[3 * 1024]
    cdef int i, n = 0
    for i in range(c.n_layer):
        groups[n] = &w.layers[i].qkv
        if w.layers[i].moe != NULL:
            groups[n + 1] = &w.layers[i].moe.router
            groups[n + 2] = &w.layers[i].moe.reads
            n += 3
        else:
            groups[n + 1] = &w.layers[i].gate_up
            n += 2
    m.used += input_layout(&s.embd, rest(m), s.normed, groups, n, n_tok)
    for i in range(c.n_layer):
        groups[i] = &w.layers[i].out
    m.used += input_layout(&s.heads, rest(m), heads, groups, c.n_layer, n_tok)
    n = dense_downs(w, c, groups)
    if n > 0:
        m.used += input_layout(&s.ff, rest(m), gate, groups, n, n_tok)
    groups[0] = &w.head
    m.used += input_layout(&s.head, rest(m), s.normed, groups, 1, n_out)


cdef void layout_stream(pn_llama_stream *s, carver *m, const pn_llama_model *w, const pn_config *c, float *heads,
                        float *gate, int n_tok, int n_out) noexcept nogil:
    s.x = <float *>carve(m, <size_t>n_tok * c.n_embd * sizeof(float))
    s.normed = <float *>carve(m, <size_t>n_tok * c.n_embd * sizeof(float))
    s.angles = <float *>carve(m, <size_t>n_tok * 2 * w.rope.n_pair * sizeof(float))
    if w.sub_norms:                      # the norms' results need room of their own: ranks share what they read
        heads = <float *>carve(m, <size_t>n_tok * c.n_head * c.head_dim * sizeof(float))
        gate = <float *>carve(m, <size_t>n_tok * c.n_ff * sizeof(float))
    layout_inputs(s, m, w, c, heads, gate, n_tok, n_out)


cdef size_t panel_bytes(const pn_llama_model *w, const pn_config *c) noexcept nogil:
    cdef size_t most = group_panel_bytes(&w.head)
    cdef int i
    for i in range(c.n_layer):
        most = max(most, group_panel_bytes(&w.layers[i].qkv))
        most = max(most, group_panel_bytes(&w.layers[i].out))
        most = max(most, group_panel_bytes(&w.layers[i].gate_up))
        most = max(most, group_panel_bytes(&w.layers[i].down))
        if w.layers[i].moe != NULL:
            most = max(most, w.layers[i].moe.panel_bytes)
    return most


cdef bint float_ff(const pn_llama_model *w, const pn_config *c) noexcept nogil:
    cdef int i
    for i in range(c.n_layer):
        if w.layers[i].down.kinds[<int>PN_ACT_F32] or w.layers[i].ffn_norm == NULL:
            return True
    return False


cdef size_t work_layout(pn_llama_work *work, uint8_t *base, const pn_llama_model *w, const pn_config *c, int n_tok,
                        int n_out) noexcept nogil:
    """Buffers of a run of up to n_tok tokens, n_out of them with logits; base NULL: only counts. Returns the bytes."""
    cdef carver m
    cdef size_t q = <size_t>n_tok * c.n_head * c.head_dim * sizeof(float)
    cdef size_t kv = <size_t>n_tok * c.n_kv_head * c.head_dim * sizeof(float)
    cdef pn_llama_rank scratch
    cdef pn_llama_rank *rank = &scratch
    cdef const pn_group *downs[1024]
    cdef const pn_moe *moes[1024]
    cdef int r, n_moe = expert_layers(w, c, moes)
    cdef size_t n_ff = c.n_ff if dense_downs(w, c, downs) > 0 else 0
    cdef size_t delta = <size_t>n_tok * c.n_embd * sizeof(float)
    cdef bint whole = False
    for r in range(c.n_layer):
        whole = whole or w.layers[r].moe == NULL and whole_ff(w, &w.layers[r])
    m.base = base
    m.used = 0
    work.n_tok = n_tok
    work.n_out = n_out
    work.n_ranks = w.base.n_threads
    work.ranks = <pn_llama_rank *>carve(&m, work.n_ranks * sizeof(pn_llama_rank))
    work.counters = <pn_counter *>carve(&m, (LAYER_COUNTERS * c.n_layer + 1) * sizeof(pn_counter))
    work.q = <float *>carve(&m, q)
    work.k = <float *>carve(&m, kv)
    work.v = <float *>carve(&m, kv)
    work.heads = <float *>carve(&m, q)
    work.gate = <float *>carve(&m, (n_tok if whole else 1) * n_ff * sizeof(float))
    work.up = <float *>carve(&m, (n_tok if whole else 1) * n_ff * sizeof(float))
    work.gated = work.gate if whole else NULL
    if not whole and n_tok > 1 and float_ff(w, c):
        work.gated = <float *>carve(&m, n_tok * n_ff * sizeof(float))
    work.delta = <float *>carve(&m, delta)
    work.delta_ffn = <float *>carve(&m, delta) if w.layers[0].ffn_norm == NULL else NULL
    if n_moe > 0:
        m.used += moe_layout(&work.moe, rest(&m), moes, n_moe, n_tok, work.n_ranks)
    if n_tok > 1:
        layout_stream(&work.shared, &m, w, c, work.heads, work.gated, n_tok, n_out)
    for r in range(work.n_ranks):
        if base != NULL:
            rank = &work.ranks[r]
        layout_stream(&rank.single, &m, w, c, work.heads, work.gate, 1, 1)
        rank.attention = <uint8_t *>carve(&m, attention_scratch(c.n_head, c.n_kv_head, c.head_dim))
        rank.panel = <uint8_t *>carve(&m, panel_bytes(w, c) if n_tok > 1 else 0)
        rank.gated = <uint8_t *>carve(&m, gated_scratch(n_tok) if n_tok > 1 else 0)
    return m.used


cdef pn_llama_work *work_of(pn_model *model, int n_tok, int n_out) noexcept nogil:
    """The model's buffers of prefill and batch, grown to n_tok tokens and n_out logits; NULL when there is no
    memory."""
    cdef pn_llama_model *w = <pn_llama_model *>model.weights
    cdef pn_llama_work *work = &w.work
    cdef size_t need
    if work.n_tok >= n_tok and work.n_out >= n_out and work.n_ranks == w.base.n_threads:
        return work
    n_tok = max(n_tok, work.n_tok)
    n_out = max(n_out, work.n_out)
    need = work_layout(work, NULL, w, &model.config, n_tok, n_out)
    free(w.work_memory)
    w.work_memory = calloc(1, need + 64)
    w.work_bytes = need + 64
    if w.work_memory == NULL:
        memset(work, 0, sizeof(pn_llama_work))
        w.work_bytes = 0
        pn_set_error(b"no memory for the %lld bytes of %lld tokens of work buffers", need, n_tok)
        return NULL
    work_layout(work, <uint8_t *>((<size_t>w.work_memory + 63) // 64 * 64), w, &model.config, n_tok, n_out)
    return work


# ---- entry points ----------------------------------------------------------------------------------------------------

cdef void begin_stream(pn_llama_stream *s, int n_tok, int n_out) noexcept nogil:
    input_begin(&s.embd, n_tok)
    input_begin(&s.heads, n_tok)
    input_begin(&s.ff, n_tok)
    input_begin(&s.head, n_out)


cdef void begin(llama_job *job, pn_model *model, pn_llama_work *work, int n_tok, int first_out,
                llama_layer_fn layer) noexcept nogil:
    """Fills what all kinds of run share."""
    cdef int i
    memset(job, 0, sizeof(llama_job))
    job.c = &model.config
    job.w = <pn_llama_model *>model.weights
    job.work = work
    job.pool = model.pool
    job.layer = layer
    job.n_tok = n_tok
    job.first_out = first_out
    job.attn.n_tok = n_tok
    job.attn.n_head = model.config.n_head
    job.attn.n_kv_head = model.config.n_kv_head
    job.attn.head_dim = model.config.head_dim
    job.attn.scale = model.config.attn_scale
    job.attn.q = work.q
    job.attn.out = work.heads
    for i in range(work.n_ranks):
        begin_stream(&work.ranks[i].single, 1, 1)
    if n_tok > 1:
        begin_stream(&work.shared, n_tok, n_tok - first_out)
        for i in range(LAYER_COUNTERS * model.config.n_layer + 1):
            pn_counter_zero(&work.counters[i])


cdef int run(llama_job *job) noexcept nogil:
    fw_pool_run(job.pool, llama_task, job, job.work.n_ranks)
    if job.stop:
        pn_set_error(b"interrupted", 0, 0)
        return -1
    return 0


cdef int check(pn_model *model, uint32_t token, const pn_state *state, int n) noexcept nogil:
    """Refuses a token outside the vocabulary and positions outside the context."""
    cdef const pn_llama_kv_cache *kv = <const pn_llama_kv_cache *>state.kv_cache
    if token >= <uint32_t>model.config.n_vocab:
        pn_set_error(b"token %lld is not below n_vocab %lld", token, model.config.n_vocab)
        return -1
    if n > kv.n_ctx - state.pos:
        pn_set_error(b"%lld more positions do not fit: n_ctx is %lld", n, kv.n_ctx)
        return -1
    return 0


cdef void advance(pn_state *state, int n) noexcept nogil:
    cdef pn_llama_kv_cache *kv = <pn_llama_kv_cache *>state.kv_cache
    state.pos += n
    kv.high = max(kv.high, state.pos)


cdef tm_tensor *llama_forward(pn_model *model, uint32_t token, pn_state *state, llama_layer_fn layer) noexcept nogil:
    cdef pn_llama_model *w = <pn_llama_model *>model.weights
    cdef pn_llama_kv_cache *kv = <pn_llama_kv_cache *>state.kv_cache
    cdef pn_llama_work work
    cdef llama_job job
    cdef size_t need = work_layout(&work, NULL, w, &model.config, 1, 1)
    cdef void *memory
    cdef tm_tensor *out
    cdef float *values
    if check(model, token, state, 1) != 0:
        return NULL
    pn_arena_reset(state.arena)
    memory = pn_arena_alloc(state.arena, need + 64)
    out = <tm_tensor *>pn_arena_alloc(state.arena, sizeof(tm_tensor))
    values = <float *>pn_arena_alloc(state.arena, model.config.n_vocab * sizeof(float))
    if memory == NULL or out == NULL or values == NULL:
        pn_set_error(b"the arena of %lld bytes is too small for a forward", pn_arena_size(state.arena), 0)
        return NULL
    work_layout(&work, <uint8_t *>((<size_t>memory + 63) // 64 * 64), w, &model.config, 1, 1)
    begin(&job, model, &work, 1, 0, layer)
    job.tokens = &token
    job.embd_override = state.embd_override
    job.logits = values
    job.attn.caches = &kv
    job.attn.pos = &state.pos
    run(&job)
    advance(state, 1)
    memset(out, 0, sizeof(tm_tensor))
    out.data = values
    out.type = PN_F32
    out.ne[0] = model.config.n_vocab
    out.ne[1] = out.ne[2] = out.ne[3] = 1
    out.nb[0] = sizeof(float)
    out.nb[1] = out.nb[2] = out.nb[3] = out.ne[0] * sizeof(float)
    memcpy(out.name, b"logits", 7)
    return out


cdef int llama_prefill(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out, bint all,
                       llama_layer_fn layer) noexcept nogil:
    cdef pn_llama_model *w = <pn_llama_model *>model.weights
    cdef pn_llama_kv_cache *kv = <pn_llama_kv_cache *>state.kv_cache
    cdef pn_llama_kv_cache *caches[PREFILL_WINDOW]
    cdef int pos[PREFILL_WINDOW]
    cdef int window = min(max(w.base.prefill_window, 1), <int>PREFILL_WINDOW)
    cdef int first = 0, n_tok, i
    cdef pn_llama_work *work
    cdef llama_job job
    for i in range(n):
        if check(model, tokens[i], state, n) != 0:
            return -1
    while first < n:
        n_tok = min(window, n - first)
        work = work_of(model, n_tok, n_tok if all else 1)
        if work == NULL:
            return -1
        for i in range(n_tok):
            caches[i] = kv
            pos[i] = state.pos + i
        begin(&job, model, work, n_tok, 0 if all else n_tok - 1, layer)
        job.tokens = tokens + first
        job.logits = logits_out + (<size_t>first * model.config.n_vocab if all else 0)
        job.attn.one_sequence = True
        job.attn.caches = caches
        job.attn.pos = pos
        if run(&job) != 0:
            return -1
        advance(state, n_tok)
        first += n_tok
    return 0


cdef int llama_forward_batch(pn_model *model, const uint32_t *tokens, pn_state **states, int n, float *logits_out,
                             llama_layer_fn layer) noexcept nogil:
    cdef pn_llama_kv_cache *caches[PREFILL_WINDOW]
    cdef int pos[PREFILL_WINDOW]
    cdef int first = 0, n_tok, i
    cdef pn_llama_work *work
    cdef llama_job job
    for i in range(n):
        if check(model, tokens[i], states[i], 1) != 0:
            return -1
    while first < n:
        n_tok = min(<int>PREFILL_WINDOW, n - first)
        work = work_of(model, n_tok, n_tok)
        if work == NULL:
            return -1
        for i in range(n_tok):
            caches[i] = <pn_llama_kv_cache *>states[first + i].kv_cache
            pos[i] = states[first + i].pos
        begin(&job, model, work, n_tok, 0, layer)
        job.tokens = tokens + first
        job.logits = logits_out + <size_t>first * model.config.n_vocab
        job.attn.caches = caches
        job.attn.pos = pos
        if run(&job) != 0:
            return -1
        for i in range(n_tok):
            advance(states[first + i], 1)
        first += n_tok
    return 0


cdef tm_tensor *pn_llama_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil:
    return llama_forward(model, token, state, llama_layer)


cdef int pn_llama_prefill(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out,
                          bint all) noexcept nogil:
    return llama_prefill(model, tokens, n, state, logits_out, all, llama_layer)


cdef int pn_llama_forward_batch(pn_model *model, const uint32_t *tokens, pn_state **states, int n,
                                float *logits_out) noexcept nogil:
    return llama_forward_batch(model, tokens, states, n, logits_out, llama_layer)


# ---- life of models and states ---------------------------------------------------------------------------------------

cdef size_t outer_cache() noexcept nogil:
    """Bytes that the buffers of one prefill pass should fit in: the outermost cache's, or a common size of one."""
    cdef long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE)
    return <size_t>min(max(bytes, 8 << 20), 24 << 20) if bytes > 0 else 24 << 20


cdef int load_weights(pn_model *model, const pn_source *f, str path) except -1:
    """Weights for the valid configuration that model.config holds."""
    cdef pn_llama_model *w
    cdef pn_llama_work work
    w = <pn_llama_model *>calloc(1, sizeof(pn_llama_model))
    if w == NULL:
        raise MemoryError()
    model.weights = w
    w.k = pn_kernels_active()
    w.base.n_threads = 1
    w.sub_norms = model.config.arch in (PN_ARCH_BITNET, PN_ARCH_BITNET_B158, PN_ARCH_BITNET_25)
    w.squared_relu = model.config.arch in (PN_ARCH_BITNET_B158, PN_ARCH_BITNET_25)
    try:
        llama_load_tensors(w, &model.config, f, path)
    except BaseException:
        unload(model)
        raise
    w.base.prefill_window = PREFILL_WINDOW
    # wide passes through experts read each of them for more tokens, which counts for more than the cache
    while (model.config.n_experts == 0 and w.base.prefill_window > 64
           and work_layout(&work, NULL, w, &model.config, w.base.prefill_window, 1) > outer_cache()):
        w.base.prefill_window //= 2
    return 0


cdef int load(pn_model *model, const pn_arch_ops *self, const pn_source *f, str path) except -1:
    model.config.rope_kind = self.rope_kind
    config_from_gguf(&model.config, f.gguf, gguf_get_str(f.gguf, b"general.architecture"), path)
    config_validate(&model.config, path)
    return load_weights(model, f, path)


cdef int pn_llama_load_safetensors(pn_model *model, const pn_arch_ops *self, const safetensors_file *f, dict config,
                                   str path, str config_path) except -1:
    cdef pn_source source = source_safetensors(f)
    cdef int i
    model.config.arch = self.arch
    config_from_hf(&model.config, config, config_path)
    config_validate(&model.config, config_path)
    source.tied = hf_tied(config, config_path)
    source.ternary = hf_ternary_rule(config, config_path)
    load_weights(model, &source, path)
    windows = hf_windows(&model.config, config, config_path)
    for i in range(model.config.n_layer):
        (<pn_llama_model *>model.weights).layers[i].window = windows[i]
    return 0


cdef void unload(pn_model *model) noexcept nogil:
    cdef pn_llama_model *w = <pn_llama_model *>model.weights
    if w != NULL:
        rope_free(&w.rope)
        rope_free(&w.rope_long)
        owned_free(&w.owned)
        free(w.work_memory)
        free(w)
    model.weights = NULL


cdef int state_new(pn_model *model, pn_state *state, int n_ctx, pn_kv_type type) except -1:
    cdef pn_llama_model *w = <pn_llama_model *>model.weights
    cdef pn_llama_work work
    cdef size_t need = work_layout(&work, NULL, w, &model.config, 1, 1) + 64 + sizeof(tm_tensor) + 64
    need += model.config.n_vocab * sizeof(float)
    state.kv_cache = kvcache_new(&model.config, n_ctx, type)
    state.arena = pn_arena_new(max(compute_arena_size(&model.config), need))
    return 0


cdef void state_reset(pn_state *state) noexcept nogil:
    kvcache_reset(<pn_llama_kv_cache *>state.kv_cache)


cdef void state_free(pn_state *state) noexcept nogil:
    kvcache_free(<pn_llama_kv_cache *>state.kv_cache)
    pn_arena_free(state.arena)


cdef int state_truncate(pn_state *state, int pos) noexcept nogil:
    state.pos = pos                      # what lies behind is never read again before it is overwritten
    return 0


cdef int state_n_ctx(const pn_state *state) noexcept nogil:
    return (<const pn_llama_kv_cache *>state.kv_cache).n_ctx


cdef pn_kv_type state_kv_type(const pn_state *state) noexcept nogil:
    return (<const pn_llama_kv_cache *>state.kv_cache).type


cdef size_t state_bytes(const pn_state *state) noexcept nogil:
    return (<const pn_llama_kv_cache *>state.kv_cache).nbytes + pn_arena_size(state.arena)


cdef pn_arch_ops pn_llama_ops(const char *name, pn_arch arch, pn_rope_kind rope_kind) noexcept nogil:
    cdef pn_arch_ops ops
    memset(&ops, 0, sizeof(ops))
    ops.name = name
    ops.arch = arch
    ops.rope_kind = rope_kind
    ops.load = load
    ops.unload = unload
    ops.forward = pn_llama_forward
    ops.prefill = pn_llama_prefill
    ops.forward_batch = pn_llama_forward_batch
    ops.state_new = state_new
    ops.state_reset = state_reset
    ops.state_free = state_free
    ops.state_truncate = state_truncate
    ops.state_snapshot_bytes = NULL
    ops.state_snapshot = NULL
    ops.state_restore = NULL
    ops.state_n_ctx = state_n_ctx
    ops.state_kv_type = state_kv_type
    ops.state_bytes = state_bytes
    return ops
