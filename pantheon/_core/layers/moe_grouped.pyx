"""The experts of several tokens, grouped by expert (see moe_grouped.pxd for the contract)."""
from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t
from libc.string cimport memcpy, memset

from pantheon._core.base.phases cimport PHASE_PRODUCTS, phase_enter
from pantheon._core.base.pool cimport pn_counter, pn_counter_next
from pantheon._core.kernels.table cimport PN_ACT_F32, PN_ACT_KINDS, PN_ACT_Q32, PN_PANEL, pn_act, pn_type_ops
from pantheon._core.layers.linear cimport (
    input_prepare,
    matrix_rows,
    pn_group,
    pn_input,
    pn_team,
    team_barrier,
    team_counter,
)
from pantheon._core.layers.matrix cimport pn_matrix
from pantheon._core.layers.moe_weights cimport pn_moe, pn_moe_rank, pn_moe_work
from pantheon._core.layers.panels cimport (
    pack_tokens,
    packed_bytes,
    packed_tokens,
    panels_product,
    panels_step,
    pn_packed,
)

cdef enum:
    UNIT_ROWS = 128                      # rows that are taken at once when an expert has one token: long streams


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


cdef void grouped_experts(pn_team *team, const pn_moe *moe, const pn_input *x, pn_moe_work *work) noexcept nogil:
    group_by_expert(&work.ranks[team.rank], moe, work, x.n_tok)
    pack_inputs(team, moe, x, work)
    gate_and_up(team, moe, x, work)
    prepare_down(team, moe, work)
    down(team, moe, work)
