"""Weights and buffers of a mixture-of-experts feed-forward (see moe_weights.pxd for the contract)."""
from libc.stdint cimport uint8_t
from libc.string cimport memset

from pantheon._core.kernels.table cimport PN_ACT_KINDS, pn_kernels_active
from pantheon._core.layers.linear cimport group_add, group_panel_bytes, input_begin, input_layout, pn_group, pn_input
from pantheon._core.layers.matrix cimport owned_calloc, pn_matrix, pn_owned
from pantheon._core.layers.panels cimport packed_bytes


# ---- weights ---------------------------------------------------------------------------------------------------------

cdef int moe_init(pn_moe *moe, pn_owned *owned, int n_embd, int n_experts, int n_used, int n_ff, int n_ff_shared,
                  bint renormalise, float scale) except -1:
    memset(moe, 0, sizeof(pn_moe))
    moe.n_experts = n_experts
    moe.block_tok = pn_kernels_active().token_step
    moe.n_used = n_used
    moe.n_ff = n_ff
    moe.n_ff_shared = n_ff_shared
    moe.renormalise = renormalise
    moe.scale = scale
    moe.reads.cols = n_embd
    moe.down_reads.cols = n_ff
    moe.shared_reads.cols = n_ff_shared
    moe.gate_up = <pn_group *>owned_calloc(owned, (n_experts + <size_t>1) * sizeof(pn_group))
    moe.down = <pn_group *>owned_calloc(owned, (n_experts + <size_t>1) * sizeof(pn_group))
    return 0


cdef void moe_set_router(pn_moe *moe, const pn_matrix *router, const pn_matrix *shared_gate) noexcept nogil:
    group_add(&moe.router, router)
    if shared_gate != NULL:
        group_add(&moe.router, shared_gate)
    moe.panel_bytes = max(moe.panel_bytes, group_panel_bytes(&moe.router))


cdef size_t block_bytes(const pn_group *g, int n_tok) noexcept nogil:
    """Bytes of n_tok packed inputs in all forms of g."""
    cdef size_t n = 0
    cdef int i
    for i in range(g.n_forms):
        n += packed_bytes(g.m[g.form_of[i]].ops, g.cols, n_tok)
    return n


cdef void count_in(pn_moe *moe, const pn_group *g, pn_group *reads) noexcept nogil:
    cdef int k
    for k in range(PN_ACT_KINDS):
        reads.kinds[k] = reads.kinds[k] or g.kinds[k]
    moe.panel_bytes = max(moe.panel_bytes, group_panel_bytes(g))
    moe.block_bytes = max(moe.block_bytes, block_bytes(g, moe.block_tok))


cdef void moe_set_expert(pn_moe *moe, int e, const pn_matrix *gate, const pn_matrix *up,
                         const pn_matrix *down) noexcept nogil:
    group_add(&moe.gate_up[e], gate)
    group_add(&moe.gate_up[e], up)
    group_add(&moe.down[e], down)
    count_in(moe, &moe.gate_up[e], &moe.reads)
    count_in(moe, &moe.down[e], &moe.down_reads if e < moe.n_experts else &moe.shared_reads)


# ---- buffers ---------------------------------------------------------------------------------------------------------

cdef inline void *carve(uint8_t *base, size_t *used, size_t n) noexcept nogil:
    cdef void *p = base + used[0] if base != NULL else NULL
    used[0] += (n + 63) // 64 * 64
    return p


cdef void layout_ff(pn_input *x, uint8_t *base, size_t *used, float *f, const pn_group *reads, int n) noexcept nogil:
    """The forms of n vectors f, each as wide as `reads` says."""
    if reads.cols > 0:
        used[0] += input_layout(x, base + used[0] if base != NULL else NULL, f, &reads, 1, n)
        input_begin(x, n)


cdef void layout_rank(pn_moe_rank *rank, const pn_moe_work *work, uint8_t *base, size_t *used, const pn_moe *moe,
                      const pn_group *reads, int n_tok) noexcept nogil:
    """moe gives the sizes; reads: of the input, of down, of the shared down, for all layers."""
    cdef size_t rows = <size_t>n_tok * moe.n_used
    memset(rank, 0, sizeof(pn_moe_rank))
    rank.logits = <float *>carve(base, used, moe.n_experts * sizeof(float))
    rank.chosen = <int *>carve(base, used, moe.n_used * sizeof(int))
    rank.weights = <float *>carve(base, used, (moe.n_used + 1) * sizeof(float))
    layout_ff(&rank.ff, base, used, work.gate, &reads[1], moe.n_used)
    layout_ff(&rank.ff_shared, base, used, work.gate_shared, &reads[2], 1)
    if n_tok == 1:
        return
    rank.gathered = <float *>carve(base, used, <size_t>moe.block_tok * reads[0].cols * sizeof(float))
    layout_ff(&rank.gather, base, used, rank.gathered, &reads[0], moe.block_tok)
    rank.first = <int *>carve(base, used, (moe.n_experts + 2) * sizeof(int))
    rank.block = <int *>carve(base, used, (moe.n_experts + 2) * sizeof(int))
    rank.token = <int *>carve(base, used, (rows + n_tok) * sizeof(int))
    rank.row = <int *>carve(base, used, rows * sizeof(int))


cdef size_t most_blocks(const pn_moe *moe, int n_tok) noexcept nogil:
    """Packed blocks of n_tok tokens at worst: whole ones, and one begun by each expert that has two rows or more."""
    cdef size_t rows = <size_t>n_tok * moe.n_used
    return (rows // moe.block_tok + min(<size_t>moe.n_experts, rows // 2)
            + ((n_tok + moe.block_tok - 1) // moe.block_tok if moe.n_ff_shared > 0 else 0))


cdef size_t moe_layout(pn_moe_work *work, uint8_t *base, const pn_moe **layers, int n_layers, int n_tok,
                       int n_ranks) noexcept nogil:
    cdef const pn_moe *moe = layers[0]
    cdef size_t used = 0, rows = <size_t>n_tok * moe.n_used
    cdef size_t ff = rows * moe.n_ff * sizeof(float), ff_shared = <size_t>n_tok * moe.n_ff_shared * sizeof(float)
    cdef pn_group reads[3]
    cdef pn_moe_rank scratch
    cdef int i, k
    memset(work, 0, sizeof(pn_moe_work))
    reads[0], reads[1], reads[2] = moe.reads, moe.down_reads, moe.shared_reads
    for i in range(n_layers):
        for k in range(PN_ACT_KINDS):
            reads[0].kinds[k] = reads[0].kinds[k] or layers[i].reads.kinds[k]
            reads[1].kinds[k] = reads[1].kinds[k] or layers[i].down_reads.kinds[k]
            reads[2].kinds[k] = reads[2].kinds[k] or layers[i].shared_reads.kinds[k]
        work.block_bytes = max(work.block_bytes, layers[i].block_bytes)
    work.n_tok = n_tok
    work.logits = <float *>carve(base, &used, <size_t>n_tok * moe.n_experts * sizeof(float))
    work.shared_logit = <float *>carve(base, &used, n_tok * sizeof(float))
    work.chosen = <int *>carve(base, &used, rows * sizeof(int))
    work.weights = <float *>carve(base, &used, (rows + n_tok) * sizeof(float))
    work.gate = <float *>carve(base, &used, ff)
    work.up = <float *>carve(base, &used, ff)
    work.gate_shared = <float *>carve(base, &used, ff_shared)
    work.up_shared = <float *>carve(base, &used, ff_shared)
    work.out = <float *>carve(base, &used, (rows + n_tok) * moe.reads.cols * sizeof(float))
    if n_tok > 1:
        layout_ff(&work.ff, base, &used, work.gate, &reads[1], <int>rows)
        layout_ff(&work.ff_shared, base, &used, work.gate_shared, &reads[2], n_tok)
        work.packed = <uint8_t *>carve(base, &used, most_blocks(moe, n_tok) * work.block_bytes)
    work.ranks = <pn_moe_rank *>carve(base, &used, n_ranks * sizeof(pn_moe_rank))
    for i in range(n_ranks):
        layout_rank(&work.ranks[i] if base != NULL else &scratch, work, base, &used, moe, reads, n_tok)
    return used
