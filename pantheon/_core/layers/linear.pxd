# Matrix products of one step, run by all ranks of a team together.
#
# A group is the matrices that read the same input (q, k, v; gate, up). Its input is prepared once: quantised in the
# forms that the group's types want and, for several tokens, packed for their tiles. Then every rank takes its share of
# the rows: a fixed one for a single token (reads at full bandwidth from far streams), panels as it becomes free for
# several. The bits of a result depend on neither.
from libc.stdint cimport uint8_t

from pantheon._core.base.carver cimport carver
from pantheon._core.base.pool cimport pn_counter
from pantheon._core.kernels.table cimport PN_ACT_KINDS, pn_act, pn_kernels, pn_type_ops
from pantheon._core.layers.matrix cimport pn_matrix
from pantheon._core.types cimport fw_pool

cdef enum:
    GROUP_MAX = 4                        # matrices of a group

cdef struct pn_group:
    pn_matrix m[GROUP_MAX]
    int n
    int cols                             # input features
    bint kinds[PN_ACT_KINDS]             # forms of the input that are read without tiles
    int form[GROUP_MAX]                  # packed form that each matrix reads; -1: it has no tiles
    int n_forms
    bint scattered                       # a rank's share of a single-token product is no range of rows
    int form_of[GROUP_MAX]               # the matrix whose pack_x makes form i

cdef struct pn_team:                     # one rank's view of a run
    const pn_kernels *k
    fw_pool *pool
    int rank
    int n                                # ranks
    pn_counter *counters                 # (n_counters,) zero when the run begins, shared by the ranks
    int next_counter
    uint8_t *panel                       # this rank's scratch for unpacked panels, 64-byte aligned

cdef struct pn_input:                    # one matrix input: n_tok vectors, in all forms
    int n                                # elements of a vector
    int n_tok
    float *f                             # (n_tok, n), the caller's
    pn_act act[PN_ACT_KINDS]
    uint8_t *packed[GROUP_MAX]           # tiles of pack_tok tokens each

cdef struct pn_reads:                    # what all groups that read one input read of it
    int n                                # elements of a vector; 0: nobody reads it
    bint kinds[PN_ACT_KINDS]
    size_t packed[GROUP_MAX]             # bytes of each packed form of all vectors

# nogil. Adds a matrix that exists; computes the group's forms.
cdef void group_add(pn_group *g, const pn_matrix *m) noexcept nogil
# nogil. Most scratch that panels of the group's types need.
cdef size_t group_panel_bytes(const pn_group *g) noexcept nogil
# nogil. Adds what g reads of an input of up to n_tok vectors.
cdef void reads_add(pn_reads *r, const pn_group *g, int n_tok) noexcept nogil
# nogil. Carves the forms of up to n_tok vectors f (n_tok, n) that are read; begun for all of them.
cdef void input_layout(pn_input *x, carver *m, float *f, const pn_reads *r, int n_tok) noexcept nogil
# nogil. Sets the token count of the step about to run; not more than was laid out.
cdef void input_begin(pn_input *x, int n_tok) noexcept nogil
# nogil. Makes the forms of tokens [t0, t1) that g reads: input_quantize, then input_pack. t0 is a multiple of the
# level's token_step, as team_tokens gives it.
cdef void input_prepare(const pn_team *team, pn_input *x, const pn_group *g, int t0, int t1) noexcept nogil
cdef void input_quantize(const pn_team *team, pn_input *x, const pn_group *g, int t0, int t1) noexcept nogil
cdef void input_pack(pn_input *x, const pn_group *g, int t0, int t1) noexcept nogil
# nogil. y[i][t * ldy[i] + r] = row r of matrix i . token t: this rank's share. The next barrier makes it whole.
cdef void group_product(pn_team *team, const pn_group *g, const pn_input *x, float **y,
                        const size_t *ldy) noexcept nogil
# nogil. y[t * ldy + r] for the rows r of panels [p0, p1), of PN_PANEL rows each, of one matrix of a group, every token.
cdef void matrix_panels(const pn_team *team, const pn_matrix *m, const pn_input *x, int form, int p0, int p1, float *y,
                        size_t ldy) noexcept nogil
# nogil. Pulls the first lines of this rank's share of a single-token product into the cache.
cdef void group_prefetch(const pn_team *team, const pn_group *g) noexcept nogil

# The pieces of a product, for steps that share out the work themselves (moe.pxd).
# nogil. y[(t - t0) * ldy + r] = row r of m . token t of x for rows [r0, r1) and tokens [t0, t1), straight from the
# file's layout.
cdef void matrix_rows(const pn_matrix *m, const pn_act *x, int t0, int t1, int r0, int r1, float *y,
                      size_t ldy) noexcept nogil

# nogil. This rank's part [a, b) of n things, cut at multiples of unit; of n tokens, at multiples of token_step.
cdef void team_range(const pn_team *team, int n, int unit, int *a, int *b) noexcept nogil
cdef void team_tokens(const pn_team *team, int n, int *a, int *b) noexcept nogil
cdef void team_barrier(const pn_team *team) noexcept nogil
cdef pn_counter *team_counter(pn_team *team) noexcept nogil
