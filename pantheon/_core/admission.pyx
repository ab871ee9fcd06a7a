"""Python's face of admission: what the C API says, as plain values. pantheon/admission.py makes objects of them."""
cimport cython
from libc.stdint cimport uint64_t
from libc.string cimport memset

from pantheon._core.admit_steps cimport pn_admit_set_cuda_forward
from pantheon._core.binding cimport ModelBase, State
from pantheon._core.engine cimport (
    pn_admit_ask,
    pn_admit_progress,
    pn_admit_release,
    pn_admit_reserve,
    pn_model_cost,
)
from pantheon._core.memory.cost cimport pn_cost_kv
from pantheon._core.memory.memwatch cimport pn_reservation_bytes
from pantheon._core.memory.state cimport pn_cost, pn_request, pn_reservation, pn_verdict
from pantheon._core.types cimport PN_ADMIT_DENIED, PN_KV_DEFAULT, pn_kv_type, pn_model

from pantheon._core.binding import KV_TYPES
from pantheon._core.memory.ladder import LEVELS

STATUS = ("FIT", "CAPPED", "DENIED")
KV_NAMES = {value: name for name, value in KV_TYPES.items()}


cdef pn_kv_type kv_number(kv_type) except? PN_KV_DEFAULT:
    if kv_type is None:
        return PN_KV_DEFAULT
    if kv_type not in KV_TYPES:
        raise ValueError(f"kv_type is {kv_type!r}, not one of {', '.join(KV_TYPES)}")
    return KV_TYPES[kv_type]


cdef int integer(str name, value, long low, long high) except? -1:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    number = value.__index__()
    if not low <= number <= high:
        raise ValueError(f"{name} is {number}, not in {low}..{high}")
    return number


@cython.final
cdef class Hold:
    """The reservation of one request; gone with release() or with the object."""
    cdef pn_reservation *reservation
    cdef pn_verdict verdict

    def __dealloc__(self):
        with nogil:
            pn_admit_release(self.reservation)

    def release(self):
        """Ends the reservation. May be called again."""
        cdef pn_reservation *r = self.reservation
        self.reservation = NULL
        with nogil:
            pn_admit_release(r)

    @property
    def nbytes(self):
        """Bytes that are promised; 0 after release, and when nothing was checked."""
        return pn_reservation_bytes(self.reservation)

    def progress(self, int pos, int n_checkpoints=0):
        """The sequence holds pos tokens and as many checkpoints now: what they touched is used, no longer promised."""
        cdef pn_verdict v = self.verdict
        v.cost.n_checkpoints = min(n_checkpoints, v.cost.n_checkpoints)
        with nogil:
            pn_admit_progress(self.reservation, &v, pos)


cdef dict verdict_dict(const pn_verdict *v):
    return {"status": STATUS[<int>v.status], "checked": bool(v.checked), "n_tokens": v.n_tokens,
            "fit_tokens": v.fit_tokens, "need_bytes": v.need_bytes, "have_bytes": v.have_bytes,
            "kv_type": KV_NAMES.get(v.kv_type), "kv_lowered": bool(v.kv_lowered), "window_asked": v.window_asked,
            "prefill_window": v.prefill_window, "level": LEVELS[<int>v.plan.level],
            "evict_bytes": v.plan.evict_bytes, "unload_bytes": v.plan.unload_bytes}


def decide(ModelBase model not None, n_prompt, max_tokens, n_ctx=None, kv_type=None, window=None, State state=None,
           *, n_checkpoints=0, bint hold=False, bint quiet=False, uint64_t reclaimable=0):
    """pn_admit_ask or, with hold, pn_admit_reserve: the verdict's fields as a dict, and a Hold or None.

    ValueError or TypeError naming the argument and the accepted range.
    """
    cdef pn_model *m = model.ptr()
    cdef pn_request q
    cdef pn_verdict v
    cdef Hold held = Hold.__new__(Hold)
    memset(&q, 0, sizeof(q))
    room = m.config.n_ctx
    if n_ctx is not None:
        q.n_ctx = integer("n_ctx", n_ctx, 1, m.config.n_ctx)
        room = n_ctx
    if state is not None:
        if state.model is not model:
            raise ValueError("the state belongs to another model")
        q.state = state.ptr()
        room = state.n_ctx - state.pos
    q.n_prompt = integer("n_prompt", n_prompt, 0, room)
    q.n_new = integer("max_tokens", max_tokens, 0, 2**31 - 1 - q.n_prompt)
    if q.n_prompt + q.n_new < 1:
        raise ValueError(f"n_prompt is 0, not in 1..{room}")
    q.window = integer("window", window, 1, 2**31 - 1) if window is not None else 0
    q.kv_type = kv_number(kv_type)
    q.n_checkpoints = integer("checkpoints", n_checkpoints, 0, 2**31 - 1)
    q.reclaimable_bytes = reclaimable
    q.quiet = quiet
    with nogil:
        if hold:
            pn_admit_reserve(m, &q, &v, &held.reservation)
        else:
            pn_admit_ask(m, &q, &v)
    held.verdict = v
    return verdict_dict(&v), held if hold and v.status != PN_ADMIT_DENIED else None


def cost(ModelBase model not None, n_ctx, kv_type, window):
    """pn_model_cost of a state of n_ctx positions, as a dict; the same errors."""
    cdef pn_model *m = model.ptr()
    cdef pn_cost c
    cdef int n = min(m.config.n_ctx, 4096) if n_ctx is None else integer("n_ctx", n_ctx, 1, m.config.n_ctx)
    cdef int w = 0 if window is None else integer("window", window, 1, 2**31 - 1)
    cdef int i
    pn_model_cost(m, 0, kv_number(kv_type), w, &c)
    if c.max_ctx > 0:
        n = min(n, c.max_ctx)
    return {"n_ctx": (n + 7) // 8 * 8, "kv_type": KV_NAMES.get(c.kv_type), "window": c.window,
            "kv_bytes": pn_cost_kv(&c, n), "state_bytes": c.state_bytes, "scratch_bytes": c.scratch_bytes,
            "logits_bytes": c.logits_bytes, "checkpoint_bytes": c.checkpoint_bytes,
            "per_die": tuple([c.die_state_bytes[i] + c.die_token_bytes[i] * <uint64_t>n for i in range(c.n_dies)])}


def touched_bytes(State state not None):
    """Bytes that a state has really taken: its fixed part, and KV up to its position."""
    cdef pn_cost c
    pn_model_cost(state.model.ptr(), state.n_ctx, kv_number(state.kv_type), 1, &c)
    return pn_cost_kv(&c, state.pos) + c.state_bytes


def set_gpu_resident(ModelBase model):
    """Counts this model's architecture as run from GPU memory, None for no model. For tests."""
    pn_admit_set_cuda_forward(model.ptr().forward if model is not None else NULL)


def work_bytes(ModelBase model not None):
    """Bytes of the work buffers that the model has allocated by now."""
    cdef pn_cost c
    pn_model_cost(model.ptr(), 0, PN_KV_DEFAULT, 1, &c)
    return c.scratch_held
