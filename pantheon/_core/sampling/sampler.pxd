# The sampler seam: one token from one row of logits. docs/sampling.md defines every step; of the C API: engine.pxd
# explains it.
from libc.stdint cimport uint32_t

from pantheon._core.types cimport pn_sampling_params

cdef uint32_t pn_sample_next_token(float *logits, int n_vocab, pn_sampling_params *params,
                                   uint32_t *recent_tokens, int n_recent) noexcept nogil
