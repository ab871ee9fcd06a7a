"""Matrix products of one step, run by all ranks of a team together (see linear.pxd for the contract)."""
from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t
from libc.string cimport memset

from pantheon._core.base.carver cimport carve, carve_floats, carver
from pantheon._core.base.phases cimport PHASE_PRODUCTS, PHASE_VECTORS, PHASE_WAITING, phase_enter
from pantheon._core.base.pool cimport fw_pool_barrier, pn_counter, pn_counter_next
from pantheon._core.kernels.table cimport (
    PN_ACT_F32,
    PN_ACT_KINDS,
    PN_ACT_Q32,
    PN_ACT_Q256,
    PN_ACT_ROW,
    PN_ACT_WIDE,
    PN_PANEL,
    pn_act,
)
from pantheon._core.layers.matrix cimport pn_matrix
from pantheon._core.layers.panels cimport (
    pack_tokens,
    packed_bytes,
    packed_tokens,
    panels_product,
    panels_scratch,
    panels_step,
    pn_packed,
)

cdef extern from *:
    """
    static inline void pn_prefetch(const void *p) { __builtin_prefetch(p, 0, 3); }
    """
    void pn_prefetch(const void *p) nogil

cdef enum:
    PREFETCH_LINES = 4                   # of each of the 8 streams


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
        most = max(most, panels_scratch(g.m[i].ops, g.cols))
    return most


cdef void reads_add(pn_reads *r, const pn_group *g, int n_tok) noexcept nogil:
    cdef int k
    r.n = g.cols
    for k in range(PN_ACT_KINDS):
        r.kinds[k] = r.kinds[k] or g.kinds[k]
    for k in range(g.n_forms):
        r.packed[k] = max(r.packed[k], packed_bytes(g.m[g.form_of[k]].ops, g.cols, n_tok))


cdef void input_layout(pn_input *x, carver *m, float *f, const pn_reads *r, int n_tok) noexcept nogil:
    cdef int k, block
    cdef size_t n = r.n
    cdef pn_act *act
    memset(x, 0, sizeof(pn_input))
    x.n = r.n
    x.f = f
    for k in range(PN_ACT_KINDS):
        act = &x.act[k]
        act.n = x.n
        act.f = x.f
        if k == <int>PN_ACT_F32 or not r.kinds[k]:
            continue
        block = 32 if k == <int>PN_ACT_Q32 or k == <int>PN_ACT_WIDE else x.n if k == <int>PN_ACT_ROW else 256
        if k == <int>PN_ACT_WIDE:
            act.wide = <int16_t *>carve(m, n * n_tok * sizeof(int16_t))
        else:
            act.q = <int8_t *>carve(m, n * n_tok)
        act.d = carve_floats(m, n_tok, n // block)
        if k == <int>PN_ACT_Q32:
            act.s = carve_floats(m, n_tok, n // 32)
            act.bsum = <int32_t *>carve(m, n // 32 * n_tok * sizeof(int32_t))
        elif k == <int>PN_ACT_ROW:
            act.bsum = <int32_t *>carve(m, n_tok * sizeof(int32_t))
        elif k == <int>PN_ACT_Q256:
            act.sum = <int16_t *>carve(m, n // 16 * n_tok * sizeof(int16_t))
    for k in range(GROUP_MAX if n_tok > 1 else 0):
        x.packed[k] = <uint8_t *>carve(m, r.packed[k])
    input_begin(x, n_tok)


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
        pack_tokens(ops, &x.act[<int>ops.act], t0, t1 - t0, x.packed[i] + packed_bytes(ops, x.n, t0))


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


cdef int unit_panels(const pn_matrix *m, int form) noexcept nogil:
    """Panels that a rank takes at once."""
    return panels_step(m) if form >= 0 else 1


cdef void matrix_panels(const pn_team *team, const pn_matrix *m, const pn_input *x, int form, int p0, int p1, float *y,
                        size_t ldy) noexcept nogil:
    cdef const pn_act *act = &x.act[<int>m.ops.act]
    cdef pn_packed packed
    cdef int step
    if m.ops.packed_rows > 0:            # as many rows as panels have, which do not lie together
        step = PN_PANEL // m.ops.packed_rows
        packed_product(m, act, p0 * step, min(p1 * step, stored_rows(m)), y, ldy)
    elif form < 0:
        matrix_rows(m, act, 0, x.n_tok, p0 * PN_PANEL, min(p1 * PN_PANEL, m.rows), y, ldy)
    else:
        packed = packed_tokens(m.ops, m.cols, x.packed[form], x.n_tok)
        panels_product(team.panel, m, &packed, p0, p1, y, ldy)


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
            matrix_panels(team, &g.m[i], x, g.form[i], p, min(p + step, panels), y[i], ldy[i])
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
