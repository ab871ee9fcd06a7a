"""Matrix products of one step, run by all ranks of a team together (see linear.pxd for the contract)."""
from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t
from libc.string cimport memset

from pantheon._core.kernels.table cimport (
    PN_ACT_F32,
    PN_ACT_KINDS,
    PN_ACT_Q32,
    PN_ACT_ROW,
    PN_PANEL,
    PN_TILE_TOK,
    pn_act,
    pn_type_ops,
)
from pantheon._core.phases cimport PHASE_PRODUCTS, PHASE_VECTORS, PHASE_WAITING, phase_enter
from pantheon._core.pool cimport fw_pool_barrier, pn_counter, pn_counter_next
from pantheon._core.tensor cimport pn_matrix

cdef extern from *:
    """
    static inline void pn_prefetch(const void *p) { __builtin_prefetch(p, 0, 3); }
    static inline void pn_prefetch_far(const void *p) { __builtin_prefetch(p, 0, 2); }
    """
    void pn_prefetch(const void *p) nogil
    void pn_prefetch_far(const void *p) nogil

cdef enum:
    PREFETCH_LINES = 4                   # of each of the 8 streams
    PART_COLS = 2048                     # tile_part: columns of a part, whose input and panels a second cache holds,
    PART_PANELS = 4                      # panels for which the input of a part is read once where there are several,
    PAIR_PANELS = 2                      # and where there is one


cdef inline size_t aligned(size_t n) noexcept nogil:
    return (n + 63) // 64 * 64


cdef void team_range(const pn_team *team, int n, int unit, int *a, int *b) noexcept nogil:
    cdef int units = (n + unit - 1) // unit
    a[0] = min(n, units * team.rank // team.n * unit)
    b[0] = min(n, units * (team.rank + 1) // team.n * unit)


cdef void team_tokens(const pn_team *team, int n, int *a, int *b) noexcept nogil:
    team_range(team, n, team.k.token_step, a, b)


cdef void team_barrier(const pn_team *team) noexcept nogil:
    phase_enter(team.rank, PHASE_WAITING)
    fw_pool_barrier(team.pool, team.n)
    phase_enter(team.rank, PHASE_VECTORS)


cdef pn_counter *team_counter(pn_team *team) noexcept nogil:
    team.next_counter += 1
    return &team.counters[team.next_counter - 1]


# ---- groups and inputs -----------------------------------------------------------------------------------------------

cdef void group_add(pn_group *g, const pn_matrix *m) noexcept nogil:
    cdef int i
    cdef int slot = g.n
    g.m[slot] = m[0]
    g.cols = m.cols
    g.n += 1
    g.kinds[<int>m.ops.act] = True
    g.scattered = g.scattered or m.ops.packed_rows > 0
    g.form[slot] = -1
    if m.ops.tile == NULL:
        return
    for i in range(g.n_forms):
        if g.m[g.form_of[i]].ops.pack_x == m.ops.pack_x:
            g.form[slot] = i
            return
    g.form[slot] = g.n_forms
    g.form_of[g.n_forms] = slot
    g.n_forms += 1


cdef size_t group_panel_bytes(const pn_group *g) noexcept nogil:
    cdef size_t most = 0
    cdef int i
    for i in range(g.n):
        if g.m[i].ops.tile != NULL:
            most = max(most, g.m[i].ops.panel_bytes(g.cols))
        if g.m[i].ops.tile_part != NULL:
            most = max(most, PART_PANELS * part_bytes(g.m[i].ops, g.cols))
    return most


cdef inline size_t part_bytes(const pn_type_ops *ops, int cols) noexcept nogil:
    """Bytes of a panel of some columns."""
    return aligned(ops.panel_bytes(min(<int>PART_COLS, cols)))


cdef size_t matrix_packed_bytes(const pn_type_ops *ops, int n, int n_tok) noexcept nogil:
    return <size_t>((n_tok + ops.pack_tok - 1) // ops.pack_tok) * aligned(ops.pack_bytes(n, ops.pack_tok))


cdef void matrix_pack(const pn_type_ops *ops, const pn_act *x, int t0, int n_tok, uint8_t *packed) noexcept nogil:
    cdef int t = 0
    while t < n_tok:
        ops.pack_x(x, t0 + t, min(ops.pack_tok, n_tok - t), packed + matrix_packed_bytes(ops, x.n, t))
        t += ops.pack_tok


cdef inline void *carve(uint8_t *base, size_t *used, size_t n) noexcept nogil:
    cdef void *p = base + used[0] if base != NULL else NULL
    used[0] += aligned(n)
    return p


cdef size_t input_layout(pn_input *x, uint8_t *base, float *f, const pn_group **groups, int n_groups,
                         int n_tok) noexcept nogil:
    cdef size_t used = 0, form_bytes
    cdef int i, k, block
    cdef bint wanted
    cdef size_t n = groups[0].cols
    cdef pn_act *act
    memset(x, 0, sizeof(pn_input))
    x.n = groups[0].cols
    x.f = f
    for k in range(PN_ACT_KINDS):
        wanted = False
        for i in range(n_groups):
            wanted = wanted or groups[i].kinds[k]
        act = &x.act[k]
        act.n = x.n
        act.f = x.f
        if k == <int>PN_ACT_F32 or not wanted:
            continue
        block = 32 if k == <int>PN_ACT_Q32 else x.n if k == <int>PN_ACT_ROW else 256
        act.q = <int8_t *>carve(base, &used, n * n_tok)
        act.d = <float *>carve(base, &used, n // block * n_tok * sizeof(float))
        if k == <int>PN_ACT_Q32:
            act.s = <float *>carve(base, &used, n // 32 * n_tok * sizeof(float))
            act.bsum = <int32_t *>carve(base, &used, n // 32 * n_tok * sizeof(int32_t))
        elif k == <int>PN_ACT_ROW:
            act.bsum = <int32_t *>carve(base, &used, n_tok * sizeof(int32_t))
        else:
            act.sum = <int16_t *>carve(base, &used, n // 16 * n_tok * sizeof(int16_t))
    for k in range(GROUP_MAX if n_tok > 1 else 0):
        form_bytes = 0
        for i in range(n_groups):
            if k < groups[i].n_forms:
                form_bytes = max(form_bytes,
                                 matrix_packed_bytes(groups[i].m[groups[i].form_of[k]].ops, x.n, n_tok))
        x.packed[k] = <uint8_t *>carve(base, &used, form_bytes)
    return used


cdef void input_begin(pn_input *x, int n_tok) noexcept nogil:
    cdef int k
    x.n_tok = n_tok
    for k in range(PN_ACT_KINDS):
        x.act[k].n_tok = n_tok


cdef void input_quantize(const pn_team *team, pn_input *x, const pn_group *g, int t0, int t1) noexcept nogil:
    cdef int k, t
    for k in range(PN_ACT_KINDS):
        if g.kinds[k] and k != <int>PN_ACT_F32:
            for t in range(t0, t1):
                team.k.quantize[k](&x.act[k], t)


cdef void input_pack(pn_input *x, const pn_group *g, int t0, int t1) noexcept nogil:
    cdef int i
    cdef const pn_type_ops *ops
    if x.n_tok == 1:
        return
    for i in range(g.n_forms):
        ops = g.m[g.form_of[i]].ops
        matrix_pack(ops, &x.act[<int>ops.act], t0, t1 - t0, x.packed[i] + matrix_packed_bytes(ops, x.n, t0))


cdef void input_prepare(const pn_team *team, pn_input *x, const pn_group *g, int t0, int t1) noexcept nogil:
    input_quantize(team, x, g, t0, t1)
    input_pack(x, g, t0, t1)


# ---- products --------------------------------------------------------------------------------------------------------

cdef inline int stream_rows(int rows) noexcept nogil:
    """Rows of each of the 8 streams that a share is read as: odd, since distances near a multiple of 4096 bytes
    alias."""
    cdef int g = rows // 8
    return g - 1 if g > 1 and g % 2 == 0 else g


cdef inline int stored_rows(const pn_matrix *m) noexcept nogil:
    """Rows as they lie in memory; a packed one holds several."""
    return m.rows if m.ops.packed_rows == 0 else (m.rows + m.ops.packed_rows - 1) // m.ops.packed_rows


cdef void scale_products(const pn_matrix *m, const pn_act *x, int t0, int t1, int r0, int r1, float *y,
                         size_t ldy) noexcept nogil:
    """Turns the sums of rows [r0, r1) into products, for types whose scales are not in their blocks."""
    cdef int r, t
    cdef float scale
    for t in range(t0, t1):
        scale = m.scale if m.scale != 0 else 1.0
        if m.ops.act == PN_ACT_ROW:
            scale *= x.d[t]
        for r in range(r0, r1):
            y[(t - t0) * ldy + r] *= scale


cdef void packed_product(const pn_matrix *m, const pn_act *x, int s0, int s1, float *y, size_t ldy) noexcept nogil:
    """Stored rows [s0, s1), each of which holds packed_rows rows that lie stored_rows apart, times every token."""
    cdef float several[8]
    cdef int s, t, i, r, apart = stored_rows(m)
    cdef float scale
    for s in range(s0, s1):
        for t in range(x.n_tok):
            m.ops.dot1(m.data + <size_t>s * m.row_bytes, x, t, several)
            scale = m.scale * x.d[t]
            for i in range(m.ops.packed_rows):
                r = i * apart + s
                if r < m.rows:
                    y[t * ldy + r] = several[i] * scale


cdef void matrix_rows(const pn_matrix *m, const pn_act *x, int t0, int t1, int r0, int r1, float *y,
                      size_t ldy) noexcept nogil:
    """8 streams far apart, then what is left."""
    cdef int g = stream_rows(r1 - r0)
    cdef int i, t
    cdef int r = r0 + 8 * g
    for i in range(r0, r0 + g):
        for t in range(t0, t1):
            m.ops.dot8(m.data + <size_t>i * m.row_bytes, g * m.row_bytes, x, t, y + (t - t0) * ldy + i, g)
    while r + 8 <= r1:
        for t in range(t0, t1):
            m.ops.dot8(m.data + <size_t>r * m.row_bytes, m.row_bytes, x, t, y + (t - t0) * ldy + r, 1)
        r += 8
    while r < r1:
        for t in range(t0, t1):
            m.ops.dot1(m.data + <size_t>r * m.row_bytes, x, t, y + (t - t0) * ldy + r)
        r += 1
    if m.scale != 0 or m.ops.act == PN_ACT_ROW:
        scale_products(m, x, t0, t1, r0, r1, y, ldy)


cdef void matrix_unpack(const pn_team *team, const pn_matrix *m, int p) noexcept nogil:
    m.ops.unpack(m.data + <size_t>p * PN_PANEL * m.row_bytes, m.row_bytes, min(<int>PN_PANEL, m.rows - p * PN_PANEL),
                 m.cols, team.panel)


cdef void matrix_tiles(const pn_team *team, const pn_matrix *m, int p, const uint8_t *packed, int n_tok, float *y,
                       size_t ldy) noexcept nogil:
    cdef const pn_type_ops *ops = m.ops
    cdef int r0 = p * PN_PANEL
    cdef int n_rows = min(<int>PN_PANEL, m.rows - r0)
    cdef int t = 0, i, j, n
    cdef float edge[PN_TILE_TOK * 16]
    while t < n_tok:
        n = min(ops.tile_tok, n_tok - t)
        if n_rows == PN_PANEL:
            ops.tile(team.panel, packed, m.cols, n, y + t * ldy + r0, ldy)
        else:
            ops.tile(team.panel, packed, m.cols, n, edge, PN_PANEL)
            for i in range(n):
                for j in range(n_rows):
                    y[(t + i) * ldy + r0 + j] = edge[i * PN_PANEL + j]
        packed += matrix_packed_bytes(ops, m.cols, n)
        t += n
    if m.scale != 0:                     # types with tiles have their inputs' scales in them
        scale_products(m, NULL, 0, n_tok, r0, r0 + n_rows, y, ldy)


cdef void panel_product(const pn_team *team, const pn_matrix *m, const pn_input *x, int form, int p, float *y,
                        size_t ldy) noexcept nogil:
    """One panel of PN_PANEL rows times every token; of a packed matrix as many, which do not lie together."""
    cdef int step
    if m.ops.packed_rows > 0:
        step = PN_PANEL // m.ops.packed_rows
        packed_product(m, &x.act[<int>m.ops.act], p * step, min((p + 1) * step, stored_rows(m)), y, ldy)
        return
    if form < 0:
        matrix_rows(m, &x.act[<int>m.ops.act], 0, x.n_tok, p * PN_PANEL, min(p * PN_PANEL + <int>PN_PANEL, m.rows), y,
                    ldy)
        return
    matrix_unpack(team, m, p)
    matrix_tiles(team, m, p, x.packed[form], x.n_tok, y, ldy)


cdef inline int unit_panels(const pn_matrix *m, int form) noexcept nogil:
    """Panels that a rank takes at once."""
    if form < 0 or m.ops.tile_part == NULL:
        return 1
    return PART_PANELS if m.cols > PART_COLS else PAIR_PANELS


cdef void part_prefetch(const pn_matrix *m, int p0, int p1, int k, int slice, int n_slices) noexcept nogil:
    """Pulls a slice of the rows of panels [p0, p1), PART_COLS columns from k on, into the second cache."""
    cdef int row, r0 = p0 * PN_PANEL, n_rows = min(p1 * PN_PANEL, m.rows) - r0
    cdef size_t at, begin = <size_t>(k // m.ops.block) * m.ops.block_bytes
    cdef size_t end = begin + <size_t>(min(<int>PART_COLS, m.cols - k) // m.ops.block) * m.ops.block_bytes
    cdef const uint8_t *data
    for row in range(n_rows * slice // n_slices, n_rows * (slice + 1) // n_slices):
        data = m.data + <size_t>(r0 + row) * m.row_bytes
        at = begin
        while at < end:
            pn_prefetch_far(data + at)
            at += 64


cdef void parts_product(const pn_team *team, const pn_matrix *m, const pn_input *x, int form, int p0, int p1, int after,
                        float *y, size_t ldy) noexcept nogil:
    """Panels [p0, p1), not more than PART_PANELS, times every token, columns PART_COLS by PART_COLS. While a part is
    multiplied, the weights of the next one come nearer: of the same panels, or of those from panel `after` on."""
    cdef const pn_type_ops *ops = m.ops
    cdef int k = 0, n, p, t, n_tok, next, ahead
    while k < m.cols:
        n = min(<int>PART_COLS, m.cols - k)
        next = 0 if k + n == m.cols else k + n
        for p in range(p0, p1):
            ops.unpack(m.data + <size_t>p * PN_PANEL * m.row_bytes + <size_t>(k // ops.block) * ops.block_bytes,
                       m.row_bytes, PN_PANEL, n, team.panel + (p - p0) * ops.panel_bytes(n))
        t = 0
        while t < x.n_tok:
            n_tok = min(ops.tile_tok, x.n_tok - t)
            ahead = p0 if next else after
            part_prefetch(m, ahead, ahead + p1 - p0, next, t // ops.tile_tok,
                          (x.n_tok + ops.tile_tok - 1) // ops.tile_tok)
            ops.tile_part(team.panel, p1 - p0, x.packed[form] + matrix_packed_bytes(ops, m.cols, t), m.cols, k, n,
                          n_tok, y + t * ldy + p0 * PN_PANEL, ldy)
            t += n_tok
        k += n
    if m.scale != 0:
        scale_products(m, NULL, 0, x.n_tok, p0 * PN_PANEL, p1 * PN_PANEL, y, ldy)


cdef void panels_product(const pn_team *team, const pn_matrix *m, const pn_input *x, int form, int p0, int p1,
                         int after, float *y, size_t ldy) noexcept nogil:
    cdef int n = unit_panels(m, form), p = p0, end
    while p < p1:
        end = min(p + n, min(p1, m.rows // PN_PANEL))        # whole panels
        if n > 1 and end > p:
            parts_product(team, m, x, form, p, end, end if end < p1 else after, y, ldy)
        else:
            end = p + 1
            panel_product(team, m, x, form, p, y, ldy)
        p = end


cdef void group_product(pn_team *team, const pn_group *g, const pn_input *x, float **y,
                        const size_t *ldy) noexcept nogil:
    phase_enter(team.rank, PHASE_PRODUCTS)
    group_share(team, g, x, y, ldy)
    phase_enter(team.rank, PHASE_VECTORS)


cdef void group_share(pn_team *team, const pn_group *g, const pn_input *x, float **y,
                      const size_t *ldy) noexcept nogil:
    cdef int i, r0, r1, p, panels, unit, units, before, step
    cdef pn_counter *counter
    if x.n_tok == 1:
        for i in range(g.n):
            team_range(team, stored_rows(&g.m[i]), 8, &r0, &r1)
            if g.m[i].ops.packed_rows > 0:
                packed_product(&g.m[i], &x.act[<int>g.m[i].ops.act], r0, r1, y[i], ldy[i])
                continue
            matrix_rows(&g.m[i], &x.act[<int>g.m[i].ops.act], 0, 1, r0, r1, y[i], ldy[i])
        return
    counter = team_counter(team)
    unit = pn_counter_next(counter)
    before = 0                           # units of the matrices before i
    for i in range(g.n):
        panels = (g.m[i].rows + PN_PANEL - 1) // PN_PANEL
        step = unit_panels(&g.m[i], g.form[i])
        units = (panels + step - 1) // step
        while unit - before < units:
            p = (unit - before) * step
            panels_product(team, &g.m[i], x, g.form[i], p, min(p + step, panels),
                           p + team.n * step, y[i], ldy[i])
            unit = pn_counter_next(counter)
        before += units


cdef void group_prefetch(const pn_team *team, const pn_group *g) noexcept nogil:
    cdef int r0, r1, s, line, rows
    cdef const uint8_t *stream
    team_range(team, stored_rows(&g.m[0]), 8, &r0, &r1)
    rows = stream_rows(r1 - r0)
    for s in range(8 if rows > 0 else 0):
        stream = g.m[0].data + (<size_t>r0 + <size_t>s * rows) * g.m[0].row_bytes
        for line in range(PREFETCH_LINES):
            pn_prefetch(stream + 64 * line)
