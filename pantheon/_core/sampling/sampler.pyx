"""The sampler: the chain from a row of logits to one token, and its Python face.

The order is logit bias, penalties, DRY, top-n-sigma, top-k, typical-p, top-p, min-p, XTC, temperature, draw. Mirostat
goes from the bias to temperature, its own cut and the draw. Two things keep it far from the cost of a sort of the
vocabulary: the first cut in force is applied while the list of candidates is collected, and only what survived it is
ever ordered.
"""
from libc.math cimport INFINITY, log, pow
from libc.stdint cimport int64_t, uint32_t

from pantheon._core.base.arguments cimport id_array, ids_between
from pantheon._core.base.report cimport PN_ERROR_MEMORY, pn_last_error, pn_last_error_kind, pn_set_error
from pantheon._core.sampling.candidates cimport (
    pn_cand_argmax, pn_cand_collect, pn_cand_collect_top, pn_cand_draw, pn_cand_entropy, pn_cand_exp, pn_cand_keep_top,
    pn_cand_moments, pn_cand_only, pn_cand_scan, pn_cand_total,
)
from pantheon._core.sampling.dry cimport pn_apply_dry
from pantheon._core.sampling.mirostat cimport pn_mirostat_accept, pn_mirostat_collect
from pantheon._core.sampling.params cimport SamplingParams
from pantheon._core.sampling.penalties cimport pn_apply_bias, pn_apply_penalties, pn_undo_penalties
from pantheon._core.sampling.scratch cimport (
    pn_scratch, pn_scratch_get, pn_scratch_total,
)
from pantheon._core.sampling.truncate cimport pn_cut_min_p, pn_cut_top_p, pn_cut_typical, pn_cut_xtc, pn_min_p_floor
from pantheon._core.types cimport PN_NO_TOKEN, pn_sampling_params

import operator

import numpy as np

cdef float COLDEST = 1e-5                # a lower temperature is greedy: dividing by it would overflow


cdef inline bint is_greedy(const pn_sampling_params *params) noexcept nogil:
    return not params.temperature >= COLDEST


cdef int check(const float *logits, int n_vocab, const pn_sampling_params *params, const uint32_t *recent,
               int n_recent) noexcept nogil:
    """0, or -1 for arguments that are none."""
    if logits == NULL or params == NULL:
        pn_set_error(b"logits or params is NULL")
        return -1
    if n_vocab < 1 or n_recent < 0:
        pn_set_error(b"n_vocab is %d and n_recent %d: not in 1..2147483647 and 0..2147483647", n_vocab, n_recent)
        return -1
    if params.n_bias < 0 or params.n_dry_breaker_ids < 0:
        pn_set_error(b"%d biases and %d breaker ids: not in 0..2147483647", params.n_bias, params.n_dry_breaker_ids)
        return -1
    if (recent == NULL and n_recent > 0 or params.bias == NULL and params.n_bias > 0
            or params.dry_breaker_ids == NULL and params.n_dry_breaker_ids > 0):
        pn_set_error(b"recent_tokens, bias or dry_breaker_ids is NULL where its length is not 0")
        return -1
    if not 0 <= params.mirostat <= 2:
        pn_set_error(b"mirostat is %d, not in 0..2", params.mirostat)
        return -1
    return 0


cdef pn_scratch *scratch_for(int n_vocab, const pn_sampling_params *params, int n_recent) noexcept nogil:
    """The thread's scratch, large enough for this call; NULL on error."""
    cdef int window = params.penalty_last_n
    if window < params.dry_penalty_last_n:
        window = params.dry_penalty_last_n
    window = n_recent if window > n_recent else window if window > 0 else 0
    return pn_scratch_get(n_vocab, window, params.n_bias + 2 * <int64_t> window)


cdef int change_logits(pn_scratch *s, float *logits, int n_vocab, int n, const pn_sampling_params *params,
                       const uint32_t *recent, int n_recent, float *max) noexcept nogil:
    """Bias, penalties and DRY, in place; ids from n on are masked. *max: the largest logit, above -inf. 0, or -1.

    The list stays empty, or holds the one token that these steps leave no choice about.
    """
    cdef int i
    if pn_apply_bias(s, logits, n_vocab, params) < 0:
        return -1
    for i in range(n, n_vocab):
        logits[i] = -INFINITY
    if params.mirostat == 0 or is_greedy(params):
        pn_apply_penalties(s, logits, n, params, recent, n_recent)
        if pn_apply_dry(s, logits, n, params, recent, n_recent) < 0:
            return -1
    i = pn_cand_scan(s, logits, n, max)
    if i >= 0:
        pn_set_error(b"the logit of token %d is not a number", i)
        return -1
    if max[0] == -INFINITY:              # penalties alone may not end a generation: fall back to what they acted on
        pn_undo_penalties(s, logits, n, params)
        pn_cand_scan(s, logits, n, max)
        if max[0] == -INFINITY:
            pn_set_error(b"no token can be drawn: the logits of all are -inf")
            return -1
        pn_cand_only(s, pn_cand_argmax(s, logits, n, max[0]), 0)
    elif max[0] == INFINITY or is_greedy(params):        # +inf: a probability cannot be had from it
        pn_cand_only(s, pn_cand_argmax(s, logits, n, max[0]), 0)
    return 0


cdef void collect(pn_scratch *s, const float *logits, int n, float max, pn_sampling_params *params) noexcept nogil:
    """Top-n-sigma, top-k, typical-p, top-p and min-p."""
    cdef float floor = -INFINITY
    cdef double mean, deviation, total = 0
    cdef float min_p_floor
    if params.top_n_sigma > 0:
        pn_cand_moments(logits, n, max, &mean, &deviation)
        floor = <float> (max - params.top_n_sigma * deviation)
    if 0 < params.top_k < n:
        pn_cand_collect_top(s, logits, n, floor, params.top_k)
    elif params.min_p > 0 and not params.typical_p < 1:
        # Top-p and min-p both keep a prefix of the ordered list, so min-p may cut first if top-p gets the total of all.
        if params.top_p < 1:
            total = pn_cand_total(logits, n, max, 1, floor)
        min_p_floor = pn_min_p_floor(max, params.min_p)
        pn_cand_collect(s, logits, n, min_p_floor if min_p_floor > floor else floor)
        if s.n < params.min_keep or s.n == 0:
            pn_cand_collect_top(s, logits, n, floor, params.min_keep if params.min_keep > 1 else 1)
    else:
        pn_cand_collect(s, logits, n, floor)
    if params.typical_p < 1:
        pn_cut_typical(s, params.typical_p, params.min_keep)
    if params.top_p < 1:
        pn_cut_top_p(s, params.top_p, params.min_keep, total)
    if params.min_p > 0:
        pn_cut_min_p(s, params.min_p, params.min_keep)


cdef float cool(pn_scratch *s, const pn_sampling_params *params) noexcept nogil:
    """The temperature of this token. Dynamic: from the entropy of the candidates; too cold, only the best one stays."""
    cdef float t = params.temperature
    cdef double low, high
    if params.dynatemp_range > 0 and s.n > 1:
        pn_cand_exp(s, 1)
        low = t - params.dynatemp_range if t > params.dynatemp_range else 0
        high = t + params.dynatemp_range
        t = <float> (low + (high - low) * pow(pn_cand_entropy(s) / log(s.n), params.dynatemp_exponent))
        if not t >= COLDEST:
            pn_cand_keep_top(s, 1)
            t = 1
    return t


cdef int run_chain(pn_scratch *s, float *logits, int n_vocab, pn_sampling_params *params, const uint32_t *recent,
                   int n_recent) noexcept nogil:
    """Everything before the draw: leaves the candidates in s, weighted by s.e with the sum s.sum. 0, or -1."""
    cdef int n = params.n_tokens if 0 < params.n_tokens < n_vocab else n_vocab
    cdef float max, t = params.temperature
    if change_logits(s, logits, n_vocab, n, params, recent, n_recent, &max) < 0:
        return -1
    if s.n == 1:
        t = 1
    elif params.mirostat:
        pn_mirostat_collect(s, logits, n, max, params)
    else:
        collect(s, logits, n, max, params)
        if params.xtc_probability > 0:
            pn_cut_xtc(s, params.xtc_probability, params.xtc_threshold, params.min_keep, params.xtc_rng)
        t = cool(s, params)
    pn_cand_exp(s, 1 / t)
    return 0


cdef uint32_t pn_sample_next_token(float *logits, int n_vocab, pn_sampling_params *params,
                                   uint32_t *recent_tokens, int n_recent) noexcept nogil:
    cdef pn_scratch *s
    cdef int i
    if check(logits, n_vocab, params, recent_tokens, n_recent) != 0:
        return PN_NO_TOKEN
    s = scratch_for(n_vocab, params, n_recent)
    if s == NULL or run_chain(s, logits, n_vocab, params, recent_tokens, n_recent) < 0:
        return PN_NO_TOKEN
    if is_greedy(params):
        return s.id[0]
    i = pn_cand_draw(s, params.rng)
    if params.mirostat:
        pn_mirostat_accept(s, i, params)
    return s.id[i]


cdef object failure():
    """The exception of this thread's last failed call."""
    text = pn_last_error().decode()
    return MemoryError(text) if pn_last_error_kind() == PN_ERROR_MEMORY else ValueError(text)


cdef object check_logits(logits, bint writable):
    """TypeError or ValueError unless logits is a float32 (n_vocab,) array that can be used in place."""
    if not isinstance(logits, np.ndarray) or logits.dtype != np.float32:
        raise TypeError(f"logits must be a float32 ndarray, not {getattr(logits, 'dtype', type(logits).__name__)}")
    if logits.ndim != 1 or not 0 < logits.shape[0] <= 0x7FFFFFFF:
        raise ValueError(f"logits must have the shape (n_vocab,), not {logits.shape}")
    if not logits.flags.c_contiguous or not logits.flags.aligned:
        raise ValueError("logits must be C-contiguous")
    if writable and not logits.flags.writeable:
        raise ValueError("logits must be writable")
    return logits


cdef object check_recent(recent, SamplingParams params):
    """uint32 (n,): the part of the recent tokens that a window of params can see."""
    window = max(params.c.penalty_last_n, params.c.dry_penalty_last_n)
    if window <= 0:
        return np.empty(0, np.uint32)
    if not isinstance(recent, np.ndarray):
        try:
            recent = recent[-window:]
        except TypeError:                # a deque, a generator
            recent = list(recent)[-window:]
    elif recent.ndim == 1:
        recent = recent[-window:]
    return ids_between("recent_tokens: a token", id_array("recent_tokens", recent), 0xFFFFFFFE)


def sample(logits, SamplingParams params not None, recent_tokens=()):
    """Draws the next token.

    logits: float32 (n_vocab,), C-contiguous and writable, changed in place: afterwards they hold what bias, penalties
    and DRY made of them, with -inf for every banned id and from n_tokens on. params: its random state moves on; use one
    object per sequence. recent_tokens: ids of the tokens so far, most recent last; more than the windows of params is
    ignored.

    Returns the token id. Releases the GIL. ValueError when a logit is NaN or no token can be drawn; params is then as
    before.
    """
    cdef float[::1] x = check_logits(logits, True)
    cdef const uint32_t[::1] recent = check_recent(recent_tokens, params)
    cdef const uint32_t *r = &recent[0] if recent.shape[0] else NULL
    cdef pn_sampling_params c = params.c         # a copy: two threads with one params may repeat a draw, not tear it
    cdef uint32_t token
    with nogil:
        token = pn_sample_next_token(&x[0], <int> x.shape[0], &c, <uint32_t *> r, <int> recent.shape[0])
    if token == PN_NO_TOKEN:
        raise failure()
    params.c.rng = c.rng
    params.c.xtc_rng = c.xtc_rng
    params.c.mu = c.mu
    return token


def candidates(logits, SamplingParams params not None, recent_tokens=()):
    """What sample() would draw from: (ids uint32 (n,), probabilities float64 (n,)), in the order of the draw.

    Arguments and errors as for sample(), but nothing is changed: the logits stay, and params keeps its random state.
    """
    cdef float[::1] x = check_logits(logits, False).copy()
    cdef const uint32_t[::1] recent = check_recent(recent_tokens, params)
    cdef const uint32_t *r = &recent[0] if recent.shape[0] else NULL
    cdef pn_sampling_params c = params.c
    cdef int n_vocab = <int> x.shape[0], n = -1, i
    ids = np.empty(n_vocab, np.uint32)
    probabilities = np.empty(n_vocab, np.float64)
    cdef uint32_t[::1] id = ids
    cdef double[::1] p = probabilities
    cdef pn_scratch *s
    with nogil:
        s = scratch_for(n_vocab, &c, <int> recent.shape[0])
        if s != NULL and run_chain(s, &x[0], n_vocab, &c, r, <int> recent.shape[0]) == 0:
            n = s.n
            for i in range(n):
                id[i] = s.id[i]
                p[i] = s.e[i] / s.sum
    if n < 0:
        raise failure()
    return ids[:n].copy(), probabilities[:n].copy()


def logprobs(logits, ids=None, *, top=None):
    """Log-softmax of raw logits, in nats; call it before sample(), which changes them.

    logits: float32 (n_vocab,), C-contiguous, not changed. Give one of: ids, a sequence of token ids; or top, a number
    of tokens. Returns float64 (len(ids),); or (ids uint32 (top,), logprobs float64 (top,)), best first, equal ones by
    id. Tokens at -inf have logprob -inf and are never among the top ones, of which there may be fewer for it. The sum
    is in float64.
    ValueError when a logit is NaN, all are -inf, or an id is outside the vocabulary.
    """
    if (ids is None) == (top is None):
        raise TypeError("logprobs takes ids or top")
    cdef const float[::1] x = check_logits(logits, False)
    cdef int n = <int> x.shape[0], k = 0, bad
    cdef float max
    cdef double log_total = 0
    cdef pn_scratch *s
    cdef int i
    if top is not None:
        k = min(operator.index(top), n)
        if k < 1:
            raise ValueError(f"top must be positive, not {top}")
    best = np.empty(k, np.uint32)
    cdef uint32_t[::1] b = best
    with nogil:
        s = pn_scratch_get(n, 0, 0)
        if s != NULL:
            bad = pn_cand_scan(s, &x[0], n, &max)
            if bad < 0 and -INFINITY < max < INFINITY:
                log_total = log(pn_cand_total(&x[0], n, max, 1, -INFINITY))
            if bad < 0 and k:
                pn_cand_collect_top(s, &x[0], n, -INFINITY, k)
                k = s.n
                for i in range(k):
                    b[i] = s.id[i]
    if s == NULL:
        raise failure()
    if bad >= 0:
        raise ValueError(f"the logit of token {bad} is not a number")
    if max == -INFINITY:
        raise ValueError("the logits of all tokens are -inf")
    if ids is None:
        ids = best[:k]
    else:
        ids = ids_between("ids: a token", id_array("ids", ids), n - 1)
    values = logits[ids].astype(np.float64)
    if max == INFINITY:                  # the tokens at +inf share all of it
        values = np.where(values == np.inf, -np.log(np.count_nonzero(logits == np.inf)), -np.inf)
    else:
        values -= max + log_total
    return values if top is None else (ids, values)


def scratch_nbytes():
    """Bytes of scratch that the samplers of all threads hold; a thread's share is freed when it ends."""
    return pn_scratch_total()
