"""Sampling parameters, checked once and then read by the sampler as plain numbers."""
cimport cython
from libc.math cimport INFINITY
from libc.stdint cimport int32_t

from pantheon._core.sampling.defaults cimport pn_sampling_reset
from pantheon._core.types cimport pn_logit_bias, pn_sampling_params

import operator
import os

import numpy as np

MAX_INT = 2**31 - 1
RANDOM_SEEDS = (-1, 0xFFFFFFFF)          # ask for a seed from the operating system
BIAS_DTYPE = np.dtype([("token", np.uint32), ("bias", np.float32)])


def _float(name, value, accepted, test):
    """value as the nearest float32, when test holds for it; accepted says in words what test accepts."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}") from None
    except OverflowError:
        number = np.inf
    with np.errstate(over="ignore"):
        number = float(np.float32(number))
    if not (np.isfinite(number) and test(number)):
        raise ValueError(f"{name} must be {accepted}, not {value!r}")
    return number


def _int(name, value, low, high=MAX_INT):
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None
    if not low <= number <= high:
        raise ValueError(f"{name} must be in {low} ... {high}, not {value!r}")
    return number


def _any(x):
    return True


def _share(x):
    return 0 <= x <= 1


def _not_negative(x):
    return x >= 0


def _positive(x):
    return x > 0


def _seed(seed):
    if seed is None or seed in RANDOM_SEEDS:
        seed = 0xFFFFFFFF
        while seed in RANDOM_SEEDS:
            seed = int.from_bytes(os.urandom(8), "little") >> 11     # below 2**53, which JSON carries everywhere
        return seed
    return _int("seed", seed, 0, 2**64 - 1)


def _bias_bytes(logit_bias):
    """pn_logit_bias records, as bytes, of a mapping or of pairs; None and empty give b""."""
    if logit_bias is None:
        return b""
    try:
        pairs = [(token, bias) for token, bias in (logit_bias.items() if hasattr(logit_bias, "items") else logit_bias)]
    except (TypeError, ValueError):
        raise TypeError("logit_bias must be a mapping or a sequence of (token id, bias)") from None
    records = np.empty(len(pairs), BIAS_DTYPE)
    for i, (token, bias) in enumerate(pairs):
        token = _int("logit_bias: a token id", token, 0)
        if bias != -INFINITY:
            bias = _float(f"logit_bias of token {token}", bias, "finite, or -inf to ban the token", _any)
        records[i] = token, bias
    return records.tobytes()


def _breaker_bytes(breakers):
    """The struct's int32 form, as bytes, of sequences (head, *tail); an int32 array is taken to be in it already. None
    of None."""
    if breakers is None:
        return None
    message = "dry_breakers must be sequences of token ids, or the int32 array of dry_breaker_ids()"
    if isinstance(breakers, np.ndarray):
        if breakers.ndim != 1 or breakers.dtype != np.int32:
            raise TypeError(message)
        flat = np.array(breakers)
        at = 0
        while at < flat.size:
            if flat.size - at < 2 or flat[at] < 0 or not 0 <= flat[at + 1] <= flat.size - at - 2:
                raise ValueError(f"dry_breakers: no sequence of head, length of the tail, tail at index {at}")
            at += 2 + int(flat[at + 1])
        return flat.tobytes()
    if not hasattr(breakers, "__iter__"):
        raise TypeError(message)
    flat = []
    for sequence in breakers:
        if isinstance(sequence, (str, bytes)) or not hasattr(sequence, "__iter__"):
            raise TypeError(message)
        ids = [_int("dry_breakers: a token id", token, 0) for token in sequence]
        if not ids:
            raise ValueError("dry_breakers must not hold an empty sequence")
        flat += [ids[0], len(ids) - 1, *ids[1:]]
    return np.array(flat, np.int32).tobytes()


cdef object shortest(float x):
    """The float32 as the float with the fewest digits that reads back to it."""
    return float(str(np.float32(x)))


@cython.final
cdef class SamplingParams:
    """How a sequence's tokens are drawn, and the random state of the draw. docs/sampling.md explains every parameter.

    All arguments are checked: ValueError names the argument and what it accepts, TypeError the type. Numbers are kept
    as float32, as the sampler uses them. Fields are read-only; copy() makes a changed object. One object serves one
    sequence: every token moves its random state on. seed None or -1 takes one from the operating system; .seed is the
    one in use.

    logit_bias: {token id: bias}, -inf bans. dry_breakers: sequences of token ids, or the array that
    pantheon.text.dry.dry_breaker_ids() makes of strings; None: sample() has none, Model.generate the usual ones.
    n_tokens: ids from there on are never drawn, 0 = all may be.
    """

    def __cinit__(self, *, temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, typical_p=1.0, top_n_sigma=-1.0,
                  repeat_penalty=1.0, repeat_last_n=64, frequency_penalty=0.0, presence_penalty=0.0,
                  dry_multiplier=0.0, dry_base=1.75, dry_allowed_length=2, dry_penalty_last_n=64, dry_breakers=None,
                  xtc_probability=0.0, xtc_threshold=0.1, dynatemp_range=0.0, dynatemp_exponent=1.0,
                  mirostat=0, mirostat_tau=5.0, mirostat_eta=0.1, min_keep=0, logit_bias=None, seed=None, n_tokens=0):
        cdef pn_sampling_params *c = &self.c
        c.temperature = _float("temperature", temperature, "finite (0 or less: greedy)", _any)
        c.top_k = _int("top_k", top_k, -MAX_INT)
        c.top_p = _float("top_p", top_p, "in 0 ... 1", _share)
        c.min_p = _float("min_p", min_p, "in 0 ... 1", _share)
        c.typical_p = _float("typical_p", typical_p, "in 0 ... 1", _share)
        c.top_n_sigma = _float("top_n_sigma", top_n_sigma, "finite (0 or less: off)", _any)
        c.repeat_penalty = _float("repeat_penalty", repeat_penalty, "finite and above 0", _positive)
        c.penalty_last_n = _int("repeat_last_n", repeat_last_n, 0)
        c.frequency_penalty = _float("frequency_penalty", frequency_penalty, "finite", _any)
        c.presence_penalty = _float("presence_penalty", presence_penalty, "finite", _any)
        c.dry_multiplier = _float("dry_multiplier", dry_multiplier, "finite and not negative", _not_negative)
        c.dry_base = _float("dry_base", dry_base, "finite and not negative", _not_negative)
        c.dry_allowed_length = _int("dry_allowed_length", dry_allowed_length, 0)
        c.dry_penalty_last_n = _int("dry_penalty_last_n", dry_penalty_last_n, 0)
        c.xtc_probability = _float("xtc_probability", xtc_probability, "in 0 ... 1", _share)
        c.xtc_threshold = _float("xtc_threshold", xtc_threshold, "in 0 ... 1", _share)
        c.dynatemp_range = _float("dynatemp_range", dynatemp_range, "finite and not negative", _not_negative)
        c.dynatemp_exponent = _float("dynatemp_exponent", dynatemp_exponent, "finite and not negative", _not_negative)
        c.mirostat = _int("mirostat", mirostat, 0, 2)
        c.mirostat_tau = _float("mirostat_tau", mirostat_tau, "finite and not negative", _not_negative)
        c.mirostat_eta = _float("mirostat_eta", mirostat_eta, "finite and not negative", _not_negative)
        c.min_keep = _int("min_keep", min_keep, 0)
        c.n_tokens = _int("n_tokens", n_tokens, 0)
        c.seed = _seed(seed)
        self.bias = _bias_bytes(logit_bias)
        c.n_bias = <int> (len(self.bias) // sizeof(pn_logit_bias))
        c.bias = <const pn_logit_bias *> <const char *> self.bias
        self.breakers = _breaker_bytes(dry_breakers)
        if self.breakers is not None:
            c.n_dry_breaker_ids = <int> (len(self.breakers) // sizeof(int32_t))
            c.dry_breaker_ids = <const int32_t *> <const char *> self.breakers
        pn_sampling_reset(c)

    def reset(self):
        """Restarts the random state from .seed, and mirostat's mu."""
        pn_sampling_reset(&self.c)

    def copy(self, **changes):
        """An independent object with the same parameters, random state and mu, apart from the changed arguments.

        A changed seed restarts the random state, a changed mirostat_tau restarts mu.
        """
        cdef SamplingParams other = SamplingParams(**{**self._arguments(), **changes})
        if "seed" not in changes:
            other.c.rng = self.c.rng
            other.c.xtc_rng = self.c.xtc_rng
        if "mirostat_tau" not in changes:
            other.c.mu = self.c.mu
        return other

    def resume(self, SamplingParams other not None):
        """Takes over the random state and mu of other."""
        self.c.rng = other.c.rng
        self.c.xtc_rng = other.c.xtc_rng
        self.c.mu = other.c.mu

    def _arguments(self):
        """What to call SamplingParams with to get this object, fresh."""
        arguments = {name: getattr(self, name) for name in _DEFAULTS}
        arguments["seed"] = self.seed
        return arguments

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return self.copy()

    def __repr__(self):
        shown = [f"{name}={value!r}" for name, value in self._arguments().items()
                 if name == "seed" or value != _DEFAULTS[name]]
        return f"SamplingParams({', '.join(shown)})"

    @property
    def greedy(self):
        """Whether the best token is always taken: temperature below 1e-5. No random state is used then."""
        return not self.c.temperature >= <float> 1e-5

    @property
    def seed(self):
        """The seed in use, also where it came from the operating system."""
        return self.c.seed

    @property
    def mu(self):
        """Mirostat's state: the surprise, in bits, that the next token may have."""
        return self.c.mu

    @property
    def logit_bias(self):
        """{token id: bias}; biases given twice are added."""
        biases = {}
        for token, bias in np.frombuffer(self.bias, BIAS_DTYPE):
            biases[int(token)] = biases.get(int(token), 0.0) + shortest(bias)
        return biases

    @property
    def dry_breakers(self):
        """Sequences of token ids, head first; None: none were given."""
        if self.breakers is None:
            return None
        flat = np.frombuffer(self.breakers, np.int32).tolist()
        sequences = []
        at = 0
        while at < len(flat):
            end = at + 2 + flat[at + 1]
            sequences.append((flat[at], *flat[at + 2:end]))
            at = end
        return sequences

    @property
    def temperature(self):
        return shortest(self.c.temperature)

    @property
    def top_k(self):
        return self.c.top_k

    @property
    def top_p(self):
        return shortest(self.c.top_p)

    @property
    def min_p(self):
        return shortest(self.c.min_p)

    @property
    def typical_p(self):
        return shortest(self.c.typical_p)

    @property
    def top_n_sigma(self):
        return shortest(self.c.top_n_sigma)

    @property
    def repeat_penalty(self):
        return shortest(self.c.repeat_penalty)

    @property
    def repeat_last_n(self):
        return self.c.penalty_last_n

    @property
    def frequency_penalty(self):
        return shortest(self.c.frequency_penalty)

    @property
    def presence_penalty(self):
        return shortest(self.c.presence_penalty)

    @property
    def dry_multiplier(self):
        return shortest(self.c.dry_multiplier)

    @property
    def dry_base(self):
        return shortest(self.c.dry_base)

    @property
    def dry_allowed_length(self):
        return self.c.dry_allowed_length

    @property
    def dry_penalty_last_n(self):
        return self.c.dry_penalty_last_n

    @property
    def xtc_probability(self):
        return shortest(self.c.xtc_probability)

    @property
    def xtc_threshold(self):
        return shortest(self.c.xtc_threshold)

    @property
    def dynatemp_range(self):
        return shortest(self.c.dynatemp_range)

    @property
    def dynatemp_exponent(self):
        return shortest(self.c.dynatemp_exponent)

    @property
    def mirostat(self):
        return self.c.mirostat

    @property
    def mirostat_tau(self):
        return shortest(self.c.mirostat_tau)

    @property
    def mirostat_eta(self):
        return shortest(self.c.mirostat_eta)

    @property
    def min_keep(self):
        return self.c.min_keep

    @property
    def n_tokens(self):
        return self.c.n_tokens


_DEFAULTS = {
    "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 1.0, "top_n_sigma": -1.0,
    "repeat_penalty": 1.0, "repeat_last_n": 64, "frequency_penalty": 0.0, "presence_penalty": 0.0,
    "dry_multiplier": 0.0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": 64, "dry_breakers": None,
    "xtc_probability": 0.0, "xtc_threshold": 0.1, "dynatemp_range": 0.0, "dynatemp_exponent": 1.0,
    "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "min_keep": 0, "logit_bias": {}, "n_tokens": 0,
}
