# The sampler seam: one token from one row of logits. docs/sampling.md defines every step.
from libc.stdint cimport uint32_t

from pantheon._core.types cimport pn_sampling_params

cdef enum:
    PN_NO_TOKEN = 0xFFFFFFFF             # no token's id

# Draws a token from logits (n_vocab,), borrowed and changed in place: afterwards they hold what bias, penalties and DRY
# made of them, with -inf for every banned id and from n_tokens on. params: borrowed; its rng, xtc_rng and mu move on.
# recent_tokens (n_recent,), borrowed, most recent last; NULL when n_recent is 0. No GIL. PN_NO_TOKEN on error, with the
# text in pn_last_error() and rng, xtc_rng and mu as they were: a NaN logit, nothing left to draw, a malformed
# argument, no memory. Any number of threads may sample at once, each with its own logits and params.
cdef uint32_t pn_sample_next_token(float *logits, int n_vocab, pn_sampling_params *params,
                                   uint32_t *recent_tokens, int n_recent) noexcept nogil
