# Weights of a mixture-of-experts feed-forward, and the buffers of a run through it.
from libc.stdint cimport uint8_t

from pantheon._core.base.carver cimport carver
from pantheon._core.layers.linear cimport pn_group, pn_input, pn_reads
from pantheon._core.layers.matrix cimport pn_matrix, pn_owned

cdef struct pn_moe:                      # weights of one layer
    int n_experts
    int n_used                           # experts of a token
    int n_ff                             # width of a routed expert
    int n_ff_shared                      # width of the shared expert, 0 = none
    bint renormalise                     # weights of the chosen experts are divided by their sum
    float scale                          # multiplies the weights of routed experts
    pn_group router                      # (n_experts, n_embd); then the shared expert's gate (1, n_embd)
    pn_group *gate_up                    # (n_experts + 1,) gate and up (n_ff, n_embd); the last is the shared expert
    pn_group *down                       # (n_experts + 1,) (n_embd, n_ff)
    pn_group reads                       # no matrices: the unpacked forms of the input that experts read
    pn_group down_reads                  # the same of down's input, routed experts
    pn_group shared_reads                # the same of down's input, shared expert
    size_t panel_bytes                   # most that an unpacked panel of any matrix here needs
    int block_tok                        # inputs of one expert that are packed together: the level's token_step
    size_t block_bytes                   # most that block_tok packed inputs of one expert need

cdef struct pn_moe_rank:                 # private to one rank
    float *logits                        # (n_experts,)
    int *chosen                          # (n_used,)
    float *weights                       # (n_used + 1,)
    pn_input ff                          # input of down for a single token: n_used vectors
    pn_input ff_shared                   # the same, one vector
    pn_input gather                      # block_tok inputs of one expert
    float *gathered                      # (block_tok, n_embd), what gather reads
    int *first                           # (n_experts + 2,) first row of each expert
    int *block                           # (n_experts + 2,) first packed block of each expert
    int *token                           # (n_rows,) token of each row
    int *row                             # (n_tok, n_used) row of each choice

# Buffers of one run, used by one layer after the other; n_rows = n_tok * n_used.
cdef struct pn_moe_work:
    int n_tok                            # most tokens
    float *logits                        # (n_tok, n_experts)
    float *shared_logit                  # (n_tok,)
    int *chosen                          # (n_tok, n_used)
    float *weights                       # (n_tok, n_used + 1), the shared expert's last
    float *gate                          # (n_rows, n_ff)
    float *up                            # (n_rows, n_ff)
    float *gate_shared                   # (n_tok, n_ff_shared)
    float *up_shared                     # (n_tok, n_ff_shared)
    float *out                           # (n_rows + n_tok, n_embd)
    pn_input ff                          # input of down, n_rows vectors
    pn_input ff_shared                   # the same, n_tok vectors
    size_t block_bytes
    uint8_t *packed                      # (blocks, block_bytes)
    pn_moe_rank *ranks                   # (n_ranks,)

cdef struct pn_moe_reads:                # what the layers with experts read, all of them together
    const pn_moe *moe                    # one of them, since their sizes are the same; NULL: there is none
    pn_reads input
    pn_reads down                        # of the routed experts' down
    pn_reads shared                      # of the shared expert's down
    size_t block_bytes                   # most of any layer

# GIL; MemoryError. An empty layer; its arrays die with `owned`.
cdef int moe_init(pn_moe *moe, pn_owned *owned, int n_embd, int n_experts, int n_used, int n_ff, int n_ff_shared,
                  bint renormalise, float scale) except -1
# nogil. Matrices of the layer, views that outlive it. shared_gate belongs to a shared expert: NULL without one.
cdef void moe_set_router(pn_moe *moe, const pn_matrix *router, const pn_matrix *shared_gate) noexcept nogil
# nogil. Expert e; e == n_experts is the shared one.
cdef void moe_set_expert(pn_moe *moe, int e, const pn_matrix *gate, const pn_matrix *up,
                         const pn_matrix *down) noexcept nogil
# nogil. Adds a layer to what the buffers are for.
cdef void moe_reads_add(pn_moe_reads *r, const pn_moe *moe) noexcept nogil
# nogil. Carves the buffers of a run of up to n_tok tokens of n_ranks ranks. The layers' input, laid out by its owner,
# must hold the forms of `router` and `reads`.
cdef void moe_layout(pn_moe_work *work, carver *m, const pn_moe_reads *r, int n_tok, int n_ranks) noexcept nogil
