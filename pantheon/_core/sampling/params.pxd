# Parameters of the sampler: the Python object that owns a C struct of them.
cimport cython

from pantheon._core.types cimport pn_sampling_params


@cython.final
cdef class SamplingParams:
    cdef pn_sampling_params c
    cdef bytes bias                      # backs c.bias; immutable, so copies share it
    cdef bytes breakers                  # backs c.dry_breaker_ids, likewise; None: none were given
