# cython: auto_pickle=False
"""Python's face of admission: what the C API says, as plain values. pantheon/admission.py makes objects of them."""
cimport cython
from libc.stdint cimport uint64_t
from libc.string cimport memset

from pantheon._core.admit_steps cimport admit_price, pn_admit_set_cuda_forward
from pantheon._core.base.arguments cimport between, integer, whole
from pantheon._core.base.logging_bridge cimport raise_from_handlers
from pantheon._core.engine cimport (
    pn_admit_ask,
    pn_admit_max_window,
    pn_admit_progress,
    pn_admit_release,
    pn_admit_reserve,
    pn_state_kv_type,
    pn_state_n_ctx,
)
from pantheon._core.memory.cost cimport pn_cost_kv
from pantheon._core.memory.memwatch cimport pn_reservation_bytes
from pantheon._core.python.handles cimport ModelHandle, StateHandle
from pantheon._core.python.model cimport ModelBase
from pantheon._core.python.state cimport State, kv_number
from pantheon._core.types cimport (
    PN_ADMIT_DENIED,
    PN_KV_DEFAULT,
    pn_cost,
    pn_kv_type,
    pn_request,
    pn_reservation,
    pn_verdict,
)

from pantheon._core.memory.ladder import LEVELS
from pantheon._core.python.state import KV_TYPES

STATUS = ("FIT", "CAPPED", "DENIED")
KV_NAMES = {value: name for name, value in KV_TYPES.items()}


cdef class ReservationHandle:
    cdef pn_reservation *reservation     # owned

    def __dealloc__(self):
        with nogil:
            pn_admit_release(self.reservation)


@cython.final
cdef class Hold:
    """The reservation of one request; gone with release() or with the object, or with a call that is using it."""
    cdef ReservationHandle handle        # None after release(), and when nothing was granted
    cdef pn_verdict verdict

    def __init__(self):
        raise TypeError("holds are made by decide")

    def release(self):
        """Ends the reservation. May be called again."""
        self.handle = None
        raise_from_handlers()

    @property
    def nbytes(self):
        """Bytes that are promised; 0 after release, and when nothing was checked."""
        cdef ReservationHandle h = self.handle
        return pn_reservation_bytes(h.reservation) if h is not None else 0

    def progress(self, pos, n_checkpoints=0):
        """The sequence holds pos tokens and as many checkpoints now: what they touched is used, no longer promised."""
        cdef int at = <int>integer("pos", pos, 0, 2**31 - 1)
        cdef int kept = <int>integer("checkpoints", n_checkpoints, 0, 2**31 - 1)
        cdef pn_verdict v = self.verdict
        cdef ReservationHandle h = self.handle
        v.cost.n_checkpoints = min(kept, v.cost.n_checkpoints)
        if h is not None:
            with nogil:
                pn_admit_progress(h.reservation, &v, at)


cdef dict verdict_dict(const pn_verdict *v):
    return {"status": STATUS[<int>v.status], "checked": bool(v.checked), "n_tokens": v.n_tokens,
            "fit_tokens": v.fit_tokens, "need_bytes": v.need_bytes, "have_bytes": v.have_bytes,
            "kv_type": KV_NAMES.get(v.kv_type), "kv_lowered": bool(v.kv_lowered), "window_asked": v.window_asked,
            "prefill_window": v.prefill_window, "level": LEVELS[<int>v.plan.level],
            "evict_bytes": v.plan.evict_bytes, "unload_bytes": v.plan.unload_bytes}


def decide(ModelBase model not None, n_prompt, max_tokens, n_ctx=None, kv_type=None, window=None, State state=None,
           n_checkpoints=0, batch=1, bint all_logits=False, *, bint hold=False, bint quiet=False,
           uint64_t reclaimable=0):
    """pn_admit_ask or, with hold, pn_admit_reserve: the verdict's fields as a dict, and a Hold or None.

    ValueError or TypeError naming the argument and the accepted range.
    """
    cdef pn_request q
    cdef pn_verdict v
    cdef ModelHandle m
    cdef StateHandle s = None
    cdef ReservationHandle held = ReservationHandle.__new__(ReservationHandle)
    cdef Hold result = Hold.__new__(Hold)
    cdef int room
    memset(&q, 0, sizeof(q))
    cdef long prompt = whole("n_prompt", n_prompt)
    cdef long new = integer("max_tokens", max_tokens, 0, 2**31 - 1)
    cdef long positions = whole("n_ctx", n_ctx) if n_ctx is not None else 0
    q.window = <int>integer("window", window, 1, 2**31 - 1) if window is not None else 0
    q.kv_type = kv_number(kv_type)
    q.n_checkpoints = <int>integer("checkpoints", n_checkpoints, 0, 2**31 - 1)
    q.batch = <int>integer("batch", batch, 1, 2**31 - 1)
    q.all_logits = all_logits
    q.reclaimable_bytes = reclaimable
    q.quiet = quiet
    m = model.open()                     # from here on no code but the engine's runs
    room = m.model.config.n_ctx
    if n_ctx is not None:
        between("n_ctx", positions, 1, room)
        room = q.n_ctx = <int>positions
    if state is not None:
        s = state.open()
        if state.model is not model:
            raise ValueError("the state belongs to another model")
        q.state = s.state
        room = pn_state_n_ctx(s.state) - s.state.pos
    between("n_prompt", prompt, 0, room)
    between("max_tokens", new, 0, 2**31 - 1 - prompt)
    q.n_prompt, q.n_new = <int>prompt, <int>new
    if prompt + new < 1:
        raise ValueError(f"n_prompt is 0, not in 1..{room}")
    with nogil:
        if hold:
            pn_admit_reserve(m.model, &q, &v, &held.reservation)
        else:
            pn_admit_ask(m.model, &q, &v)
    raise_from_handlers()
    m.check()
    if s is not None:
        s.check()
    result.verdict = v
    result.handle = held
    return verdict_dict(&v), result if hold and v.status != PN_ADMIT_DENIED else None


def cost(ModelBase model not None, n_ctx, kv_type, window, batch=1, bint all_logits=False):
    """Price of a state of n_ctx positions and of these runs, as a dict; the same errors."""
    cdef pn_cost c
    cdef long n = 0 if n_ctx is None else whole("n_ctx", n_ctx)
    cdef int w = 2**31 - 1 if window is None else <int>integer("window", window, 1, 2**31 - 1)
    cdef int rows = <int>integer("batch", batch, 1, 2**31 - 1)
    cdef pn_kv_type type = kv_number(kv_type)
    cdef ModelHandle m = model.open()
    cdef int i
    if n_ctx is not None:
        between("n_ctx", n, 1, m.model.config.n_ctx)
    else:
        n = min(m.model.config.n_ctx, 4096)
    w = min(w, pn_admit_max_window(m.model))     # which may log
    raise_from_handlers()
    if all_logits:                       # no prefill call gives more rows than there are positions
        w = <int>min(<long>w, n)
    admit_price(m.model, 0, type, w, rows, all_logits, &c)
    if c.max_ctx > 0:
        n = min(n, c.max_ctx)
    return {"n_ctx": (n + 7) // 8 * 8, "kv_type": KV_NAMES.get(c.kv_type), "window": c.window,
            "kv_bytes": pn_cost_kv(&c, n), "state_bytes": c.state_bytes, "scratch_bytes": c.scratch_bytes,
            "logits_bytes": c.logits_bytes, "checkpoint_bytes": c.checkpoint_bytes,
            "per_die": tuple([c.die_state_bytes[i] + c.die_token_bytes[i] * <uint64_t>n for i in range(c.n_dies)])}


def touched_bytes(State state not None):
    """Bytes that a state has really taken: its fixed part, and KV up to its position."""
    cdef StateHandle s = state.open()
    cdef pn_cost c
    admit_price(s.model.model, pn_state_n_ctx(s.state), pn_state_kv_type(s.state), 1, 1, False, &c)
    return pn_cost_kv(&c, s.state.pos) + c.state_bytes


def set_gpu_resident(ModelBase model):
    """Counts this model's architecture as run from GPU memory, None for no model. For tests."""
    cdef ModelHandle m = model.open() if model is not None else None
    pn_admit_set_cuda_forward(m.model.forward if m is not None else NULL)


def work_bytes(ModelBase model not None):
    """Bytes of the work buffers that the model has allocated by now."""
    cdef ModelHandle m = model.open()
    cdef pn_cost c
    admit_price(m.model, 0, PN_KV_DEFAULT, 1, 1, False, &c)
    return c.scratch_held
