"""Mixture-of-experts feed-forward (see moe.pxd for the contract)."""
from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t
from libc.string cimport memcpy, memset

import numpy as np

from pantheon._core.kernels.table cimport (
    PN_ACT_F32,
    PN_ACT_KINDS,
    PN_ACT_Q32,
    PN_PANEL,
    pn_act,
    pn_kernels,
    pn_kernels_active,
    pn_type_ops,
)
from pantheon._core.linear cimport (
    group_add,
    group_panel_bytes,
    group_product,
    input_begin,
    input_layout,
    input_prepare,
    matrix_rows,
    pn_group,
    pn_input,
    pn_team,
    team_barrier,
    team_counter,
    team_range,
)
from pantheon._core.panels cimport pack_tokens, packed_bytes, packed_tokens, panels_product, panels_step, pn_packed
from pantheon._core.phases cimport PHASE_PRODUCTS, phase_enter
from pantheon._core.pool cimport pn_counter, pn_counter_next
from pantheon._core.tensor cimport owned_calloc, pn_matrix, pn_owned

cdef enum:
    UNIT_ROWS = 128                      # rows that are taken at once when an expert has one token: long streams


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


# ---- router ----------------------------------------------------------------------------------------------------------

cdef void moe_route(const pn_kernels *k, const pn_moe *moe, float *logits, int *chosen, float *weights) noexcept nogil:
    cdef int n = 0, e, i
    cdef float total = 0
    k.softmax(logits, moe.n_experts)
    for e in range(moe.n_experts):
        if n == moe.n_used:
            if not logits[e] > logits[chosen[n - 1]]:
                continue
            n -= 1
        i = n
        while i > 0 and logits[e] > logits[chosen[i - 1]]:
            chosen[i] = chosen[i - 1]
            i -= 1
        chosen[i] = e
        n += 1
    for i in range(n):
        weights[i] = logits[chosen[i]]
        total += weights[i]
    if moe.renormalise:
        total = max(total, <float>6.103515625e-05)           # 2^-14
        for i in range(n):
            weights[i] /= total
    for i in range(n):
        weights[i] *= moe.scale


def route(logits, int n_used, bint renormalise=True, float scale=1.0):
    """The experts of one token and their weights, as two lists, from the router's logits (n_experts,).

    n_used is in 1..n_experts; renormalise and scale as in pn_moe.
    """
    values = np.array(logits, np.float32)
    cdef float[::1] v = values
    cdef int[::1] chosen
    cdef float[::1] weights
    cdef pn_moe moe
    if not 1 <= n_used <= v.shape[0]:
        raise ValueError(f"n_used is {n_used}, not in 1..{v.shape[0]}")
    chosen = np.zeros(n_used, np.intc)
    weights = np.zeros(n_used, np.float32)
    memset(&moe, 0, sizeof(moe))
    moe.n_experts = v.shape[0]
    moe.n_used = n_used
    moe.renormalise = renormalise
    moe.scale = scale
    moe_route(pn_kernels_active(), &moe, &v[0], &chosen[0], &weights[0])
    return list(chosen), list(weights)


cdef void route_token(const pn_team *team, const pn_moe *moe, const pn_moe_work *work, int t, float *logits,
                      int *chosen, float *weights) noexcept nogil:
    """Choice and weights of token t, the shared expert's behind those of the routed ones; logits: scratch."""
    cdef float gate[2]
    memcpy(logits, work.logits + <size_t>t * moe.n_experts, moe.n_experts * sizeof(float))
    moe_route(team.k, moe, logits, chosen, weights)
    if moe.n_ff_shared > 0:
        gate[0], gate[1] = work.shared_logit[t], 0
        team.k.softmax(gate, 2)                              # sigmoid
        weights[moe.n_used] = gate[0]


cdef void route_product(pn_team *team, const pn_moe *moe, const pn_input *x, const pn_moe_work *work) noexcept nogil:
    cdef float *y[2]
    cdef size_t ldy[2]
    y[0], y[1] = work.logits, work.shared_logit
    ldy[0], ldy[1] = moe.n_experts, 1
    group_product(team, &moe.router, x, y, ldy)
    team_barrier(team)


cdef void moe_prepare(const pn_team *team, const pn_moe *moe, pn_input *x, int t0, int t1) noexcept nogil:
    input_prepare(team, x, &moe.router, t0, t1)
    input_prepare(team, x, &moe.reads, t0, t1)


cdef inline void add_weighted(const pn_team *team, float *y, const float *out, float weight, bint first,
                              int n) noexcept nogil:
    if first:
        memset(y, 0, n * sizeof(float))
    team.k.scale_add(y, out, weight, n)


# ---- a single token --------------------------------------------------------------------------------------------------

cdef void single_gate_up(const pn_team *team, const pn_group *g, const pn_input *x, int r0, int r1, float *gate,
                         float *up) noexcept nogil:
    """gate = silu(gate) * up of those of an expert's features that lie in [r0, r1)."""
    r0, r1 = max(r0, 0), min(r1, g.m[0].rows)
    if r0 < r1:
        matrix_rows(&g.m[0], &x.act[<int>g.m[0].ops.act], 0, 1, r0, r1, gate, 0)
        matrix_rows(&g.m[1], &x.act[<int>g.m[1].ops.act], 0, 1, r0, r1, up, 0)
        team.k.silu_mul(gate + r0, up + r0, r1 - r0)


cdef inline void single_down(const pn_group *g, const pn_input *x, int t, int r0, int r1, float *out) noexcept nogil:
    matrix_rows(&g.m[0], &x.act[<int>g.m[0].ops.act], t, t + 1, r0, r1, out, 0)


cdef void step_single(pn_team *team, const pn_moe *moe, const pn_input *x, pn_moe_work *work, float *y) noexcept nogil:
    """One token: the ranks share the features of all chosen experts, then the rows of the result."""
    cdef pn_moe_rank *own = &work.ranks[team.rank]
    cdef int units = (moe.n_ff + 7) // 8                     # of 8 features, of a routed expert
    cdef int n = moe.n_used, n_embd = moe.reads.cols
    cdef int i, u0, u1, r0, r1
    route_product(team, moe, x, work)
    route_token(team, moe, work, 0, own.logits, own.chosen, own.weights)

    phase_enter(team.rank, PHASE_PRODUCTS)
    team_range(team, n * units + (moe.n_ff_shared + 7) // 8, 1, &u0, &u1)
    for i in range(n):
        single_gate_up(team, &moe.gate_up[own.chosen[i]], x, 8 * (u0 - i * units), 8 * (u1 - i * units),
                       work.gate + <size_t>i * moe.n_ff, work.up + <size_t>i * moe.n_ff)
    if moe.n_ff_shared > 0:
        single_gate_up(team, &moe.gate_up[moe.n_experts], x, 8 * (u0 - n * units), 8 * (u1 - n * units),
                       work.gate_shared, work.up_shared)
    team_barrier(team)

    input_prepare(team, &own.ff, &moe.down_reads, 0, n)
    if moe.n_ff_shared > 0:
        input_prepare(team, &own.ff_shared, &moe.shared_reads, 0, 1)
    phase_enter(team.rank, PHASE_PRODUCTS)
    team_range(team, n_embd, 8, &r0, &r1)
    for i in range(n if r0 < r1 else 0):
        single_down(&moe.down[own.chosen[i]], &own.ff, i, r0, r1, work.out + <size_t>i * n_embd)
        add_weighted(team, y + r0, work.out + <size_t>i * n_embd + r0, own.weights[i], i == 0, r1 - r0)
    if moe.n_ff_shared > 0 and r0 < r1:
        single_down(&moe.down[moe.n_experts], &own.ff_shared, 0, r0, r1, work.out + <size_t>n * n_embd)
        add_weighted(team, y + r0, work.out + <size_t>n * n_embd + r0, own.weights[n], False, r1 - r0)
    team_barrier(team)


# ---- several tokens --------------------------------------------------------------------------------------------------

cdef inline int rows_of(const pn_moe_rank *own, int e) noexcept nogil:
    return own.first[e + 1] - own.first[e]


cdef void group_by_expert(pn_moe_rank *own, const pn_moe *moe, const pn_moe_work *work, int n_tok) noexcept nogil:
    """Rows by expert, tokens in order within one; the shared expert's rows follow. Every rank makes its own copy."""
    cdef int n_rows = n_tok * moe.n_used, e, i
    memset(own.first, 0, (moe.n_experts + 2) * sizeof(int))
    for i in range(n_rows):
        own.first[work.chosen[i] + 1] += 1
    own.block[0] = 0
    for e in range(moe.n_experts):
        own.block[e + 1] = own.block[e]
        if own.first[e + 1] > 1:                             # a single row is not packed
            own.block[e + 1] += (own.first[e + 1] + moe.block_tok - 1) // moe.block_tok
        own.first[e + 1] += own.first[e]
    for i in range(n_rows):
        e = work.chosen[i]
        own.row[i] = own.first[e]
        own.token[own.first[e]] = i // moe.n_used
        own.first[e] += 1
    for e in range(moe.n_experts, 0, -1):
        own.first[e] = own.first[e - 1]
    own.first[0] = 0
    own.first[moe.n_experts + 1] = n_rows
    own.block[moe.n_experts + 1] = own.block[moe.n_experts]
    if moe.n_ff_shared > 0:
        own.first[moe.n_experts + 1] += n_tok
        own.block[moe.n_experts + 1] += (n_tok + moe.block_tok - 1) // moe.block_tok
        for i in range(n_tok):
            own.token[n_rows + i] = i


cdef void pack_block(const pn_team *team, const pn_group *g, const pn_input *x, int t0, int n,
                     uint8_t *packed) noexcept nogil:
    """Vectors [t0, t0 + n) of x in all packed forms of g."""
    cdef const pn_type_ops *ops
    cdef int i
    for i in range(g.n_forms):
        ops = g.m[g.form_of[i]].ops
        pack_tokens(ops, &x.act[<int>ops.act], t0, n, packed)
        packed += packed_bytes(ops, g.cols, team.k.token_step)


cdef inline void copy_vector(void *to, const void *start, int i, int t, size_t n_bytes) noexcept nogil:
    memcpy(<uint8_t *>to + i * n_bytes, <const uint8_t *>start + t * n_bytes, n_bytes)


cdef void gather_vector(pn_moe_rank *own, const pn_group *g, const pn_input *x, int i, int t) noexcept nogil:
    """Vector i of own.gather = vector t of x, in the forms that g reads."""
    cdef size_t n = x.n
    cdef const pn_act *start
    cdef pn_act *to
    cdef int k
    for k in range(PN_ACT_KINDS):
        if not g.kinds[k]:
            continue
        start = &x.act[k]
        to = &own.gather.act[k]
        if k == <int>PN_ACT_F32:
            copy_vector(own.gathered, start.f, i, t, n * sizeof(float))
        elif k == <int>PN_ACT_Q32:
            copy_vector(to.q, start.q, i, t, n * sizeof(int8_t))
            copy_vector(to.d, start.d, i, t, n // 32 * sizeof(float))
            copy_vector(to.s, start.s, i, t, n // 32 * sizeof(float))
            copy_vector(to.bsum, start.bsum, i, t, n // 32 * sizeof(int32_t))
        else:
            copy_vector(to.q, start.q, i, t, n * sizeof(int8_t))
            copy_vector(to.d, start.d, i, t, n // 256 * sizeof(float))
            copy_vector(to.sum, start.sum, i, t, n // 16 * sizeof(int16_t))


cdef int next_expert(const int *first, int unit, int e) noexcept nogil:
    """The expert, from e on, that unit belongs to; first: (n + 1,) the units before each."""
    while unit >= first[e + 1]:
        e += 1
    return e


cdef void pack_inputs(pn_team *team, const pn_moe *moe, const pn_input *x, pn_moe_work *work) noexcept nogil:
    """The inputs of all experts that have several rows, packed for their tiles."""
    cdef pn_moe_rank *own = &work.ranks[team.rank]
    cdef pn_counter *counter = team_counter(team)
    cdef int block = pn_counter_next(counter), e = 0, r0, n, i
    while block < own.block[moe.n_experts + 1]:
        e = next_expert(own.block, block, e)
        r0 = (block - own.block[e]) * moe.block_tok
        n = min(moe.block_tok, rows_of(own, e) - r0)
        for i in range(n):
            gather_vector(own, &moe.gate_up[e], x, i, own.token[own.first[e] + r0 + i])
        pack_block(team, &moe.gate_up[e], &own.gather, 0, n, work.packed + block * work.block_bytes)
        block = pn_counter_next(counter)
    team_barrier(team)


cdef void rows_product(const pn_team *team, const pn_moe_work *work, const pn_group *g, int i, int e,
                       const pn_input *x, const int *tokens, int t0, int r0, int r1, float *y,
                       size_t ldy) noexcept nogil:
    """Matrix i of g, of expert e: its rows [r0, r1) times all inputs of the expert.

    r0 and r1 are whole panels where there are several inputs and tiles: these are read packed. Else they are vectors
    tokens[..] of x, or t0 and the following where tokens is NULL.
    """
    cdef pn_moe_rank *own = &work.ranks[team.rank]
    cdef const pn_matrix *m = &g.m[i]
    cdef int n = rows_of(own, e), t, f
    cdef pn_packed packed
    if n == 1 or g.form[i] < 0:
        for t in range(n):
            matrix_rows(m, &x.act[<int>m.ops.act], tokens[t] if tokens != NULL else t0 + t,
                        (tokens[t] if tokens != NULL else t0 + t) + 1, r0, r1, y + t * ldy, ldy)
        return
    packed.n_tok = n
    packed.run_tok = team.k.token_step
    packed.run_bytes = work.block_bytes
    packed.data = work.packed + own.block[e] * work.block_bytes
    for f in range(g.form[i]):
        packed.data += packed_bytes(g.m[g.form_of[f]].ops, g.cols, packed.run_tok)
    if packed.run_bytes == packed_bytes(m.ops, g.cols, packed.run_tok):
        packed = packed_tokens(m.ops, g.cols, packed.data, n)
    panels_product(team.panel, m, &packed, r0 // PN_PANEL, (r1 + PN_PANEL - 1) // PN_PANEL, y, ldy)


cdef inline int unit_rows(const pn_moe_rank *own, const pn_group *g, int e) noexcept nogil:
    """Matrix rows of expert e, whose matrices are g, that are taken at once."""
    return UNIT_ROWS if rows_of(own, e) == 1 else PN_PANEL * panels_step(&g.m[0])


cdef inline int n_units(const pn_moe_rank *own, const pn_group *g, int e, int n_rows) noexcept nogil:
    """Pieces of work of n_rows matrix rows of expert e."""
    cdef int step = unit_rows(own, g, e)
    return 0 if rows_of(own, e) == 0 else (n_rows + step - 1) // step


cdef void gate_and_up(pn_team *team, const pn_moe *moe, const pn_input *x, pn_moe_work *work) noexcept nogil:
    """silu(gate) * up of all rows, in work.gate."""
    cdef pn_moe_rank *own = &work.ranks[team.rank]
    cdef pn_counter *counter = team_counter(team)
    cdef int unit = pn_counter_next(counter), before = 0, e, r0, r1, t, ff
    cdef const int *tokens
    cdef float *gate
    cdef float *up
    phase_enter(team.rank, PHASE_PRODUCTS)
    for e in range(moe.n_experts + (moe.n_ff_shared > 0)):
        ff = moe.n_ff if e < moe.n_experts else moe.n_ff_shared
        gate = work.gate + <size_t>own.first[e] * moe.n_ff if e < moe.n_experts else work.gate_shared
        up = work.up + <size_t>own.first[e] * moe.n_ff if e < moe.n_experts else work.up_shared
        tokens = own.token + own.first[e]
        while unit - before < n_units(own, &moe.gate_up[e], e, ff):
            r0 = (unit - before) * unit_rows(own, &moe.gate_up[e], e)
            r1 = min(r0 + unit_rows(own, &moe.gate_up[e], e), ff)
            rows_product(team, work, &moe.gate_up[e], 0, e, x, tokens, 0, r0, r1, gate, ff)
            rows_product(team, work, &moe.gate_up[e], 1, e, x, tokens, 0, r0, r1, up, ff)
            for t in range(rows_of(own, e)):
                team.k.silu_mul(gate + <size_t>t * ff + r0, up + <size_t>t * ff + r0, r1 - r0)
            unit = pn_counter_next(counter)
        before += n_units(own, &moe.gate_up[e], e, ff)
    team_barrier(team)


cdef void prepare_down(pn_team *team, const pn_moe *moe, pn_moe_work *work) noexcept nogil:
    """The forms of down's inputs. A unit is one packed block, or the single row of an expert."""
    cdef pn_moe_rank *own = &work.ranks[team.rank]
    cdef pn_counter *counter = team_counter(team)
    cdef int unit = pn_counter_next(counter), before = 0, blocks, e, r0, n, t
    cdef const pn_group *reads
    cdef pn_input *x
    for e in range(moe.n_experts + (moe.n_ff_shared > 0)):
        reads = &moe.down_reads if e < moe.n_experts else &moe.shared_reads
        x = &work.ff if e < moe.n_experts else &work.ff_shared
        blocks = (rows_of(own, e) + moe.block_tok - 1) // moe.block_tok
        while unit - before < blocks:
            r0 = (unit - before) * moe.block_tok
            n = min(moe.block_tok, rows_of(own, e) - r0)
            t = r0 + (own.first[e] if e < moe.n_experts else 0)
            input_prepare(team, x, reads, t, t + n)
            if rows_of(own, e) > 1:
                pack_block(team, &moe.down[e], x, t, n, work.packed + (own.block[e] + unit - before) * work.block_bytes)
            unit = pn_counter_next(counter)
        before += blocks
    team_barrier(team)


cdef void down(pn_team *team, const pn_moe *moe, pn_moe_work *work) noexcept nogil:
    """All rows through their experts' down, in work.out."""
    cdef pn_moe_rank *own = &work.ranks[team.rank]
    cdef pn_counter *counter = team_counter(team)
    cdef int unit = pn_counter_next(counter), before = 0, n_embd = moe.reads.cols, e, r0
    phase_enter(team.rank, PHASE_PRODUCTS)
    for e in range(moe.n_experts + (moe.n_ff_shared > 0)):
        while unit - before < n_units(own, &moe.down[e], e, n_embd):
            r0 = (unit - before) * unit_rows(own, &moe.down[e], e)
            rows_product(team, work, &moe.down[e], 0, e, &work.ff if e < moe.n_experts else &work.ff_shared, NULL,
                         own.first[e] if e < moe.n_experts else 0, r0,
                         min(r0 + unit_rows(own, &moe.down[e], e), n_embd),
                         work.out + <size_t>own.first[e] * n_embd, n_embd)
            unit = pn_counter_next(counter)
        before += n_units(own, &moe.down[e], e, n_embd)
    team_barrier(team)


cdef void step_several(pn_team *team, const pn_moe *moe, const pn_input *x, pn_moe_work *work, float *y, int t0,
                       int t1) noexcept nogil:
    cdef pn_moe_rank *own = &work.ranks[team.rank]
    cdef size_t n_embd = moe.reads.cols
    cdef const float *weights
    cdef int t, i
    route_product(team, moe, x, work)
    for t in range(t0, t1):
        route_token(team, moe, work, t, own.logits, work.chosen + <size_t>t * moe.n_used,
                    work.weights + <size_t>t * (moe.n_used + 1))
    team_barrier(team)
    group_by_expert(own, moe, work, x.n_tok)
    pack_inputs(team, moe, x, work)
    gate_and_up(team, moe, x, work)
    prepare_down(team, moe, work)
    down(team, moe, work)
    for t in range(t0, t1):
        weights = work.weights + <size_t>t * (moe.n_used + 1)
        for i in range(moe.n_used):
            add_weighted(team, y + t * n_embd, work.out + own.row[t * moe.n_used + i] * n_embd, weights[i], i == 0,
                         moe.reads.cols)
        if moe.n_ff_shared > 0:
            add_weighted(team, y + t * n_embd, work.out + (own.first[moe.n_experts] + <size_t>t) * n_embd,
                         weights[moe.n_used], False, moe.reads.cols)


cdef void moe_step(pn_team *team, const pn_moe *moe, const pn_input *x, pn_moe_work *work, float *y, int t0,
                   int t1) noexcept nogil:
    if x.n_tok == 1:
        step_single(team, moe, x, work, y)
    else:
        step_several(team, moe, x, work, y, t0, t1)
