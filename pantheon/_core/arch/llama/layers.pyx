"""What every rank of a run does for a model of the Llama family (see llama_layers.pxd for the contract).

One layer function serves the single token, the prefill chunk and the batch.
"""
from libc.string cimport memcpy

from pantheon._core.arch.llama.structs cimport llama_job, pn_llama_layer, pn_llama_stream, pn_llama_work
from pantheon._core.arch.llama.work cimport llama_whole_ff
from pantheon._core.arch.run cimport run_embed, run_stopped, run_team
from pantheon._core.layers.attention cimport attention, attention_heads, pn_attn_step
from pantheon._core.layers.gated cimport gated_product
from pantheon._core.layers.kvcache cimport kvcache_k, kvcache_v, pn_llama_kv_cache
from pantheon._core.layers.linear cimport (
    group_prefetch,
    group_product,
    input_pack,
    input_prepare,
    pn_team,
    team_barrier,
    team_range,
    team_tokens,
)
from pantheon._core.layers.moe cimport moe_prepare, moe_step
from pantheon._core.layers.rope cimport pn_rope, rope_angles
from pantheon._core.types cimport PN_ROPE_NEOX, pn_config


cdef const pn_rope *rope_of(const llama_job *job, int t) noexcept nogil:
    """The rotation of token t's state: one for all its positions, since its keys were rotated by it."""
    if job.w.rope_long.freq != NULL and job.attn.caches[t].stretched:
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
        run_embed(job.run, &job.w.embd, t, s.x + t * n)
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


cdef void mlp(llama_job *job, pn_team *team, pn_llama_stream *s, const pn_llama_layer *layer, int t0,
              int t1) noexcept nogil:
    """delta = down(silu(gate x) * up x), of the input prepared in s.embd; whole after the next barrier."""
    cdef pn_llama_work *work = job.work
    cdef bint several = job.n_tok > 1
    cdef int r0 = 0, r1 = job.c.n_ff, t
    cdef float *y[2]
    cdef size_t ldy[2]
    if several and not llama_whole_ff(job.w, layer):
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
        team_tokens(team, n_out, &o0, &o1)
    for o in range(o0, o1):
        norm(job, s.x + (job.first_out + o) * n, job.w.output_norm, job.w.output_norm_bias, s.normed + o * n)
    input_prepare(team, &s.head, &job.w.head, o0, o1)
    if job.n_tok > 1:
        team_barrier(team)
    y[0], ldy[0] = job.run.logits, job.c.n_vocab
    group_product(team, &job.w.head, &s.head, y, ldy)
    if job.w.head_bias == NULL:
        return
    if n_out > 1:
        team_barrier(team)
    else:
        o0, o1 = 0, 1
        team_range(team, job.c.n_vocab, 8, &r0, &r1)         # the rows that this rank computed
    for o in range(o0, o1):
        job.w.k.add(job.run.logits + o * ldy[0] + r0, job.w.head_bias + r0, r1 - r0)


cdef void llama_task(void *arg, int rank, int n) noexcept nogil:
    """What every rank of a run does."""
    cdef llama_job *job = <llama_job *>arg
    cdef pn_llama_work *work = job.work
    cdef pn_llama_stream *s = &work.ranks[rank].single if job.n_tok == 1 else &work.shared
    cdef pn_team team = run_team(job.run, job.w.k, work.counters, work.ranks[rank].panel, rank, n)
    cdef int t0 = 0, t1 = 1, i
    if job.n_tok > 1:
        team_tokens(&team, job.n_tok, &t0, &t1)
    embed(job, s, t0, t1)
    llama_next(job, &team, s, -1, t0, t1)
    if job.n_tok > 1:
        team_barrier(&team)
    for i in range(job.c.n_layer):
        job.layer(job, &team, s, i, t0, t1)
        if job.n_tok > 1 and run_stopped(job.run, &team):
            return
    if narrows(job):
        logits(&work.ranks[rank].tail, &team, &work.ranks[rank].single)
    else:
        logits(job, &team, s)
