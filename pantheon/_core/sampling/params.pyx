# cython: auto_pickle=False
"""Sampling parameters, checked once and then read by the sampler as plain numbers."""
cimport cython
from libc.float cimport FLT_MAX
from libc.math cimport INFINITY
from libc.stdint cimport int32_t

from pantheon._core.base.arguments cimport exact, integer, number
from pantheon._core.sampling.defaults cimport pn_sampling_defaults, pn_sampling_reset
from pantheon._core.types cimport pn_logit_bias, pn_sampling_params

import os

import numpy as np

MAX_INT = 2**31 - 1
RANDOM_SEEDS = (-1, 0xFFFFFFFF)          # ask for a seed from the operating system
BIAS_DTYPE = np.dtype([("token", np.uint32), ("bias", np.float32)])

cdef pn_sampling_params defaults         # every field at its default
pn_sampling_defaults(&defaults, 0)


# ---- fields that are one number --------------------------------------------------------------------------------------

@cython.internal
cdef class Number:
    """A field of SamplingParams that is one number of the struct: reads it, and stores a new one if it is good."""
    cdef str name
    cdef size_t offset                   # of its member in pn_sampling_params

    def __get__(self, instance, owner):
        return self if instance is None else self.read(&(<SamplingParams?>instance).c)

    def __set__(self, instance, value):
        raise AttributeError(f"{self.name} is read-only: copy({self.name}=...) makes a changed object")

    cdef object read(self, const pn_sampling_params *c):
        raise NotImplementedError

    cdef int store(self, pn_sampling_params *c, value) except -1:
        raise NotImplementedError


@cython.final
@cython.internal
cdef class Integer(Number):
    cdef long low, high

    cdef object read(self, const pn_sampling_params *c):
        return (<const int *>(<const char *>c + self.offset))[0]

    cdef int store(self, pn_sampling_params *c, value) except -1:
        (<int *>(<char *>c + self.offset))[0] = <int>integer(self.name, value, self.low, self.high)


@cython.final
@cython.internal
cdef class Float(Number):
    cdef float low, high                 # finite
    cdef str accepted                    # the same in words

    cdef object read(self, const pn_sampling_params *c):
        return shortest((<const float *>(<const char *>c + self.offset))[0])

    cdef int store(self, pn_sampling_params *c, value) except -1:
        cdef float nearest = <float>number(self.name, value)
        if not self.low <= nearest <= self.high:
            raise ValueError(f"{self.name} is {shortest(nearest)}, not {self.accepted}")
        (<float *>(<char *>c + self.offset))[0] = nearest


cdef Integer whole_number(const int *member, long low=0, long high=MAX_INT):
    """The field of a member of `defaults`, and what it accepts."""
    cdef Integer field = Integer()
    field.offset = <const char *>member - <const char *>&defaults
    field.low, field.high = low, high
    return field


cdef Float finite(const float *member, float low=-FLT_MAX, float high=FLT_MAX, str accepted="finite"):
    """The same of a float."""
    cdef Float field = Float()
    field.offset = <const char *>member - <const char *>&defaults
    field.low, field.high, field.accepted = low, high, accepted
    return field


cdef Float share(const float *member):
    return finite(member, 0, 1, "in 0..1")


cdef Float not_negative(const float *member):
    return finite(member, 0, FLT_MAX, "finite and 0 or more")


cdef Float positive(const float *member):
    return finite(member, 2.0**-149, FLT_MAX, "finite and above 0")      # from the smallest float32 on


cdef object shortest(float x):
    """The float32 as the float with the fewest digits that reads back to it."""
    return float(str(np.float32(x)))


# ---- the others ------------------------------------------------------------------------------------------------------

def _seed(seed):
    if seed is not None:
        seed = exact("seed", seed)
    if seed is None or seed in RANDOM_SEEDS:
        seed = 0xFFFFFFFF
        while seed in RANDOM_SEEDS:
            seed = int.from_bytes(os.urandom(8), "little") >> 11     # below 2**53, which JSON carries everywhere
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed is not in 0..{2**64 - 1}")
    return seed


def _bias_bytes(logit_bias):
    """pn_logit_bias records, as bytes, of a mapping or of pairs; None and empty give b""."""
    if logit_bias is None:
        return b""
    try:
        pairs = [(token, bias) for token, bias in (logit_bias.items() if hasattr(logit_bias, "items") else logit_bias)]
    except (TypeError, ValueError):
        raise TypeError("logit_bias must be a mapping or a sequence of (token id, bias)") from None
    records = np.empty(len(pairs), BIAS_DTYPE)
    cdef float value
    for i, (token, bias) in enumerate(pairs):
        id = integer("logit_bias: a token id", token, 0, MAX_INT)
        value = number("logit_bias", bias)
        if not -INFINITY <= value <= FLT_MAX:
            raise ValueError(f"logit_bias of token {id} is {shortest(value)}, not finite, or -inf to ban the token")
        records[i] = id, value
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
        ids = [integer("dry_breakers: a token id", token, 0, MAX_INT) for token in sequence]
        if not ids:
            raise ValueError("dry_breakers must not hold an empty sequence")
        flat += [ids[0], len(ids) - 1, *ids[1:]]
    return np.array(flat, np.int32).tobytes()


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

    temperature = finite(&defaults.temperature)
    top_k = whole_number(&defaults.top_k, -MAX_INT)
    top_p = share(&defaults.top_p)
    min_p = share(&defaults.min_p)
    typical_p = share(&defaults.typical_p)
    top_n_sigma = finite(&defaults.top_n_sigma)
    repeat_penalty = positive(&defaults.repeat_penalty)
    repeat_last_n = whole_number(&defaults.penalty_last_n)
    frequency_penalty = finite(&defaults.frequency_penalty)
    presence_penalty = finite(&defaults.presence_penalty)
    dry_multiplier = not_negative(&defaults.dry_multiplier)
    dry_base = not_negative(&defaults.dry_base)
    dry_allowed_length = whole_number(&defaults.dry_allowed_length)
    dry_penalty_last_n = whole_number(&defaults.dry_penalty_last_n)
    xtc_probability = share(&defaults.xtc_probability)
    xtc_threshold = share(&defaults.xtc_threshold)
    dynatemp_range = not_negative(&defaults.dynatemp_range)
    dynatemp_exponent = not_negative(&defaults.dynatemp_exponent)
    mirostat = whole_number(&defaults.mirostat, 0, 2)
    mirostat_tau = not_negative(&defaults.mirostat_tau)
    mirostat_eta = not_negative(&defaults.mirostat_eta)
    min_keep = whole_number(&defaults.min_keep)
    n_tokens = whole_number(&defaults.n_tokens)

    def __cinit__(self, *, seed=None, logit_bias=None, dry_breakers=None, **numbers):
        cdef Number field
        cdef pn_sampling_params *c = &self.c
        c[0] = defaults
        for name, value in numbers.items():
            field = NUMBERS.get(name)
            if field is None:
                raise TypeError(f"SamplingParams has no parameter {name!r}")
            field.store(c, value)
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
        return {name: getattr(self, name) for name in (*NUMBERS, "dry_breakers", "logit_bias", "seed")}

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return self.copy()

    def __repr__(self):
        usual = SamplingParams()._arguments()
        shown = [f"{name}={value!r}" for name, value in self._arguments().items()
                 if name == "seed" or value != usual[name]]
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


NUMBERS = {name: field for name, field in vars(SamplingParams).items() if isinstance(field, Number)}
for _name, _field in NUMBERS.items():
    (<Number>_field).name = _name
