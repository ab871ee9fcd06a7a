"""The first half of a gated MLP for several tokens (see gated.pxd for the contract)."""
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from pantheon._core.base.phases cimport PHASE_PRODUCTS, PHASE_VECTORS, phase_enter
from pantheon._core.base.pool cimport pn_counter, pn_counter_next
from pantheon._core.kernels.table cimport PN_ACT_F32, PN_ACT_KINDS, PN_ACT_Q32, PN_PANEL, pn_act
from pantheon._core.layers.linear cimport matrix_panels, pn_group, pn_input, pn_team, team_counter

cdef enum:
    BLOCK = 256                          # columns: whole blocks of every weight type


cdef size_t gated_scratch(int n_tok) noexcept nogil:
    return 2 * <size_t>BLOCK * n_tok * sizeof(float)


cdef void quantize_columns(const pn_team *team, const pn_act *act, int kind, int t, int c0, int width,
                           const float *values) noexcept nogil:
    """Columns [c0, c0 + width) of token t, of which values are the floats."""
    cdef pn_act part = act[0]
    cdef size_t first = <size_t>t * act.n + c0
    part.n = width
    part.n_tok = 1
    part.f = values
    part.q += first
    if kind == <int>PN_ACT_Q32:
        part.d += first // 32
        part.s += first // 32
        part.bsum += first // 32
    else:
        part.d += first // 256
        part.sum += first // 16
    team.k.quantize[kind](&part, 0)


cdef void gated_block(pn_team *team, const pn_group *gate_up, const pn_input *x, const float *gate_bias,
                      const float *up_bias, const pn_group *down, pn_input *ff, int c0, int width,
                      float *gate, float *up) noexcept nogil:
    """Columns [c0, c0 + width); gate, up: (n_tok, BLOCK) scratch."""
    cdef int p0, p1, t, kind
    p0, p1 = c0 // PN_PANEL, (c0 + width + PN_PANEL - 1) // PN_PANEL
    matrix_panels(team, &gate_up.m[0], x, gate_up.form[0], p0, p1, gate - c0, BLOCK)
    matrix_panels(team, &gate_up.m[1], x, gate_up.form[1], p0, p1, up - c0, BLOCK)
    for t in range(x.n_tok):
        if gate_bias != NULL:
            team.k.add(gate + t * BLOCK, gate_bias + c0, width)
        if up_bias != NULL:
            team.k.add(up + t * BLOCK, up_bias + c0, width)
        team.k.silu_mul(gate + t * BLOCK, up + t * BLOCK, width)
        for kind in range(PN_ACT_KINDS):
            if not down.kinds[kind]:
                continue
            if kind == <int>PN_ACT_F32:
                memcpy(ff.f + <size_t>t * ff.n + c0, gate + t * BLOCK, width * sizeof(float))
            else:
                quantize_columns(team, &ff.act[kind], kind, t, c0, width, gate + t * BLOCK)


cdef void gated_product(pn_team *team, const pn_group *gate_up, const pn_input *x, const float *gate_bias,
                        const float *up_bias, const pn_group *down, pn_input *ff, uint8_t *scratch) noexcept nogil:
    cdef pn_counter *counter = team_counter(team)
    cdef float *gate = <float *>scratch
    cdef float *up = gate + <size_t>BLOCK * x.n_tok
    cdef int n_blocks = (ff.n + BLOCK - 1) // BLOCK
    cdef int b = pn_counter_next(counter)
    phase_enter(team.rank, PHASE_PRODUCTS)
    while b < n_blocks:
        gated_block(team, gate_up, x, gate_bias, up_bias, down, ff, b * BLOCK, min(<int>BLOCK, ff.n - b * BLOCK),
                    gate, up)
        b = pn_counter_next(counter)
    phase_enter(team.rank, PHASE_VECTORS)
