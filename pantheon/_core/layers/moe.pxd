# Mixture-of-experts feed-forward: y = sum over the chosen experts e of weight(e) * down_e(silu(gate_e x) * up_e x),
# plus sigmoid(g . x) times the same of a shared expert where there is one. Run by all ranks of a team together, as in
# linear.pxd.
#
# A single token reads the chosen experts only, their rows pooled: all gate and up rows are one set of work, then all
# down rows. Several tokens are grouped by expert: a row is one (token, choice), rows of an expert lie side by side and
# go through its matrices together. Weighted results are added per token in the order of choice, most probable first,
# the shared expert last, one fused multiply-add per element: the bits do not depend on company, chunking or ranks.
from pantheon._core.kernels.table cimport pn_kernels
from pantheon._core.layers.linear cimport pn_input, pn_team
from pantheon._core.layers.moe_weights cimport pn_moe, pn_moe_work

cdef enum:
    MOE_COUNTERS = 5                     # that one step of several tokens takes

# nogil. Makes the forms of tokens [t0, t1) of the input that the layer reads.
cdef void moe_prepare(const pn_team *team, const pn_moe *moe, pn_input *x, int t0, int t1) noexcept nogil
# nogil. y (n_tok, n_embd) = the layer's result. On entry x is prepared: by this rank for a single token, where every
# rank has its own x; else by all ranks for their tokens [t0, t1), and a barrier has passed. On return the tokens
# [t0, t1) of y are whole.
cdef void moe_step(pn_team *team, const pn_moe *moe, const pn_input *x, pn_moe_work *work, float *y, int t0,
                   int t1) noexcept nogil
# nogil. The router: logits (n_experts,) become probabilities, chosen (n_used,) the most probable experts in falling
# order, the lower index first among equals, and weights (n_used,) theirs.
cdef void moe_route(const pn_kernels *k, const pn_moe *moe, float *logits, int *chosen, float *weights) noexcept nogil
