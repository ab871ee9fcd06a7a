"""Attention of one layer for all tokens of a step (see attention.pxd for the contract).

A row is one query head of one token. Rows that read the same cache head go through its tiles together, so K and V are
loaded once for all of them; a row's bits do not depend on its company.
"""
from libc.math cimport INFINITY
from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memset

from pantheon._core.base.carver cimport aligned
from pantheon._core.base.phases cimport PHASE_ATTENTION, PHASE_VECTORS, phase_enter
from pantheon._core.base.pool cimport pn_counter, pn_counter_next
from pantheon._core.kernels.table cimport PN_ATTN_TILE, pn_attn_rows
from pantheon._core.layers.kvcache cimport kvcache_k, kvcache_v, pn_llama_kv_cache
from pantheon._core.layers.linear cimport pn_team, team_counter, team_range


cdef inline int max_rows(int n_head, int n_kv_head) noexcept nogil:
    return ATTN_BLOCK * (n_head // n_kv_head)


cdef size_t attention_scratch(int n_head, int n_kv_head, int head_dim) noexcept nogil:
    cdef size_t rows = max_rows(n_head, n_kv_head)
    return (2 * aligned(rows * head_dim * sizeof(float)) + 2 * aligned(rows * sizeof(float))
            + 2 * aligned(rows * sizeof(int)))


cdef void attention_heads(const pn_team *team, int n_head, int *a, int *b) noexcept nogil:
    team_range(team, n_head, 1, a, b)


cdef void attend(const pn_team *team, const pn_attn_step *step, int layer, int t0, int t1, int h0, int h1,
                 uint8_t *scratch) noexcept nogil:
    """Tokens [t0, t1) of one sequence, query heads [h0, h1) of one KV head."""
    cdef int heads = h1 - h0, dim = step.head_dim
    cdef int kv_head = h0 // (step.n_head // step.n_kv_head)
    cdef pn_llama_kv_cache *kv = step.caches[t0]
    cdef uint8_t *k = kvcache_k(kv, layer, kv_head)
    cdef uint8_t *v = kvcache_v(kv, layer, kv_head)
    cdef size_t rows_max = max_rows(step.n_head, step.n_kv_head)
    cdef size_t ld = <size_t>step.n_head * dim
    cdef float *q = <float *>scratch
    cdef pn_attn_rows rows
    cdef int *first
    cdef int *last
    cdef int r, t, tile
    rows.acc = <float *>(<uint8_t *>q + aligned(rows_max * dim * sizeof(float)))
    rows.m = <float *>(<uint8_t *>rows.acc + aligned(rows_max * dim * sizeof(float)))
    rows.s = <float *>(<uint8_t *>rows.m + aligned(rows_max * sizeof(float)))
    first = <int *>(<uint8_t *>rows.s + aligned(rows_max * sizeof(float)))
    last = <int *>(<uint8_t *>first + aligned(rows_max * sizeof(int)))
    rows.n = (t1 - t0) * heads
    rows.head_dim = dim
    rows.scale = step.scale
    rows.q = q
    rows.ldq = dim
    rows.first = first
    rows.last = last
    for t in range(t0, t1):
        r = (t - t0) * heads
        memcpy(q + <size_t>r * dim, step.q + t * ld + <size_t>h0 * dim, <size_t>heads * dim * sizeof(float))
        for r in range(r, r + heads):
            last[r] = step.pos[t]
            first[r] = max(0, step.pos[t] - step.window + 1) if step.window > 0 else 0
            rows.m[r] = -INFINITY
            rows.s[r] = 0
    memset(rows.acc, 0, <size_t>rows.n * dim * sizeof(float))
    for tile in range(first[0] // PN_ATTN_TILE, last[rows.n - 1] // PN_ATTN_TILE + 1):
        kv.ops.attn_tile(&rows, k, v, tile)
    for t in range(t0, t1):
        for r in range((t - t0) * heads, (t - t0 + 1) * heads):
            team.k.attn_finish(rows.acc + <size_t>r * dim, rows.s[r], dim)
        memcpy(step.out + t * ld + <size_t>h0 * dim, rows.acc + <size_t>(t - t0) * heads * dim,
               <size_t>heads * dim * sizeof(float))


cdef void attention(pn_team *team, const pn_attn_step *step, int layer, uint8_t *scratch) noexcept nogil:
    phase_enter(team.rank, PHASE_ATTENTION)
    attend_share(team, step, layer, scratch)
    phase_enter(team.rank, PHASE_VECTORS)


cdef void attend_share(pn_team *team, const pn_attn_step *step, int layer, uint8_t *scratch) noexcept nogil:
    cdef int group = step.n_head // step.n_kv_head
    cdef int block = ATTN_BLOCK if step.one_sequence else 1
    cdef int n_blocks = (step.n_tok + block - 1) // block
    cdef int h0, h1, end, unit, t0, kv_head
    cdef pn_counter *counter
    if step.n_tok == 1:
        attention_heads(team, step.n_head, &h0, &end)
        while h0 < end:
            h1 = min(end, (h0 // group + 1) * group)
            attend(team, step, layer, 0, 1, h0, h1, scratch)
            h0 = h1
        return
    counter = team_counter(team)
    unit = pn_counter_next(counter)
    while unit < n_blocks * step.n_kv_head:
        t0 = (n_blocks - 1 - unit // step.n_kv_head) * block     # the longest first
        kv_head = unit % step.n_kv_head
        attend(team, step, layer, t0, min(step.n_tok, t0 + block), kv_head * group, (kv_head + 1) * group, scratch)
        unit = pn_counter_next(counter)
