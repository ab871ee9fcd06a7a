# The parameters of the sampler as a C struct: defaults and random state. Of the C API: engine.pxd explains them.
from libc.stdint cimport uint64_t

from pantheon._core.types cimport pn_sampling_params

cdef int pn_sampling_defaults(pn_sampling_params *params, uint64_t seed) noexcept nogil
cdef int pn_sampling_reset(pn_sampling_params *params) noexcept nogil
