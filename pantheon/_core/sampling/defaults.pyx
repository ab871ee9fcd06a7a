"""Defaults and random state of the sampling parameters (see defaults.pxd for the contract)."""
from libc.stdint cimport uint64_t

from pantheon._core.base.report cimport pn_set_error
from pantheon._core.sampling.rng cimport pn_rng_fill
from pantheon._core.types cimport pn_sampling_params


cdef int pn_sampling_reset(pn_sampling_params *params) noexcept nogil:
    cdef uint64_t counter
    if params == NULL:
        pn_set_error(b"params is NULL")
        return -1
    counter = params.seed
    pn_rng_fill(params.rng, &counter)
    pn_rng_fill(params.xtc_rng, &counter)        # further on in the same stream: independent of the draw's
    params.mu = 2 * params.mirostat_tau
    return 0


cdef int pn_sampling_defaults(pn_sampling_params *params, uint64_t seed) noexcept nogil:
    if params == NULL:
        pn_set_error(b"params is NULL")
        return -1
    params.temperature = 0.8
    params.top_k = 40
    params.top_p = 0.95
    params.min_p = 0.05
    params.typical_p = 1
    params.top_n_sigma = -1
    params.repeat_penalty = 1
    params.frequency_penalty = 0
    params.presence_penalty = 0
    params.penalty_last_n = 64
    params.dry_multiplier = 0
    params.dry_base = 1.75
    params.dry_allowed_length = 2
    params.dry_penalty_last_n = 64
    params.xtc_probability = 0
    params.xtc_threshold = 0.1
    params.dynatemp_range = 0
    params.dynatemp_exponent = 1
    params.mirostat = 0
    params.mirostat_tau = 5
    params.mirostat_eta = 0.1
    params.min_keep = 0
    params.n_tokens = 0
    params.seed = seed
    params.n_bias = 0
    params.bias = NULL
    params.n_dry_breaker_ids = 0
    params.dry_breaker_ids = NULL
    return pn_sampling_reset(params)
