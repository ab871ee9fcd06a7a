# cython: auto_pickle=False
"""Python's face of admission: the C API's decisions and prices. pantheon/admission.py does what the ladder asks for."""
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
from pantheon._core.python.state cimport State, kv_name, kv_number
from pantheon._core.types cimport (
    PN_ADMIT_CAPPED,
    PN_ADMIT_DENIED,
    PN_ADMIT_FIT,
    PN_KV_DEFAULT,
    pn_cost,
    pn_kv_type,
    pn_request,
    pn_reservation,
    pn_verdict,
)

from pantheon._core.memory.ladder import LEVELS
from pantheon.verdict import Cost, Verdict

STATUS = ("FIT", "CAPPED", "DENIED")


cdef class ReservationHandle:
    cdef pn_reservation *reservation     # owned

    def __dealloc__(self):
        with nogil:
            pn_admit_release(self.reservation)


@cython.final
cdef class Decision:
    """What admission said of a request, and the reservation that it made: gone with release() or with the object, or
    with a call that is using it."""
    cdef ReservationHandle handle        # None after release(), and when nothing was granted
    cdef pn_verdict said
    cdef int n_prompt

    def __init__(self):
        raise TypeError("decisions are made by decide")

    @property
    def granted(self):
        """Whether the request may run, until release()."""
        return self.handle is not None

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
        cdef pn_verdict v = self.said
        cdef ReservationHandle h = self.handle
        v.cost.n_checkpoints = min(kept, v.cost.n_checkpoints)
        if h is not None:
            with nogil:
                pn_admit_progress(h.reservation, &v, at)

    @property
    def level(self):
        """Level of the ladder: "OK", "WATCH", "TIGHT" or "CRITICAL"."""
        return LEVELS[<int>self.said.plan.level]

    @property
    def short(self):
        """Bytes that are lacking for the request in full; 0 when it has them, or lacks something else."""
        cdef const pn_verdict *v = &self.said
        return v.need_bytes - v.have_bytes if v.status != PN_ADMIT_FIT and v.need_bytes > v.have_bytes else 0

    def wanted(self, int rung):
        """Bytes that the caller is to free of what is idle: rung 1, cache entries; 4, models."""
        return max(self.said.plan.evict_bytes if rung == 1 else self.said.plan.unload_bytes, self.short)

    def verdict(self, steps=()):
        """The Verdict; steps: what was done for the request before."""
        cdef const pn_verdict *v = &self.said
        cdef int n_new = v.n_tokens - self.n_prompt
        kv_type = kv_name(v.kv_type)
        tokens = f"{v.fit_tokens} of {v.n_tokens} tokens fit"
        steps = list(steps)
        if v.kv_lowered:
            steps.append(f"rung 2: {self.level}, KV cache {kv_type} instead of f16")
        if v.prefill_window < v.window_asked:
            steps.append(f"rung 3: {self.level}, prefill window {v.window_asked} -> {v.prefill_window}")
        if self.short and v.status == PN_ADMIT_CAPPED:
            steps.append(f"rung 5: {self.level}, max_tokens {n_new} -> {v.fit_tokens - self.n_prompt}")
        elif self.short:
            steps.append(f"rung 6: {self.level}, denied")
        if self.short:
            reason = f"memory: {tokens}, {v.need_bytes} bytes are needed and {v.have_bytes} can be had"
        elif v.status != PN_ADMIT_FIT:
            reason = f"context: {tokens}"
        else:
            reason = "" if v.checked else "not checked: memwatch is off or knows nothing"
        return Verdict(STATUS[<int>v.status], v.n_tokens, v.fit_tokens, v.need_bytes, v.have_bytes, kv_type,
                       v.prefill_window, tuple(steps), reason)


def decide(ModelBase model not None, n_prompt, max_tokens, n_ctx=None, kv_type=None, window=None, State state=None,
           n_checkpoints=0, batch=1, bint all_logits=False, *, bint hold=False, bint quiet=False,
           uint64_t reclaimable=0):
    """The Decision of pn_admit_ask or, with hold, pn_admit_reserve.

    ValueError or TypeError naming the argument and the accepted range.
    """
    cdef pn_request q
    cdef ModelHandle m
    cdef StateHandle s = None
    cdef ReservationHandle held = ReservationHandle.__new__(ReservationHandle)
    cdef Decision decision = Decision.__new__(Decision)
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
    decision.n_prompt = q.n_prompt
    if prompt + new < 1:
        raise ValueError(f"n_prompt is 0, not in 1..{room}")
    with nogil:
        if hold:
            pn_admit_reserve(m.model, &q, &decision.said, &held.reservation)
        else:
            pn_admit_ask(m.model, &q, &decision.said)
    raise_from_handlers()
    m.check()
    if s is not None:
        s.check()
    if hold and decision.said.status != PN_ADMIT_DENIED:
        decision.handle = held
    return decision


def cost(ModelBase model not None, n_ctx, kv_type, window, batch=1, bint all_logits=False):
    """The Cost of a state of n_ctx positions and of these runs; the same errors."""
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
    per_die = tuple([c.die_state_bytes[i] + c.die_token_bytes[i] * <uint64_t>n for i in range(c.n_dies)])
    return Cost((n + 7) // 8 * 8, kv_name(c.kv_type), c.window, pn_cost_kv(&c, n), c.state_bytes, c.scratch_bytes,
                c.logits_bytes, per_die, c.checkpoint_bytes)


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
