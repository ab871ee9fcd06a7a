"""The attention block of RWKV-X, and the choice of what a prompt leaves in memory (see attn.pxd)."""
from libc.stdlib cimport qsort
from libc.string cimport memcpy

from pantheon._core.arch.rwkv.rwkv7 cimport rwkv_channel_mix, rwkv_norm
from pantheon._core.arch.rwkv.state cimport rx_of
from pantheon._core.arch.rwkv.structs cimport IN_HEADS, IN_MIX, pn_rwkvx_attn, rx_candidate, rx_job, rx_prompt, rx_view
from pantheon._core.kernels.table cimport PN_RWKV_HEAD
from pantheon._core.layers.attention cimport attention, attention_heads
from pantheon._core.layers.kvcache cimport kvcache_k, kvcache_v, pn_llama_kv_cache
from pantheon._core.layers.linear cimport (
    group_product,
    input_prepare,
    pn_group,
    pn_team,
    team_barrier,
    team_tokens,
)


cdef void store(rx_job *job, rx_view *v, int a, int h0, int h1) noexcept nogil:
    """Keys and values of the rank's tokens, heads [h0, h1): into the cache that this run attends to, and the selected
    ones into the memory of the sequence."""
    cdef int t, h, slot
    cdef size_t at
    cdef pn_llama_kv_cache *kv
    for t in range(v.t0, v.t1):
        slot = job.prompt.slot[v.w0 + t] if job.prompt != NULL else -1
        for h in range(h0, h1):
            at = <size_t>t * job.c.n_embd + h * PN_RWKV_HEAD
            kv = job.attn.caches[t]
            kv.ops.store_k(kvcache_k(kv, a if job.prompt == NULL else 0, h), job.attn.pos[t], PN_RWKV_HEAD,
                           job.work.k + at)
            kv.ops.store_v(kvcache_v(kv, a if job.prompt == NULL else 0, h), job.attn.pos[t], PN_RWKV_HEAD,
                           job.work.v + at)
            if slot >= 0:
                kv = &rx_of(job.states[0]).base.kv
                kv.ops.store_k(kvcache_k(kv, a, h), slot, PN_RWKV_HEAD, job.work.k + at)
                kv.ops.store_v(kvcache_v(kv, a, h), slot, PN_RWKV_HEAD, job.work.v + at)


cdef void rwkvx_attention(rx_job *job, pn_team *team, rx_view *v, int a) noexcept nogil:
    cdef pn_rwkvx_attn *block = &job.w.attn[a]
    cdef const pn_group *g = &block.qkv if job.remember else &block.q
    cdef int h0 = 0, h1 = job.c.n_head
    cdef float *y[3]
    cdef size_t ldy[3]
    rwkv_norm(job, v, block.ln_w, block.ln_b)
    memcpy(v.s.input[IN_MIX].f + <size_t>v.t0 * job.c.n_embd, v.s.normed + <size_t>v.t0 * job.c.n_embd,
           <size_t>(v.t1 - v.t0) * job.c.n_embd * sizeof(float))
    input_prepare(team, &v.s.input[IN_MIX], g, v.t0, v.t1)
    if job.shared:
        team_barrier(team)
    y[0], y[1], y[2] = job.work.r, job.work.k, job.work.v
    ldy[0] = ldy[1] = ldy[2] = job.c.n_embd
    group_product(team, g, &v.s.input[IN_MIX], y, ldy)
    team_barrier(team)
    if job.remember:
        if not job.shared:
            attention_heads(team, job.c.n_head, &h0, &h1)    # of this rank in the attention too: no barrier
        store(job, v, a, h0, h1)
        if job.shared:
            team_barrier(team)
    attention(team, &job.attn, a if job.prompt == NULL else 0, job.work.base.ranks[team.rank].mixer)
    team_barrier(team)
    input_prepare(team, &v.s.input[IN_HEADS], &block.out, v.t0, v.t1)
    if job.shared:
        team_barrier(team)
    y[0] = job.work.base.delta
    group_product(team, &block.out, &v.s.input[IN_HEADS], y, ldy)
    team_barrier(team)
    rwkv_channel_mix(job, team, v, &block.ffn, 2 * job.w.n_blocks + a)


# ---- selection of what a prompt leaves in memory ---------------------------------------------------------------------

cdef int worst_first(const void *a, const void *b) noexcept nogil:
    cdef const rx_candidate *x = <const rx_candidate *>a
    cdef const rx_candidate *y = <const rx_candidate *>b
    if x.loss != y.loss:
        return 1 if x.loss < y.loss else -1
    return x.t - y.t


cdef void rwkvx_select(rx_job *job, pn_team *team, int b) noexcept nogil:
    """Fills prompt.slot by how badly the state of block b after the whole prompt restores each token."""
    cdef rx_prompt *p = job.prompt
    cdef const float *wkv = rx_of(job.states[0]).wkv + <size_t>b * job.c.n_head * (PN_RWKV_HEAD * PN_RWKV_HEAD)
    cdef rx_candidate *order = p.order
    cdef int t0, t1, t, h, i, row = 0
    cdef size_t at
    cdef float sum
    team_barrier(team)
    team_tokens(team, job.n_tok, &t0, &t1)
    for t in range(t0, t1):
        sum = 0
        for h in range(job.c.n_head):
            at = <size_t>t * job.c.n_embd + h * PN_RWKV_HEAD
            sum += job.w.base.k.rwkv7_loss(wkv + <size_t>h * PN_RWKV_HEAD * PN_RWKV_HEAD, p.k + at, p.v + at)
        order[t].loss = sum if sum == sum else 0     # the order of a sort must be one, whatever the numbers
        order[t].t = t
        p.slot[t] = -1
    team_barrier(team)
    if team.rank == 0:
        qsort(order, job.n_tok, sizeof(rx_candidate), worst_first)
        for i in range(p.keep):
            p.slot[order[i].t] = 0
        for t in range(job.n_tok):
            if p.slot[t] == 0:
                p.slot[t] = row
                row += 1
    team_barrier(team)
