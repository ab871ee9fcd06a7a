"""Python classes over the C API: ModelBase, State, Checkpoint.

Lifecycle: a ModelHandle owns the C model; model and states each hold a reference, so nothing dangles whatever the order
in which they go. close() is idempotent; every use after it raises ValueError. Closing a model closes its states.

Threads: a call takes the model's lock, then releases the GIL. A state that is in a call refuses a second one
(BusyError).
"""
import os
import threading
import weakref

import numpy as np

cimport cython
from cpython.exc cimport PyErr_Occurred
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from pantheon._core.arch.ops cimport pn_arch_weights
from pantheon._core.arch.rwkvx cimport pn_rwkvx_vocab_path, pn_rwkvx_whole_prompts
from pantheon._core.config cimport config_dict
from pantheon._core.engine cimport (
    pn_admit_kv_type,
    pn_arch_name,
    pn_forward_batch,
    pn_forward_step_begin,
    pn_forward_step_poll,
    pn_last_error,
    pn_load_on,
    pn_model_free,
    pn_model_set_threads,
    pn_model_threads,
    pn_prefill,
    pn_set_interrupt,
    pn_state_bytes,
    pn_state_free,
    pn_state_kv_type,
    pn_state_n_ctx,
    pn_state_new_ex,
    pn_state_reset,
    pn_state_restore,
    pn_state_snapshot,
    pn_state_snapshot_bytes,
    pn_state_truncate,
)
from pantheon._core.gguf_reader cimport from_file
from pantheon._core.report cimport pn_last_error_is_memory
from pantheon._core.safetensors cimport safetensors_view
from pantheon._core.types cimport (
    PN_KV_F16,
    PN_KV_F32,
    PN_KV_Q4_0,
    PN_KV_Q8_0,
    PN_MODEL_MAX_DIES,
    pn_load_opts,
    pn_model,
    pn_state,
    tm_tensor,
)

from pantheon.errors import BusyError, ContextFullError
from pantheon.regular_file import file_name

KV_TYPES = {"f16": PN_KV_F16, "f32": PN_KV_F32, "q8_0": PN_KV_Q8_0, "q4_0": PN_KV_Q4_0}
CHAT_STYLES = ("none", "template", "chatml", "llama3", "mistral", "phi3", "rwkv")

cdef extern from "Python.h":
    int PyErr_CheckSignals()


cdef bint signalled() noexcept nogil:
    """Ctrl-C was pressed; the exception is set and raised when the run has returned."""
    with gil:
        return PyErr_CheckSignals() != 0


cdef object failure():
    """The exception of this thread's last failed run."""
    text = pn_last_error().decode()
    return MemoryError(text) if pn_last_error_is_memory() else RuntimeError(text)


cdef int raise_pending() except -1:
    return -1 if PyErr_Occurred() != NULL else 0


cdef class ModelHandle:
    def __dealloc__(self):
        pn_model_free(self.model)


@cython.final
cdef class Checkpoint:
    """A place that a state can go back to; valid until the state is reset, or truncated or restored to before it.

    Where the KV cache is all of a state it holds nothing; a recurrent state is copied.
    """
    cdef readonly int pos
    cdef readonly object state           # weak reference
    cdef void *snapshot                  # (size,) owned; NULL: none is needed, or the checkpoint is no longer valid
    cdef size_t size
    cdef object __weakref__

    def __dealloc__(self):
        free(self.snapshot)

    cdef void drop(self) noexcept:
        free(self.snapshot)
        self.snapshot = NULL
        self.size = 0

    @property
    def nbytes(self):
        """Bytes held beyond the state's own; 0 once it is no longer valid."""
        return self.size

    @property
    def valid(self):
        state = self.state()
        return state is not None and self in (<State>state).checkpoints


cdef uint32_t token_id(object token, const pn_model *model) except? 0xFFFFFFFF:
    cdef object value = token.__index__() if hasattr(token, "__index__") else None
    if value is None or isinstance(token, bool):
        raise TypeError(f"token must be an integer, not {type(token).__name__}")
    if not 0 <= value < model.config.n_vocab:
        raise ValueError(f"token {value} is not in 0..{model.config.n_vocab - 1}")
    return value


cdef object token_ids(object tokens, const pn_model *model):
    """A contiguous uint32 array of checked ids."""
    ids = np.asarray(tokens)
    if ids.ndim != 1 or ids.size == 0:
        raise ValueError(f"tokens must be a non-empty sequence of ids, not of shape {ids.shape}")
    if ids.dtype.kind not in "iu":
        raise TypeError(f"tokens must be integers, not {ids.dtype}")
    low, high = ids.min(), ids.max()
    if low < 0 or high >= model.config.n_vocab:
        raise ValueError(f"token {low if low < 0 else high} is not in 0..{model.config.n_vocab - 1}")
    if ids.size > 2**31 - 1:
        raise ValueError(f"{ids.size} tokens are more than a state can hold")
    return np.ascontiguousarray(ids, np.uint32)


cdef class ModelBase:
    """The C side of pantheon.Model, which adds the text layer."""

    def __cinit__(self, path, *, config_path=None, vocab_path=None, quantize=False, dies=None, threads=None):
        cdef pn_load_opts opts
        cdef int die_list[PN_MODEL_MAX_DIES]
        cdef int n_dies = 0
        cdef bytes name = file_name(path)
        cdef bytes config_name = b"" if config_path is None else file_name(config_path)
        cdef bytes vocab_name = b"" if vocab_path is None else file_name(vocab_path)
        self.lock = threading.Lock()
        self.states = weakref.WeakSet()
        opts.config_path = NULL
        opts.vocab_path = NULL
        if config_path is not None:
            opts.config_path = config_name
        if vocab_path is not None:
            opts.vocab_path = vocab_name
        opts.quantize = bool(quantize)
        if dies is not None:
            if len(dies) > PN_MODEL_MAX_DIES:
                raise ValueError(f"dies: {len(dies)} given, at most {PN_MODEL_MAX_DIES} are possible")
            for die in dies:
                die_list[n_dies] = die
                n_dies += 1
        if threads is not None and not 1 <= threads <= 256:
            raise ValueError(f"threads is {threads}, not in 1..256")
        handle = ModelHandle()
        (<ModelHandle>handle).model = pn_load_on(name, &opts, die_list if dies is not None else NULL, n_dies)
        self.handle = handle
        if threads is not None:
            pn_model_set_threads(self.handle.model, threads)

    cdef pn_model *ptr(self) except NULL:
        if self.handle is None:
            raise ValueError("the model is closed")
        return self.handle.model

    def close(self):
        """Closes the model and its states; waits for a call in progress. May be called again."""
        with self.lock:
            for state in list(self.states):
                (<State>state).release()
            self.handle = None

    def __enter__(self):
        self.ptr()
        return self

    def __exit__(self, *error):
        self.close()

    @property
    def closed(self):
        return self.handle is None

    @property
    def path(self):
        return os.fsdecode(<bytes>self.ptr().path)

    @property
    def arch_name(self):
        """Name of the architecture's registry row."""
        return pn_arch_name(self.ptr()).decode()

    @property
    def vocab_path(self):
        """World vocabulary that load() was given, or None."""
        cdef const char *path = pn_rwkvx_vocab_path(self.ptr())
        return os.fsdecode(<bytes>path) if path != NULL else None

    @property
    def whole_prompts(self):
        """Whether a prompt must be one prefill, because two give another result than one (RWKV-X in memory mode)."""
        return pn_rwkvx_whole_prompts(self.ptr())

    @property
    def container(self):
        """What the weights are in: "gguf" or "safetensors"."""
        return "gguf" if (<pn_arch_weights *>self.ptr().weights).gguf != NULL else "safetensors"

    @property
    def n_vocab(self):
        """Logits per token."""
        return self.ptr().config.n_vocab

    @property
    def n_ctx_train(self):
        """Context that the model was trained for."""
        return self.ptr().config.n_ctx

    @property
    def threads(self):
        """Threads that take part in this model's runs, 1..256."""
        return pn_model_threads(self.ptr())

    @threads.setter
    def threads(self, int n):
        if not 1 <= n <= 256:
            raise ValueError(f"threads is {n}, not in 1..256")
        with self.lock:
            pn_model_set_threads(self.ptr(), n)

    @property
    def chat_style(self):
        """How the file says that chats are written: "template", or a style detected from its vocabulary, or "none"."""
        return CHAT_STYLES[self.ptr().chat_style]

    @property
    def dies(self):
        """GPU dies that load() was given, () when none were."""
        cdef pn_model *model = self.ptr()
        return tuple([model.gpu_dies[i] for i in range(model.n_gpu_dies)])

    def open_states(self):
        """The states of this model that were not closed."""
        return [state for state in self.states if not (<State>state).closed]

    def config_fields(self):
        """The fields of pn_config as a dict."""
        return config_dict(&self.ptr().config)

    def gguf(self):
        """The model's file as a GGUFFile; ValueError when it is none."""
        if (<pn_arch_weights *>self.ptr().weights).gguf == NULL:
            raise ValueError(f"{self.path}: not a GGUF file")
        return from_file((<pn_arch_weights *>self.ptr().weights).gguf, self.handle)

    def safetensors(self):
        """The model's weights as a SafetensorsFile; ValueError when they are in none."""
        if (<pn_arch_weights *>self.ptr().weights).safetensors == NULL:
            raise ValueError(f"{self.path}: no safetensors")
        return safetensors_view((<pn_arch_weights *>self.ptr().weights).safetensors, self.handle)

    def new_state(self, n_ctx=None, kv_type=None):
        """A new sequence of up to n_ctx positions (default: min(n_ctx_train, 4096), rounded up to a multiple of 8).

        kv_type: "f16", "f32", "q8_0" or "q4_0"; None: f16 (q4_0 for qwen35moe unless QWEN35_KV_Q4 is 0), or q8_0 while
        memory is short (rung 2 of the ladder).
        ValueError naming the argument; MemoryError.
        """
        cdef State state = State.__new__(State)
        cdef pn_model *model = self.ptr()
        if kv_type is not None and kv_type not in KV_TYPES:
            raise ValueError(f"kv_type is {kv_type!r}, not one of {', '.join(KV_TYPES)}")
        if n_ctx is not None and not 1 <= n_ctx <= model.config.n_ctx:
            raise ValueError(f"n_ctx is {n_ctx}, not in 1..{model.config.n_ctx}, the model's own context")
        state.state = pn_state_new_ex(model, n_ctx or 0,
                                      KV_TYPES[kv_type] if kv_type is not None else pn_admit_kv_type(model))
        state.handle = self.handle
        state.model = self
        state.checkpoints = weakref.WeakSet()
        self.states.add(state)
        return state

    def forward(self, token, State state not None):
        """Runs one token: (n_vocab,) float32 logits, the caller's own. state.pos grows by one.

        ContextFullError when the state is full, BusyError when another thread is using it.
        """
        cdef pn_model *model = self.ptr()
        cdef pn_state *s = state.enter(self, 1)
        cdef tm_tensor *out
        cdef uint32_t id
        try:
            id = token_id(token, model)
            with self.lock:
                with nogil:
                    out = model.forward(model, id, s)
            if out == NULL:
                raise failure()
            logits = np.empty(model.config.n_vocab, np.float32)
            memcpy(<void *><size_t>logits.ctypes.data, out.data, model.config.n_vocab * sizeof(float))
            return logits
        finally:
            state.busy = False

    def prefill(self, tokens, State state not None, all_logits=False):
        """Runs tokens (n,) in order: (n_vocab,) float32 logits of the last, or (n, n_vocab) of all.

        The same bits as n single calls of forward. Ctrl-C stops within a layer; the state then stands at its last whole
        position. Errors as forward.
        """
        cdef pn_model *model = self.ptr()
        cdef uint32_t[::1] ids = token_ids(tokens, model)
        cdef int n = <int>ids.shape[0], status
        cdef bint all = bool(all_logits)
        cdef bint main = threading.current_thread() is threading.main_thread()
        cdef pn_state *s = state.enter(self, n)
        cdef float[:, ::1] out
        try:
            logits = np.empty((n if all else 1, model.config.n_vocab), np.float32)
            out = logits
            with self.lock:
                with nogil:
                    if main:             # signals are the main thread's
                        pn_set_interrupt(signalled)
                    status = pn_prefill(model, &ids[0], n, s, &out[0, 0], all)
                    pn_set_interrupt(NULL)
                raise_pending()          # before any other Python code runs
            if status != 0:
                raise failure()
            return logits if all else logits[0]
        finally:
            state.busy = False

    def forward_batch(self, tokens, states):
        """Runs tokens[i] in states[i], all different, reading the weights once: (n, n_vocab) float32 logits.

        The same bits as forward of each alone. Errors as forward; then no state has moved.
        """
        cdef pn_model *model = self.ptr()
        cdef uint32_t[::1] ids = token_ids(tokens, model)
        cdef int n = <int>ids.shape[0], status = 0
        cdef pn_state **pointers
        cdef float[:, ::1] out
        cdef list entered = []
        states = list(states)
        if len(states) != n:
            raise ValueError(f"{n} tokens for {len(states)} states")
        if len({id(state) for state in states}) != n:
            raise ValueError("states: the same state is given twice")
        pointers = <pn_state **>malloc(n * sizeof(pn_state *))
        if pointers == NULL:
            raise MemoryError()
        try:
            for i, state in enumerate(states):
                pointers[i] = (<State?>state).enter(self, 1)
                entered.append(state)
            logits = np.empty((n, model.config.n_vocab), np.float32)
            out = logits
            with self.lock:
                with nogil:
                    status = pn_forward_batch(model, &ids[0], pointers, n, &out[0, 0])
            if status != 0:
                raise failure()
            return logits
        finally:
            free(pointers)
            for state in entered:
                (<State>state).busy = False

    def step_begin(self, token, State state not None):
        """Starts one token without waiting: 0, -1 on error, 1 where the model has no such steps (use forward)."""
        cdef pn_model *model = self.ptr()
        cdef pn_state *s = state.enter(self, 1)
        try:
            return pn_forward_step_begin(model, token_id(token, model), s)
        finally:
            state.busy = False

    def step_poll(self, State state not None):
        """(1, None) while running, (0, (n_vocab,) logits) when done, (-1, None) on error or where there are no
        steps."""
        cdef pn_model *model = self.ptr()
        cdef pn_state *s = state.enter(self, 0)
        cdef tm_tensor *out = NULL
        try:
            status = pn_forward_step_poll(model, s, &out)
            if status != 0:
                return status, None
            logits = np.empty(model.config.n_vocab, np.float32)
            memcpy(<void *><size_t>logits.ctypes.data, out.data, model.config.n_vocab * sizeof(float))
            return 0, logits
        finally:
            state.busy = False


cdef class State:
    """One sequence of a model: its KV cache and position. Made by Model.new_state.

    close() frees the memory and may be called again; every other use after it raises ValueError.
    """

    def __init__(self):
        raise TypeError("states are made by Model.new_state")

    def __dealloc__(self):
        pn_state_free(self.state)

    cdef pn_state *ptr(self) except NULL:
        if self.handle is None:
            raise ValueError("the state is closed")
        return self.state

    cdef pn_state *enter(self, ModelBase model, int n) except NULL:
        """Marks the state busy for a call of `model` that adds n positions; the caller clears busy."""
        cdef pn_state *s = self.ptr()
        if self.model is not model:
            raise ValueError("the state belongs to another model")
        if self.busy:
            raise BusyError("another thread is using this state")
        if n > pn_state_n_ctx(s) - s.pos:
            raise ContextFullError(f"{n} more positions do not fit: {s.pos} of n_ctx {pn_state_n_ctx(s)} are used")
        self.busy = True
        return s

    cdef pn_state *idle(self) except NULL:
        cdef pn_state *s = self.ptr()
        if self.busy:
            raise BusyError("another thread is using this state")
        return s

    cdef void release(self) noexcept:
        if self.handle is not None and not self.busy:
            pn_state_free(self.state)
            self.state = NULL
            self.handle = None

    def close(self):
        """Frees the state's memory."""
        if self.busy:
            raise BusyError("another thread is using this state")
        self.release()

    def __enter__(self):
        self.ptr()
        return self

    def __exit__(self, *error):
        self.close()

    @property
    def closed(self):
        return self.handle is None

    @property
    def pos(self):
        """Tokens in the state."""
        return self.ptr().pos

    @property
    def n_ctx(self):
        """Positions that fit."""
        return pn_state_n_ctx(self.ptr())

    @property
    def kv_type(self):
        """Type of the KV cache in use."""
        cdef int used = pn_state_kv_type(self.ptr())
        return next(name for name, value in KV_TYPES.items() if value == used)

    @property
    def nbytes(self):
        """Bytes of the KV cache and scratch."""
        return pn_state_bytes(self.ptr())

    def reset(self):
        """Empties the state: cache zeroed as far as it was used, position 0."""
        pn_state_reset(self.idle())
        self.forget(-1)

    def truncate(self, int pos):
        """Forgets the positions from pos on; ValueError unless 0 <= pos <= self.pos, and where the state is recurrent:
        use a checkpoint there."""
        if pn_state_truncate(self.idle(), pos) != 0:
            raise ValueError(pn_last_error().decode())
        self.forget(pos)

    cdef void forget(self, int pos):
        """Ends the checkpoints behind pos: what their positions held is about to be overwritten."""
        for checkpoint in list(self.checkpoints):
            if (<Checkpoint>checkpoint).pos > pos:
                self.checkpoints.discard(checkpoint)
                (<Checkpoint>checkpoint).drop()

    def checkpoint(self):
        """Remembers where the state is now, for restore. MemoryError; RuntimeError when an interrupted call left a
        recurrent state between two positions."""
        cdef Checkpoint c = Checkpoint.__new__(Checkpoint)
        cdef pn_state *s = self.idle()
        cdef int status
        c.pos = s.pos
        c.state = weakref.ref(self)
        c.size = pn_state_snapshot_bytes(s)
        if c.size > 0:
            c.snapshot = malloc(c.size)
            if c.snapshot == NULL:
                raise MemoryError(f"checkpoint of {c.size:,} bytes")
            self.busy = True
            with nogil:
                status = pn_state_snapshot(s, c.snapshot)
            self.busy = False
            if status != 0:
                raise RuntimeError(pn_last_error().decode())
        self.checkpoints.add(c)
        return c

    def restore(self, Checkpoint checkpoint not None):
        """Goes back to a checkpoint of this state; ValueError when it is another state's or no longer valid."""
        cdef pn_state *s = self.idle()
        cdef int status
        if checkpoint not in self.checkpoints:
            raise ValueError("the checkpoint is another state's, or the state was reset or truncated to before it")
        self.busy = True
        with nogil:
            status = pn_state_restore(s, checkpoint.snapshot, checkpoint.pos)
        self.busy = False
        if status != 0:
            raise ValueError(pn_last_error().decode())
        self.forget(checkpoint.pos)

    @property
    def embd_override(self):
        """float32 (n_embd,) that forward uses in place of the token's embedding until it is None again."""
        self.ptr()
        return self.override

    @embd_override.setter
    def embd_override(self, value):
        cdef pn_state *s = self.idle()
        cdef const float[::1] view
        if value is None:
            s.embd_override = NULL
            self.override = None
            return
        row = np.array(value, np.float32, order="C")
        if row.shape != (s.config.n_embd,):
            raise ValueError(f"embd_override has shape {row.shape}, not ({s.config.n_embd},)")
        row.flags.writeable = False
        view = row
        s.embd_override = &view[0]
        self.override = row
