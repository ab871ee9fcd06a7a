# cython: auto_pickle=False
"""State and Checkpoint: a sequence of a model and the places it can go back to (see model.pyx for who may close what).
"""
import weakref

import numpy as np

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize

from pantheon._core.base.arguments cimport between, whole
from pantheon._core.engine cimport (
    pn_last_error,
    pn_state_bytes,
    pn_state_kv_type,
    pn_state_n_ctx,
    pn_state_reach,
    pn_state_reset,
    pn_state_restore,
    pn_state_set_reach,
    pn_state_snapshot,
    pn_state_snapshot_bytes,
    pn_state_truncate,
)
from pantheon._core.python.handles cimport StateHandle
from pantheon._core.types cimport PN_KV_DEFAULT, PN_KV_F16, PN_KV_F32, PN_KV_Q4_0, PN_KV_Q8_0, pn_kv_type

from pantheon._core.base.weak import WeakRegistry
from pantheon._core.base.errors import ContextFullError

KV_TYPES = {"f16": PN_KV_F16, "f32": PN_KV_F32, "q8_0": PN_KV_Q8_0, "q4_0": PN_KV_Q4_0}
KV_NAMES = {value: name for name, value in KV_TYPES.items()}


cdef pn_kv_type kv_number(object kv_type) except? PN_KV_DEFAULT:
    if kv_type is None:
        return PN_KV_DEFAULT
    if not isinstance(kv_type, str) or kv_type not in KV_TYPES:
        raise ValueError(f"kv_type is {kv_type!r}, not one of {', '.join(KV_TYPES)}")
    return KV_TYPES[kv_type]


cdef object kv_name(pn_kv_type kv_type):
    return KV_NAMES.get(<int>kv_type)


@cython.final
cdef class Checkpoint:
    """A place that a state can go back to; valid until the state is reset, or truncated or restored to before it.

    Where the KV cache is all of a state it holds nothing; a recurrent state is copied.
    """
    cdef readonly int pos
    cdef readonly object state           # weak reference
    cdef bytes snapshot                  # b"": none is needed, or the checkpoint is not valid
    cdef bint live                       # it was taken, and not dropped
    cdef object __weakref__

    def __cinit__(self):
        self.snapshot = b""

    def __init__(self):
        raise TypeError("checkpoints are made by State.checkpoint")

    cdef void drop(self) noexcept:
        self.snapshot = b""              # freed when no restore is reading it
        self.live = False

    @property
    def nbytes(self):
        """Bytes held beyond the state's own; 0 once it is no longer valid."""
        return len(self.snapshot) if self.valid else 0

    @property
    def valid(self):
        cdef State state = self.state() if self.live else None
        if state is None or state.handle is None:
            self.drop()
        return self.live


cdef class State:
    """One sequence of a model: its KV cache and position. Made by Model.new_state.

    close() frees the memory and may be called again; every other use after it raises ValueError.
    """

    def __cinit__(self):
        self.checkpoints = WeakRegistry()

    def __init__(self):
        raise TypeError("states are made by Model.new_state")

    cdef StateHandle open(self):
        """A reference for one call."""
        if self.handle is None:
            raise ValueError("the model is closed" if self.model is not None and self.model.closed else
                             "the state is closed")
        return self.handle

    cdef StateHandle begin(self):
        """The same, with the turn taken; the caller gives it back."""
        cdef StateHandle s = self.open()
        s.turn.take()
        return s

    cdef StateHandle enter(self, object model, int n):
        """begin for a call of `model` that adds n positions."""
        cdef StateHandle s
        cdef int room
        if self.handle is not None and self.model is not model:
            raise ValueError("the state belongs to another model")
        s = self.begin()
        room = pn_state_reach(s.state)
        if n > room - s.state.pos:
            s.turn.give()
            kind = "n_ctx" if room == pn_state_n_ctx(s.state) else "reach"
            raise ContextFullError(f"{n} more positions do not fit: {s.state.pos} of {kind} {room} are used")
        return s

    cdef void shut(self):
        cdef StateHandle s = self.handle
        self.handle = None
        if s is not None:
            s.closing = True
            self.forget(-1)

    def close(self):
        """Frees the state's memory, or if a call is running lets that end, with ValueError, and free it."""
        self.shut()

    def __enter__(self):
        self.open()
        return self

    def __exit__(self, *error):
        self.close()

    @property
    def closed(self):
        return self.handle is None

    @property
    def pos(self):
        """Tokens in the state."""
        cdef StateHandle s = self.open()
        return s.state.pos

    @property
    def n_ctx(self):
        """Positions that fit."""
        cdef StateHandle s = self.open()
        return pn_state_n_ctx(s.state)

    @property
    def reach(self):
        """Positions that fit and that the rotation in use is made for; n_ctx but for LongRoPE's short factors."""
        cdef StateHandle s = self.open()
        return pn_state_reach(s.state)

    def set_reach(self, reach):
        """Says how many positions the sequence will have, prompt and answer; None: n_ctx, as in a new state.

        It matters to models whose rotation is another one for long sequences (LongRoPE): all positions of a state have
        the same. ValueError when the positions that the state holds have the other one: reset it first.
        """
        cdef long wanted = 0 if reach is None else whole("reach", reach)
        cdef StateHandle s = self.begin()
        try:
            if reach is not None:
                between("reach", wanted, 1, s.state.config.n_ctx)
            if pn_state_set_reach(s.state, <int>wanted) != 0:
                raise ValueError(pn_last_error().decode())
        finally:
            s.turn.give()

    @property
    def kv_type(self):
        """Type of the KV cache in use."""
        cdef StateHandle s = self.open()
        return kv_name(pn_state_kv_type(s.state))

    @property
    def nbytes(self):
        """Bytes of the KV cache and scratch."""
        cdef StateHandle s = self.open()
        return pn_state_bytes(s.state)

    def reset(self):
        """Empties the state: cache zeroed as far as it was used, position 0."""
        cdef StateHandle s = self.begin()
        try:
            pn_state_reset(s.state)
            self.forget(-1)
        finally:
            s.turn.give()

    def truncate(self, pos):
        """Forgets the positions from pos on; ValueError unless 0 <= pos <= self.pos, and where the state is recurrent:
        use a checkpoint there."""
        cdef long kept = whole("pos", pos)
        cdef StateHandle s = self.begin()
        try:
            between("cannot truncate: pos", kept, 0, s.state.pos)
            if pn_state_truncate(s.state, <int>kept) != 0:
                raise ValueError(pn_last_error().decode())
            self.forget(<int>kept)
        finally:
            s.turn.give()

    cdef void forget(self, int pos):
        """Ends the checkpoints behind pos: what their positions held is about to be overwritten. No Python function is
        called, in which a signal handler could run and leave some of them."""
        for checkpoint in self.checkpoints.alive():
            if (<Checkpoint>checkpoint).pos > pos:
                self.checkpoints.discard(checkpoint)
                (<Checkpoint>checkpoint).drop()

    def checkpoint(self):
        """Remembers where the state is now, for restore. MemoryError; RuntimeError when an interrupted call left a
        recurrent state between two positions."""
        cdef Checkpoint c = Checkpoint.__new__(Checkpoint)
        cdef StateHandle s = self.begin()
        cdef char *room
        cdef int status
        try:
            c.pos = s.state.pos
            c.state = weakref.ref(self)
            c.snapshot = PyBytes_FromStringAndSize(NULL, pn_state_snapshot_bytes(s.state))
            room = c.snapshot
            with nogil:
                status = pn_state_snapshot(s.state, room)
            if status != 0:
                raise RuntimeError(pn_last_error().decode())
            c.live = True
            self.checkpoints.add(c)      # from here on close() reaches it
            s.check()
            return c
        finally:
            s.turn.give()

    def restore(self, Checkpoint checkpoint not None):
        """Goes back to a checkpoint of this state; ValueError when it is another state's or no longer valid."""
        cdef StateHandle s = self.begin()
        cdef bytes snapshot
        cdef const char *kept
        cdef int status
        try:
            if checkpoint not in self.checkpoints:
                raise ValueError("the checkpoint is another state's, or the state was reset or truncated to before it")
            snapshot = checkpoint.snapshot
            kept = snapshot
            with nogil:
                status = pn_state_restore(s.state, kept, checkpoint.pos)
            s.check()
            if status != 0:
                raise ValueError(pn_last_error().decode())
            self.forget(checkpoint.pos)
        finally:
            s.turn.give()

    @property
    def embd_override(self):
        """float32 (n_embd,) that forward uses in place of the token's embedding until it is None again."""
        cdef StateHandle s = self.open()
        return s.override

    @embd_override.setter
    def embd_override(self, value):
        cdef const float[::1] view
        row = None if value is None else np.array(value, np.float32, order="C")
        cdef StateHandle s = self.begin()
        try:
            if row is None:
                s.state.embd_override = NULL
            elif row.shape != (s.state.config.n_embd,):
                raise ValueError(f"embd_override has shape {row.shape}, not ({s.state.config.n_embd},)")
            else:
                row.flags.writeable = False
                view = row
                s.state.embd_override = &view[0]
            s.override = row
        finally:
            s.turn.give()
