# The frame of a run: what every architecture does around its layers.
#
# A run is one pass over the weights, executed by all ranks of the pool together (linear.pxd): of a single token, of a
# chunk of a prompt, or of one token each of several sequences. Here are the loops that cut prompts and batches into
# runs, the checks before them, and what the ranks do before the first layer and between two; what a layer is, and what
# a sequence keeps, is the architecture's.
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from pantheon._core.arch.ops cimport pn_run_sizes
from pantheon._core.base.pool cimport fw_task, pn_counter
from pantheon._core.kernels.table cimport pn_kernels
from pantheon._core.layers.linear cimport pn_team
from pantheon._core.layers.matrix cimport pn_matrix
from pantheon._core.types cimport pn_model, pn_state, tm_tensor

cdef struct pn_run:
    pn_model *model
    const uint32_t *tokens               # (n_tok,)
    const float *embd_override           # (n_embd,) or NULL: in place of the only token's row
    int n_tok
    int first_out                        # logits are wanted for tokens first_out.. to the last
    float *logits                        # (n_tok - first_out, n_vocab)
    bint stop                            # set by rank 0 when the caller wants to stop

cdef struct pn_run_ops:                  # an architecture's part; a job is its own struct, on the caller's stack
    int window                           # most tokens of a run, of any model
    # What every rank does. Of several tokens it may stop between two layers.
    fw_task task
    # Takes the model's work buffers for the run and fills the job; 0, or -1 with pn_last_error().
    int (*begin)(void *job, pn_run *run) noexcept nogil
    # The run's tokens from `first` on are the next n of this state.
    void (*add)(void *job, pn_state *state, int first, int n) noexcept nogil
    # The state has taken n tokens.
    void (*advance)(pn_state *state, int n) noexcept nogil
    # Positions that fit into the state.
    int (*n_ctx)(const pn_state *state) noexcept nogil
    # Whether a run was stopped and left the state between two positions. NULL: that cannot be.
    bint (*broken)(const pn_state *state) noexcept nogil

# nogil. Of the passes that calls of these sizes are cut into: returns the tokens of the largest prefill pass; *n_tok is
# the most tokens of any pass, *n_out the most whose logits are wanted.
cdef int run_pass(const pn_run_ops *ops, const pn_model *model, const pn_run_sizes *sizes, int *n_tok,
                  int *n_out) noexcept nogil
# nogil. Refuses no state or another model's, a token outside the vocabulary, n more positions than fit, and a broken
# state; 0, or -1.
cdef int run_check(const pn_run_ops *ops, const pn_model *model, uint32_t token, const pn_state *state,
                   int n) noexcept nogil
# nogil. 0, or -1 when somebody has cut short a file that the weights are views into. Asked before each run.
cdef int run_check_files(const pn_model *model) noexcept nogil
# nogil. A run of n_tok tokens, without override.
cdef pn_run run_of(pn_model *model, const uint32_t *tokens, int n_tok, int first_out, float *logits) noexcept nogil
# nogil. Executes a run whose job is filled; 0, or -1 when it was interrupted.
cdef int run_execute(const pn_run_ops *ops, void *job, pn_run *run) noexcept nogil
# nogil. prefill and forward_batch of pn_arch_ops.
cdef int run_prefill(const pn_run_ops *ops, void *job, pn_model *model, const uint32_t *tokens, int n, pn_state *state,
                     float *logits_out, bint all) noexcept nogil
cdef int run_batch(const pn_run_ops *ops, void *job, pn_model *model, const uint32_t *tokens, pn_state **states, int n,
                   float *logits_out) noexcept nogil

# Inside a task, nogil.
# One rank's team; counters are shared by the ranks, panel is this rank's.
cdef pn_team run_team(const pn_run *run, const pn_kernels *k, pn_counter *counters, uint8_t *panel, int rank,
                      int n) noexcept nogil
# Whether all ranks stop here, between two layers of several tokens; they meet.
cdef bint run_stopped(pn_run *run, const pn_team *team) noexcept nogil

# x (n_embd,) = what the model reads for token t.
cdef inline void run_embed(const pn_run *run, const pn_matrix *embd, int t, float *x) noexcept nogil:
    if run.embd_override != NULL:
        memcpy(x, run.embd_override, embd.cols * sizeof(float))
    else:
        embd.ops.dequant(embd.data + run.tokens[t] * embd.row_bytes, x, embd.cols)

# nogil. Work buffers of `need` bytes of zeros in place of those of *bytes; NULL with pn_last_error() when there is no
# memory for n_tok tokens, and then there are none.
cdef void *run_memory(void **memory, size_t *bytes, size_t need, int n_tok) noexcept nogil
# nogil. A view of (n_vocab,) f32.
cdef void logits_view(tm_tensor *t, float *logits, int n_vocab) noexcept nogil
