"""Matrix products with several packed tokens (see panels.pxd for the contract)."""
from libc.stdint cimport uint8_t

from pantheon._core.base.carver cimport aligned
from pantheon._core.kernels.table cimport PN_PANEL, PN_TILE_TOK, pn_act, pn_type_ops
from pantheon._core.layers.matrix cimport pn_matrix

cdef extern from *:
    """
    /* Reads a word of every line of rows as 8 streams far apart, which is how memory gives most; rows % 8 == 0. */
    static inline void pn_bring_rows(const unsigned char *rows, size_t row_bytes, size_t n, int n_rows)
    {
        for (int r = 0; r < n_rows / 8; r++)
            for (size_t at = 0; at < n; at += 64)
                for (int s = 0; s < 8; s++)
                    (void)*(const volatile unsigned char *)(rows + (size_t)(s * (n_rows / 8) + r) * row_bytes + at);
    }
    """
    void pn_bring_rows(const uint8_t *rows, size_t row_bytes, size_t n, int n_rows) nogil

cdef enum:
    PART_COLS = 2048                     # columns of a part, whose input and panels a second cache holds
    PART_PANELS = 4                      # panels for which the input of a part is read once where there are several,
    PAIR_PANELS = 2                      # and where there is one;
    SHORT_COLS = 512                     # but rows so short that a pair would be too little work at once
    SHORT_PANELS = 8


# ---- packed tokens ---------------------------------------------------------------------------------------------------

cdef size_t packed_bytes(const pn_type_ops *ops, int n, int n_tok) noexcept nogil:
    return <size_t>((n_tok + ops.pack_tok - 1) // ops.pack_tok) * aligned(ops.pack_bytes(n, ops.pack_tok))


cdef void pack_tokens(const pn_type_ops *ops, const pn_act *x, int t0, int n_tok, uint8_t *packed) noexcept nogil:
    cdef int t = 0
    while t < n_tok:
        ops.pack_x(x, t0 + t, min(ops.pack_tok, n_tok - t), packed + packed_bytes(ops, x.n, t))
        t += ops.pack_tok


cdef pn_packed packed_tokens(const pn_type_ops *ops, int n, const uint8_t *data, int n_tok) noexcept nogil:
    cdef pn_packed x
    x.data = data
    x.n_tok = n_tok
    x.run_tok = ops.tile_tok
    x.run_bytes = packed_bytes(ops, n, ops.tile_tok)
    return x


cdef inline int tile_of(const pn_packed *x, const pn_matrix *m, int t, const uint8_t **packed) noexcept nogil:
    """Where token t lies, which begins a tile, and how many tokens that tile has."""
    cdef int within = t % x.run_tok
    packed[0] = x.data + <size_t>(t // x.run_tok) * x.run_bytes + packed_bytes(m.ops, m.cols, within)
    return min(m.ops.tile_tok, min(x.run_tok - within, x.n_tok - t))


# ---- panels ----------------------------------------------------------------------------------------------------------

cdef size_t panels_scratch(const pn_type_ops *ops, int n) noexcept nogil:
    cdef size_t most
    if ops.tile == NULL:
        return 0
    most = ops.panel_bytes(n)
    if ops.tile_part != NULL:
        most = max(most, step_of(n) * aligned(ops.panel_bytes(min(<int>PART_COLS, n))))
    return most


cdef inline int step_of(int cols) noexcept nogil:
    return PART_PANELS if cols > PART_COLS else SHORT_PANELS if cols <= SHORT_COLS else PAIR_PANELS


cdef int panels_step(const pn_matrix *m) noexcept nogil:
    if m.ops.tile_part == NULL:
        return 1
    return step_of(m.cols)


cdef void scale_rows(const pn_matrix *m, int n_tok, int r0, int r1, float *y, size_t ldy) noexcept nogil:
    """Types with tiles have the scales of blocks and of input in them; a matrix may have one of its own."""
    cdef int r, t
    if m.scale == 0:
        return
    for t in range(n_tok):
        for r in range(r0, r1):
            y[t * ldy + r] *= m.scale


cdef void one_panel(uint8_t *scratch, const pn_matrix *m, const pn_packed *x, int p, float *y,
                    size_t ldy) noexcept nogil:
    cdef const pn_type_ops *ops = m.ops
    cdef const uint8_t *packed
    cdef int r0 = p * PN_PANEL, n_rows = min(<int>PN_PANEL, m.rows - r0), t = 0, i, j, n
    cdef float edge[PN_TILE_TOK * 16]    # of the last panel, which may have fewer rows
    ops.unpack(m.data + <size_t>r0 * m.row_bytes, m.row_bytes, n_rows, m.cols, scratch)
    while t < x.n_tok:
        n = tile_of(x, m, t, &packed)
        if n_rows == PN_PANEL:
            ops.tile(scratch, packed, m.cols, n, y + t * ldy + r0, ldy)
        else:
            ops.tile(scratch, packed, m.cols, n, edge, PN_PANEL)
            for i in range(n):
                for j in range(n_rows):
                    y[(t + i) * ldy + r0 + j] = edge[i * PN_PANEL + j]
        t += n


cdef void whole_panels(uint8_t *scratch, const pn_matrix *m, const pn_packed *x, int p0, int p1, float *y,
                       size_t ldy) noexcept nogil:
    """Not more than panels_step panels, PART_COLS columns at a time."""
    cdef const pn_type_ops *ops = m.ops
    cdef const uint8_t *packed
    cdef const uint8_t *rows
    cdef int k = 0, n, p, t, n_tok
    while k < m.cols:
        n = min(<int>PART_COLS, m.cols - k)
        rows = m.data + <size_t>p0 * PN_PANEL * m.row_bytes + <size_t>(k // ops.block) * ops.block_bytes
        pn_bring_rows(rows, m.row_bytes, <size_t>(n // ops.block) * ops.block_bytes, (p1 - p0) * PN_PANEL)
        for p in range(p1 - p0):
            ops.unpack(rows + <size_t>p * PN_PANEL * m.row_bytes, m.row_bytes, PN_PANEL, n,
                       scratch + p * ops.panel_bytes(n))
        t = 0
        while t < x.n_tok:
            n_tok = tile_of(x, m, t, &packed)
            ops.tile_part(scratch, p1 - p0, packed, m.cols, k, n, n_tok, y + t * ldy + p0 * PN_PANEL, ldy)
            t += n_tok
        k += n


cdef void panels_product(uint8_t *scratch, const pn_matrix *m, const pn_packed *x, int p0, int p1, float *y,
                         size_t ldy) noexcept nogil:
    cdef int step = panels_step(m), p = p0, end
    while p < p1:
        end = min(p + step, min(p1, m.rows // PN_PANEL))     # whole panels
        if step > 1 and end > p:
            whole_panels(scratch, m, x, p, end, y, ldy)
        else:
            end = p + 1
            one_panel(scratch, m, x, p, y, ldy)
        p = end
    scale_rows(m, x.n_tok, p0 * PN_PANEL, min(p1 * PN_PANEL, m.rows), y, ldy)
