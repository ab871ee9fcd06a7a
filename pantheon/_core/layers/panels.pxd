# Matrix products with several packed tokens, panel by panel: PN_PANEL rows are unpacked once and multiplied with every
# token. Levels whose tiles take several panels get them in pairs, or, where rows are long, by parts of their columns,
# so that a second cache holds what is read again and again.
from libc.stdint cimport uint8_t

from pantheon._core.kernels.table cimport pn_act, pn_type_ops
from pantheon._core.layers.matrix cimport pn_matrix

cdef struct pn_packed:                   # packed tokens: runs of run_tok of them, run_bytes apart
    const uint8_t *data
    int n_tok
    int run_tok                          # a multiple of the type's pack_tok
    size_t run_bytes

# nogil. Bytes of n_tok packed vectors of n elements; packs tokens [t0, t0 + n_tok) of x.
cdef size_t packed_bytes(const pn_type_ops *ops, int n, int n_tok) noexcept nogil
cdef void pack_tokens(const pn_type_ops *ops, const pn_act *x, int t0, int n_tok, uint8_t *packed) noexcept nogil
# nogil. A view of tokens that lie together.
cdef pn_packed packed_tokens(const pn_type_ops *ops, int n, const uint8_t *data, int n_tok) noexcept nogil
# nogil. Bytes of scratch for the unpacked panels of a type, for rows of n elements; 0 for one without tiles.
cdef size_t panels_scratch(const pn_type_ops *ops, int n) noexcept nogil
# nogil. Panels that are best taken at once.
cdef int panels_step(const pn_matrix *m) noexcept nogil
# nogil. y[t * ldy + r] = row r . token t for the rows r of panels [p0, p1) of a matrix with tiles. scratch:
# panels_scratch bytes, 64-byte aligned.
cdef void panels_product(uint8_t *scratch, const pn_matrix *m, const pn_packed *x, int p0, int p1, float *y,
                         size_t ldy) noexcept nogil
