"""The layers of Qwen3.5 (see qwen35moe_layers.pxd for the contract).

x = embedding; per layer x += mixer(norm(x)), x += ffn(norm(x)); logits = head(norm(x)).

With several tokens, ranks split them for norms and quantisation; a single token is normed and quantised by every rank
for itself, which costs less than a barrier.
"""
from pantheon._core.arch.qwen35.structs cimport pn_qwen35moe_layer, pn_qwen35moe_stream, pn_qwen35moe_work
from pantheon._core.arch.run cimport run_embed, run_stopped, run_team
from pantheon._core.layers.attention cimport attention, attention_heads
from pantheon._core.layers.deltanet cimport deltanet_channels, deltanet_mix, deltanet_values
from pantheon._core.layers.gated cimport gated_product
from pantheon._core.layers.kvcache cimport kvcache_k, kvcache_v, pn_llama_kv_cache
from pantheon._core.layers.linear cimport (
    group_prefetch,
    group_product,
    input_pack,
    input_prepare,
    input_quantize,
    pn_group,
    pn_input,
    pn_team,
    team_barrier,
    team_range,
    team_tokens,
)
from pantheon._core.layers.moe cimport moe_prepare, moe_step
from pantheon._core.layers.rope cimport mrope_angles
from pantheon._core.types cimport pn_config


cdef void embed(qwen_job *job, pn_qwen35moe_stream *s, int t0, int t1) noexcept nogil:
    """Rows of the embedding table and rotation angles of tokens [t0, t1)."""
    cdef int pos[3]
    cdef int t
    cdef size_t n = job.c.n_embd
    for t in range(t0, t1):
        run_embed(job.run, &job.w.embd, t, s.x + t * n)
        pos[0] = pos[1] = pos[2] = job.attn.pos[t]           # text: no rows and columns
        mrope_angles(&job.w.rope, job.w.sections, pos, s.angles + <size_t>t * 2 * job.w.rope.n_pair)


cdef void norm(qwen_job *job, pn_qwen35moe_stream *s, const float *weight, int t0, int t1) noexcept nogil:
    cdef int t
    cdef size_t n = job.c.n_embd
    for t in range(t0, t1):
        job.w.k.rms_norm(s.x + t * n, weight, job.c.norm_eps, job.c.n_embd, s.normed + t * n)


cdef void enter_layer(qwen_job *job, const pn_team *team, pn_qwen35moe_stream *s, int i, int t0, int t1) noexcept nogil:
    """What layer i's mixer reads, of tokens [t0, t1)."""
    cdef pn_qwen35moe_layer *layer = &job.w.layers[i]
    norm(job, s, layer.attn_norm, t0, t1)
    input_prepare(team, &s.embd, &layer.delta.input if layer.recurrent else &layer.qkv, t0, t1)


cdef void add_delta(qwen_job *job, pn_qwen35moe_stream *s, int t0, int t1) noexcept nogil:
    cdef int t
    cdef size_t n = job.c.n_embd
    for t in range(t0, t1):
        job.w.k.add(s.x + t * n, job.work.delta + t * n, job.c.n_embd)


cdef void project(qwen_job *job, pn_team *team, pn_input *x, const pn_group *g, int t0, int t1) noexcept nogil:
    """delta = g of the vectors of x, which are whole."""
    cdef float *y[1]
    cdef size_t ldy[1]
    input_prepare(team, x, g, t0, t1)
    if job.n_tok > 1:
        team_barrier(team)
    y[0], ldy[0] = job.work.delta, job.c.n_embd
    group_product(team, g, x, y, ldy)


cdef void rotate_and_store(qwen_job *job, pn_team *team, pn_qwen35moe_stream *s, const pn_qwen35moe_layer *layer,
                           int t0, int t1) noexcept nogil:
    """Head norms and rotation of q and k; k and v go into the caches. A single token is split by heads."""
    cdef const pn_config *c = job.c
    cdef pn_qwen35moe_work *work = job.work
    cdef int dim = c.head_dim, n_pair = job.w.rope.n_pair, q0 = 0, q1 = c.n_head, k0 = 0, k1 = c.n_kv_head, t, h
    cdef float *q
    cdef float *k
    cdef const float *cs
    cdef pn_llama_kv_cache *kv
    if job.n_tok == 1:
        attention_heads(team, c.n_head, &q0, &q1)
        team_range(team, c.n_kv_head, 1, &k0, &k1)
    for t in range(t0, t1):
        cs = s.angles + <size_t>t * 2 * n_pair
        for h in range(q0, q1):
            q = work.q + (<size_t>t * c.n_head + h) * dim
            job.w.k.rms_norm(work.qg + (<size_t>t * c.n_head + h) * 2 * dim, layer.q_norm, c.norm_eps, dim, q)
            job.w.k.rope_neox(q, 1, dim, cs, n_pair)
        kv = job.attn.caches[t]
        for h in range(k0, k1):
            k = work.k + (<size_t>t * c.n_kv_head + h) * dim
            job.w.k.rms_norm(k, layer.k_norm, c.norm_eps, dim, k)
            job.w.k.rope_neox(k, 1, dim, cs, n_pair)
            kv.ops.store_k(kvcache_k(kv, layer.slot, h), job.attn.pos[t], dim, k)
            kv.ops.store_v(kvcache_v(kv, layer.slot, h), job.attn.pos[t], dim,
                           work.v + (<size_t>t * c.n_kv_head + h) * dim)


cdef void gate_heads(qwen_job *job, int t0, int t1, int h0, int h1) noexcept nogil:
    """Attention's result times sigmoid(gate), of tokens [t0, t1), heads [h0, h1)."""
    cdef int t, h, dim = job.c.head_dim
    cdef size_t head
    for t in range(t0, t1):
        for h in range(h0, h1):
            head = <size_t>t * job.c.n_head + h
            job.w.k.sigmoid_mul(job.work.heads + head * dim, job.work.qg + (2 * head + 1) * dim, dim)


cdef void attention_mixer(qwen_job *job, pn_team *team, pn_qwen35moe_stream *s, const pn_qwen35moe_layer *layer,
                          int t0, int t1) noexcept nogil:
    cdef const pn_config *c = job.c
    cdef pn_qwen35moe_work *work = job.work
    cdef int h0, h1
    cdef float *y[3]
    cdef size_t ldy[3]
    y[0], y[1], y[2] = work.qg, work.k, work.v
    ldy[0] = 2 * <size_t>c.n_head * c.head_dim
    ldy[1] = ldy[2] = <size_t>c.n_kv_head * c.head_dim
    group_product(team, &layer.qkv, &s.embd, y, ldy)
    team_barrier(team)
    rotate_and_store(job, team, s, layer, t0, t1)
    team_barrier(team)
    attention(team, &job.attn, layer.slot, work.ranks[team.rank].mixer)
    if job.n_tok == 1:
        attention_heads(team, c.n_head, &h0, &h1)            # those that this rank worked on
        gate_heads(job, 0, 1, h0, h1)
        group_prefetch(team, &layer.out)
        team_barrier(team)
    else:
        team_barrier(team)
        gate_heads(job, t0, t1, 0, c.n_head)
    project(job, team, &s.heads, &layer.out, t0, t1)


cdef void recurrent_mixer(qwen_job *job, pn_team *team, pn_qwen35moe_stream *s, const pn_qwen35moe_layer *layer,
                          int t0, int t1) noexcept nogil:
    cdef pn_qwen35moe_work *work = job.work
    cdef float *y[4]
    cdef size_t ldy[4]
    y[0], y[1], y[2], y[3] = work.qkv, work.z, work.beta, work.alpha
    ldy[0], ldy[1] = deltanet_channels(&job.w.dims), deltanet_values(&job.w.dims)
    ldy[2] = ldy[3] = job.w.dims.n_v_head
    group_product(team, &layer.delta.input, &s.embd, y, ldy)
    team_barrier(team)
    deltanet_mix(team, &layer.delta, &job.delta, layer.slot, job.n_tok == 1, work.ranks[team.rank].mixer)
    if job.n_tok == 1:
        group_prefetch(team, &layer.delta.out)
    team_barrier(team)
    project(job, team, &s.values, &layer.delta.out, t0, t1)


cdef void mlp(qwen_job *job, pn_team *team, pn_qwen35moe_stream *s, const pn_qwen35moe_layer *layer, int t0,
              int t1) noexcept nogil:
    """delta = down(silu(gate x) * up x), of the input prepared in s.embd; whole after the next barrier."""
    cdef pn_qwen35moe_work *work = job.work
    cdef int r0, r1
    cdef float *y[2]
    cdef size_t ldy[2]
    if job.n_tok > 1:
        gated_product(team, &layer.gate_up, &s.embd, NULL, NULL, &layer.down, &s.ff, work.ranks[team.rank].gated)
        team_barrier(team)
        input_pack(&s.ff, &layer.down, t0, t1)
        team_barrier(team)
    else:
        y[0], y[1] = work.gate, work.up
        ldy[0], ldy[1] = job.c.n_ff, job.c.n_ff
        group_product(team, &layer.gate_up, &s.embd, y, ldy)
        team_range(team, job.c.n_ff, 8, &r0, &r1)            # the rows that this rank computed
        job.w.k.silu_mul(work.gate + r0, work.up + r0, r1 - r0)
        group_prefetch(team, &layer.down)
        team_barrier(team)
        input_quantize(team, &s.ff, &layer.down, 0, 1)
    y[0], ldy[0] = work.delta, job.c.n_embd
    group_product(team, &layer.down, &s.ff, y, ldy)


cdef void qwen_layer(qwen_job *job, pn_team *team, pn_qwen35moe_stream *s, int i, int t0, int t1) noexcept nogil:
    """Layer i; on entry the residual stream is whole and what the mixer reads is prepared, on exit so for the next
    layer."""
    cdef pn_qwen35moe_layer *layer = &job.w.layers[i]
    cdef bint several = job.n_tok > 1, last = i + 1 == job.c.n_layer, experts = layer.moe.n_experts > 0
    if layer.recurrent:
        recurrent_mixer(job, team, s, layer, t0, t1)
    else:
        attention_mixer(job, team, s, layer, t0, t1)
    if not several:
        group_prefetch(team, &layer.moe.router if experts else &layer.gate_up)
    team_barrier(team)

    add_delta(job, s, t0, t1)
    norm(job, s, layer.ffn_norm, t0, t1)
    if experts:
        moe_prepare(team, &layer.moe, &s.embd, t0, t1)
    else:
        input_prepare(team, &s.embd, &layer.gate_up, t0, t1)
    if several:
        team_barrier(team)
    if experts:
        moe_step(team, &layer.moe, &s.embd, &job.work.moe, job.work.delta, t0, t1)
    else:
        mlp(job, team, s, layer, t0, t1)
        if not several and not last:
            group_prefetch(team, &layer[1].delta.input if layer[1].recurrent else &layer[1].qkv)
        team_barrier(team)
    add_delta(job, s, t0, t1)
    if not last:
        enter_layer(job, team, s, i + 1, t0, t1)
    if several:
        team_barrier(team)


cdef void logits(qwen_job *job, pn_team *team, pn_qwen35moe_stream *s) noexcept nogil:
    cdef int n_out = job.n_tok - job.run.first_out, o, o0 = 0, o1 = 1
    cdef size_t n = job.c.n_embd
    cdef float *y[1]
    cdef size_t ldy[1]
    if job.n_tok > 1:
        team_tokens(team, n_out, &o0, &o1)
    for o in range(o0, o1):
        job.w.k.rms_norm(s.x + (job.run.first_out + o) * n, job.w.output_norm, job.c.norm_eps, job.c.n_embd,
                         s.normed + o * n)
    input_prepare(team, &s.head, &job.w.head, o0, o1)
    if job.n_tok > 1:
        team_barrier(team)
    y[0], ldy[0] = job.run.logits, job.c.n_vocab
    group_product(team, &job.w.head, &s.head, y, ldy)


cdef void qwen_task(void *arg, int rank, int n) noexcept nogil:
    """What every rank of a run does."""
    cdef qwen_job *job = <qwen_job *>arg
    cdef pn_qwen35moe_work *work = job.work
    cdef pn_qwen35moe_stream *s = &work.ranks[rank].single if job.n_tok == 1 else &work.shared
    cdef pn_team team = run_team(job.run, job.w.k, work.counters, work.ranks[rank].panel, rank, n)
    cdef int t0 = 0, t1 = 1, i
    if job.n_tok > 1:
        team_tokens(&team, job.n_tok, &t0, &t1)
    embed(job, s, t0, t1)
    enter_layer(job, &team, s, 0, t0, t1)
    if job.n_tok > 1:
        team_barrier(&team)
    for i in range(job.c.n_layer):
        qwen_layer(job, &team, s, i, t0, t1)
        if job.n_tok > 1 and run_stopped(job.run, &team):
            return
    logits(job, &team, s)
