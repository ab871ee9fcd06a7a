# Parameters of the sampler: the defaults and the random state of the C struct, and the Python object that owns one.
cimport cython
from libc.stdint cimport uint64_t

from pantheon._core.types cimport pn_sampling_params

# Every field at its default, no bias, no breakers, and pn_sampling_reset. params: the caller's. No GIL.
cdef void pn_sampling_defaults(pn_sampling_params *params, uint64_t seed) noexcept nogil
# Restarts both random streams from params.seed and mu at 2 * mirostat_tau. No GIL.
cdef void pn_sampling_reset(pn_sampling_params *params) noexcept nogil


@cython.final
cdef class SamplingParams:
    cdef pn_sampling_params c
    cdef bytes bias                      # backs c.bias; immutable, so copies share it
    cdef bytes breakers                  # backs c.dry_breaker_ids, likewise; None: none were given
