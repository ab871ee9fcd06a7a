"""Weights and buffers of a mixture-of-experts feed-forward (see moe_weights.pxd for the contract)."""
from libc.stdint cimport uint8_t
from libc.string cimport memset

from pantheon._core.base.carver cimport carve, carve_floats, carver
from pantheon._core.kernels.table cimport PN_ACT_KINDS, pn_kernels_active
from pantheon._core.layers.linear cimport group_add, group_panel_bytes, input_layout, pn_group, reads_add
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

cdef void layout_rank(pn_moe_rank *rank, const pn_moe_work *work, carver *m, const pn_moe_reads *r,
                      int n_tok) noexcept nogil:
    cdef const pn_moe *moe = r.moe
    cdef size_t rows = <size_t>n_tok * moe.n_used
    memset(rank, 0, sizeof(pn_moe_rank))
    rank.logits = carve_floats(m, 1, moe.n_experts)
    rank.chosen = <int *>carve(m, moe.n_used * sizeof(int))
    rank.weights = carve_floats(m, 1, moe.n_used + 1)
    input_layout(&rank.ff, m, work.gate, &r.down, moe.n_used)
    input_layout(&rank.ff_shared, m, work.gate_shared, &r.shared, 1)
    if n_tok == 1:
        return
    rank.gathered = carve_floats(m, moe.block_tok, r.input.n)
    input_layout(&rank.gather, m, rank.gathered, &r.input, moe.block_tok)
    rank.first = <int *>carve(m, (moe.n_experts + 2) * sizeof(int))
    rank.block = <int *>carve(m, (moe.n_experts + 2) * sizeof(int))
    rank.token = <int *>carve(m, (rows + n_tok) * sizeof(int))
    rank.row = <int *>carve(m, rows * sizeof(int))


cdef size_t most_blocks(const pn_moe *moe, int n_tok) noexcept nogil:
    """Packed blocks of n_tok tokens at worst: whole ones, and one begun by each expert that has two rows or more."""
    cdef size_t rows = <size_t>n_tok * moe.n_used
    return (rows // moe.block_tok + min(<size_t>moe.n_experts, rows // 2)
            + ((n_tok + moe.block_tok - 1) // moe.block_tok if moe.n_ff_shared > 0 else 0))


cdef void moe_reads_add(pn_moe_reads *r, const pn_moe *moe) noexcept nogil:
    r.moe = moe
    reads_add(&r.input, &moe.reads, 1)
    reads_add(&r.down, &moe.down_reads, 1)
    reads_add(&r.shared, &moe.shared_reads, 1)
    r.block_bytes = max(r.block_bytes, moe.block_bytes)


cdef void moe_layout(pn_moe_work *work, carver *m, const pn_moe_reads *r, int n_tok, int n_ranks) noexcept nogil:
    cdef const pn_moe *moe = r.moe
    cdef size_t rows = <size_t>n_tok * moe.n_used
    cdef pn_moe_rank scratch
    cdef int i
    memset(work, 0, sizeof(pn_moe_work))
    work.block_bytes = r.block_bytes
    work.n_tok = n_tok
    work.logits = carve_floats(m, n_tok, moe.n_experts)
    work.shared_logit = carve_floats(m, 1, n_tok)
    work.chosen = <int *>carve(m, rows * sizeof(int))
    work.weights = carve_floats(m, 1, rows + n_tok)
    work.gate = carve_floats(m, rows, moe.n_ff)
    work.up = carve_floats(m, rows, moe.n_ff)
    work.gate_shared = carve_floats(m, n_tok, moe.n_ff_shared)
    work.up_shared = carve_floats(m, n_tok, moe.n_ff_shared)
    work.out = carve_floats(m, rows + n_tok, r.input.n)
    if n_tok > 1:
        input_layout(&work.ff, m, work.gate, &r.down, <int>rows)
        input_layout(&work.ff_shared, m, work.gate_shared, &r.shared, n_tok)
        work.packed = <uint8_t *>carve(m, most_blocks(moe, n_tok) * work.block_bytes)
    work.ranks = <pn_moe_rank *>carve(m, n_ranks * sizeof(pn_moe_rank))
    for i in range(n_ranks):
        layout_rank(&work.ranks[i] if m.base != NULL else &scratch, work, m, r, n_tok)
