"""Mirostat 1 and 2 (Basu et al., 2021). Temperature acts first: every probability here is of l / T."""
from libc.math cimport INFINITY, log, log2, pow

from pantheon._core.sampling.candidates cimport (
    pn_cand_collect, pn_cand_collect_top, pn_cand_keep_top, pn_cand_sort, pn_cand_total,
)
from pantheon._core.sampling.scratch cimport pn_scratch
from pantheon._core.types cimport pn_sampling_params

cdef enum:
    ESTIMATE_FROM = 100                  # tokens that the exponent is estimated from

cdef double LN2 = 0.6931471805599453


cdef int kept_by_v1(pn_scratch *s, int n, float temperature, float mu) noexcept nogil:
    """How many tokens version 1 keeps. s holds the ESTIMATE_FROM likeliest of n drawable tokens, by logit."""
    cdef double t, b, tb = 0, tt = 0, exponent, epsilon, k
    cdef int i
    for i in range(s.n - 1):
        t = log((i + 2.0) / (i + 1.0))
        b = (<double> s.logit[i] - s.logit[i + 1]) / temperature     # ln(p_i / p_i+1), which no underflow can reach
        tb += t * b
        tt += t * t
    if tt == 0:
        return 1                         # a single candidate
    exponent = tb / tt                   # of Zipf's law
    epsilon = exponent - 1
    if not exponent > 0:
        return n
    k = pow((epsilon * pow(2, mu)) / (1 - pow(n, -epsilon)), 1 / exponent)
    if k != k or k >= n:
        return n
    return <int> k if k >= 1 else 1


cdef void pn_mirostat_collect(pn_scratch *s, const float *logits, int n, float max,
                              const pn_sampling_params *params) noexcept nogil:
    cdef double floor
    if params.mirostat == 1:
        pn_cand_collect_top(s, logits, n, -INFINITY, ESTIMATE_FROM)
        pn_cand_collect_top(s, logits, n, -INFINITY, kept_by_v1(s, n, params.temperature, params.mu))
        return
    # -log2 p <= mu, with ln p = (l - max) / T - ln(sum)
    floor = log(pn_cand_total(logits, n, max, 1 / params.temperature, -INFINITY)) - params.mu * LN2
    floor = max + params.temperature * floor
    pn_cand_collect(s, logits, n, <float> (floor if floor < max else max))
    pn_cand_sort(s)
    if floor > max:
        pn_cand_keep_top(s, 1)


cdef void pn_mirostat_accept(pn_scratch *s, int i, pn_sampling_params *params) noexcept nogil:
    cdef double surprise = log2(s.sum / s.e[i])
    params.mu -= <float> (params.mirostat_eta * (surprise - params.mirostat_tau))
