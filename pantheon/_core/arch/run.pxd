# The frame of an architecture: what all of them do around their layers.
#
# Here are the loops that cut prompts and batches into runs, the checks before them, and what the ranks do before the
# first layer, between two, and after the last. What a layer is, is the architecture's.
from libc.stdint cimport uint32_t

from pantheon._core.arch.ops cimport pn_arch_ops, pn_arch_weights, pn_run_sizes
from pantheon._core.arch.structs cimport pn_pass, pn_run
from pantheon._core.layers.linear cimport pn_group, pn_team
from pantheon._core.layers.matrix cimport pn_matrix
from pantheon._core.types cimport pn_arch, pn_cost, pn_kv_type, pn_model, pn_state, tm_tensor

# ---- the row and the weights ----

# nogil. A row in which everything is the frame's, and nothing the architecture's.
cdef pn_arch_ops run_ops(const char *name, pn_arch arch) noexcept nogil
# GIL; MemoryError. A zeroed weight struct of `size` bytes but for its pn_arch_weights.
cdef void *weights_new(const pn_arch_ops *ops, size_t size) except NULL
# nogil. Frees it and the work buffers; NULL is allowed.
cdef void weights_free(void *weights) noexcept nogil

# ---- nogil: the entries of pn_arch_ops; see there ----

cdef tm_tensor *run_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil
cdef int run_prefill(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out,
                     bint all) noexcept nogil
cdef int run_batch(pn_model *model, const uint32_t *tokens, pn_state **states, int n, float *logits_out) noexcept nogil
cdef void run_cost(const pn_model *model, pn_kv_type type, const pn_run_sizes *sizes, pn_cost *cost) noexcept nogil

# ---- nogil: their parts, for an architecture that cuts its prompts itself ----

# Most tokens of a prefill pass of this model.
cdef int run_window(const pn_model *model) noexcept nogil
# Of the passes that calls of these sizes are cut into: returns the tokens of the largest prefill pass; *n_tok is the
# most tokens of any pass, *n_out the most whose logits are wanted.
cdef int run_pass(const pn_model *model, const pn_run_sizes *sizes, int *n_tok, int *n_out) noexcept nogil
# Refuses no state or another model's, a token outside the vocabulary, n more positions than fit, and a broken state; 0,
# or -1.
cdef int run_check(const pn_model *model, uint32_t token, const pn_state *state, int n) noexcept nogil
# 0, or -1 when somebody has cut short a file that the weights are views into. Asked before each run.
cdef int run_check_files(const pn_model *model) noexcept nogil
# A run of n_tok tokens, without override.
cdef pn_run run_of(pn_model *model, const uint32_t *tokens, int n_tok, int first_out, float *logits) noexcept nogil
# Executes a run whose states are added; 0, or -1 when it was interrupted.
cdef int run_execute(pn_run *run) noexcept nogil
# The state has taken n tokens.
cdef void run_advance(pn_state *state, int n) noexcept nogil

# ---- nogil, inside a task: their parts, by all ranks together ----

# One rank's view of the run.
cdef void run_view(pn_pass *p, pn_run *run, int rank, int n) noexcept nogil
# Whether all ranks stop here, between two layers of several tokens; they meet.
cdef bint run_stopped(pn_run *run, const pn_team *team) noexcept nogil
# The residual stream of this rank's tokens = what the model reads for them.
cdef void run_embed(pn_pass *p, const pn_matrix *embd) noexcept nogil
# Residual stream += delta (n_tok, n_embd) + bias (n_embd,) or NULL, for this rank's tokens.
cdef void run_add(pn_pass *p, const float *delta, const float *bias) noexcept nogil
# Norm of this rank's tokens of the residual stream; with a bias a LayerNorm, else an RMSNorm.
cdef void run_norm(pn_pass *p, const float *weight, const float *bias) noexcept nogil
# Logits: `head` of the norm of the tokens whose logits are wanted, plus head_bias (n_vocab,) or NULL.
cdef void run_logits(pn_pass *p, const pn_group *head, const float *weight, const float *bias,
                     const float *head_bias) noexcept nogil
