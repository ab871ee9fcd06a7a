# Gated DeltaNet: the recurrent token mixer of the Qwen3.5 family, run by all ranks of a team together.
#
# Each value head h keeps a matrix S (k_dim, v_dim). Per token: q, k and v pass a short causal convolution, q and k are
# L2-normalised, S decays, is corrected towards v at k, and is read at q; the result is normed and gated by z.
# Prefill runs the same recurrence token by token, so the cut of a prompt into chunks changes no bit.
from libc.stdint cimport uint8_t

from pantheon._core.layers.linear cimport pn_group, pn_team

cdef enum:
    DELTANET_MAX_TAPS = 16               # of the convolution

cdef struct pn_deltanet_dims:            # the same in all layers of a model
    int n_k_head                         # heads of q and k
    int n_v_head                         # heads of v, z and S, a multiple of n_k_head
    bint grouped                         # value head h reads key head h / (n_v_head / n_k_head), else h % n_k_head
    int k_dim
    int v_dim
    int taps                             # of the convolution, the token itself included
    float norm_eps                       # of the gated norm

cdef struct pn_deltanet:                 # weights of one layer; vectors are f32, borrowed from the mapping
    pn_group input                       # q|k|v (channels, n_embd), z (values, n_embd), beta, alpha (n_v_head, n_embd)
    const float *conv                    # (channels, taps)
    const float *a                       # (n_v_head,) not above 0: decay = exp(a * softplus(alpha + dt))
    const float *dt                      # (n_v_head,)
    const float *norm                    # (v_dim,)
    pn_group out                         # (n_embd, values)

cdef struct pn_deltanet_run:             # consecutive tokens of one sequence
    # what it keeps of all layers; borrowed, zero at the start
    float *conv                          # (n_layer, taps - 1, channels) inputs of the convolution, oldest first
    float *s                             # (n_layer, n_v_head, k_dim, v_dim), a head in the layout of kernels.h
    int first                            # token of the step
    int n

cdef struct pn_deltanet_step:
    const pn_deltanet_dims *dims
    int n_runs
    pn_deltanet_run *runs                # (n_runs,) of different sequences
    const float *qkv                     # (n_tok, channels) products of the layer's input
    float *z                             # (n_tok, values) becomes the result, the input of `out`
    const float *beta                    # (n_tok, n_v_head)
    const float *alpha                   # (n_tok, n_v_head)

# nogil. Channels of the convolution: q, k and v of all heads.
cdef inline int deltanet_channels(const pn_deltanet_dims *d) noexcept nogil:
    return 2 * d.n_k_head * d.k_dim + d.n_v_head * d.v_dim

# nogil. Length of z and of the result.
cdef inline int deltanet_values(const pn_deltanet_dims *d) noexcept nogil:
    return d.n_v_head * d.v_dim

# nogil. Floats of one layer's convolution state and of its S.
cdef inline size_t deltanet_conv_size(const pn_deltanet_dims *d) noexcept nogil:
    return <size_t>(d.taps - 1) * deltanet_channels(d)

cdef inline size_t deltanet_s_size(const pn_deltanet_dims *d) noexcept nogil:
    return <size_t>d.n_v_head * d.k_dim * d.v_dim

# nogil. Bytes of scratch that one rank needs.
cdef size_t deltanet_scratch(const pn_deltanet_dims *d) noexcept nogil
# nogil. The step's products are whole. This rank's share of the recurrence of layer `slot` (counted among the DeltaNet
# layers): advances the states and overwrites z; the next barrier makes it whole. single: a one-token step, whose share
# is fixed; others take heads as they become free and use one of the team's counters.
cdef void deltanet_mix(pn_team *team, const pn_deltanet *w, const pn_deltanet_step *step, int slot, bint single,
                       uint8_t *scratch) noexcept nogil
