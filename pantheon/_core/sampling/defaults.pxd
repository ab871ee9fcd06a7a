# The parameters of the sampler as a C struct: defaults and random state.
from libc.stdint cimport uint64_t

from pantheon._core.types cimport pn_sampling_params

# Every field at its default, no bias, no breakers, and pn_sampling_reset. params: the caller's. No GIL. 0, or -1 with
# pn_last_error() without params.
cdef int pn_sampling_defaults(pn_sampling_params *params, uint64_t seed) noexcept nogil
# Restarts both random streams from params.seed and mu at 2 * mirostat_tau. No GIL. 0 or -1 as above.
cdef int pn_sampling_reset(pn_sampling_params *params) noexcept nogil
