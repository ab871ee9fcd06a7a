# cython: auto_pickle=False
"""The C side of a Model.

Lifecycle: handles own the C model and states; a call converts its arguments, which may run any code, and then takes
references to the handles that it uses, so nothing dangles whatever is closed meanwhile. close() never waits: new calls
raise ValueError, a running one ends with it at its next layer, and the memory goes with the last call. Closing a model
closes its states.

Threads: a call takes the model's lock, then releases the GIL. A state that is in a call refuses a second one, and a
model a second one of the same thread, which a signal handler can make (BusyError).
"""
import os

import numpy as np

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from pantheon._core.arch.ops cimport pn_arch_ops, pn_arch_weights
from pantheon._core.base.arguments cimport between, id_array, ids_between, integer, whole
from pantheon._core.base.logging_bridge cimport raise_from_handlers
from pantheon._core.base.report cimport pn_last_error_kind
from pantheon._core.engine cimport (
    pn_admit_kv_type,
    pn_arch_name,
    pn_forward_batch,
    pn_forward_step_begin,
    pn_forward_step_poll,
    pn_last_error,
    pn_load_on,
    pn_model_set_threads,
    pn_model_threads,
    pn_prefill,
    pn_state_new_ex,
    pn_state_set_reach,
)
from pantheon._core.files.gguf_reader cimport from_file
from pantheon._core.files.safetensors cimport safetensors_view
from pantheon._core.load.config cimport config_dict
from pantheon._core.python.handles cimport ModelHandle, StateHandle, on_main_thread, run_watch, watch_begin, watch_end
from pantheon._core.python.state cimport State, kv_number
from pantheon._core.registry cimport ops_of
from pantheon._core.types cimport (
    PN_KV_DEFAULT,
    PN_MODEL_MAX_DIES,
    pn_kv_type,
    pn_load_opts,
    pn_model,
    pn_state,
    tm_tensor,
)

from pantheon._core.base.weak import WeakRegistry
from pantheon._core.chat_styles import NAMES
from pantheon.regular_file import file_name

FAILURES = (RuntimeError, MemoryError, ValueError)       # by pn_error_kind

cdef object failure():
    """The exception of this thread's last failed run."""
    return FAILURES[<int>pn_last_error_kind()](os.fsdecode(pn_last_error()))


cdef int ended(ModelHandle model, StateHandle state, int status) except -1:
    """Raises what ended a run, if anything did. state None: closing one of its states does not."""
    raise_from_handlers()
    model.check()
    if state is not None:
        state.check()
    if status != 0:
        raise failure()
    return 0


cdef uint32_t checked_id(long id, const pn_model *model) except? 0xFFFFFFFF:
    between("token", id, 0, model.config.n_vocab - 1)
    return <uint32_t>id


cdef object token_ids(object tokens):
    """An array of ids that nobody else has, not yet compared with a vocabulary."""
    ids = id_array("tokens", tokens)
    if ids.size == 0:
        raise ValueError("tokens must not be empty")
    if ids.size > 2**31 - 1:
        raise ValueError(f"{ids.size} tokens are more than a state can hold")
    return ids


cdef object logits_copy(const tm_tensor *out, const pn_model *model):
    logits = np.empty(model.config.n_vocab, np.float32)
    memcpy(<void *><size_t>logits.ctypes.data, out.data, model.config.n_vocab * sizeof(float))
    return logits


cdef class ModelBase:
    """The C side of pantheon.Model, which adds the text layer."""

    def __cinit__(self, path, *, config_path=None, vocab_path=None, quantize=False, dies=None, threads=None):
        cdef pn_load_opts opts
        cdef int die_list[PN_MODEL_MAX_DIES]
        cdef int n_dies = 0, n_threads = 0
        cdef bytes name = file_name(path)
        cdef bytes config_name = b"" if config_path is None else file_name(config_path)
        cdef bytes vocab_name = b"" if vocab_path is None else file_name(vocab_path)
        cdef ModelHandle handle = ModelHandle()
        self.states = WeakRegistry()
        opts.config_path = NULL
        opts.vocab_path = NULL
        if config_path is not None:
            opts.config_path = config_name
        if vocab_path is not None:
            opts.vocab_path = vocab_name
        opts.quantize = bool(quantize)
        if dies is not None:
            numbers = list(dies)
            if len(numbers) > PN_MODEL_MAX_DIES:
                raise ValueError(f"dies: {len(numbers)} given, at most {PN_MODEL_MAX_DIES} are possible")
            for die in numbers:
                die_list[n_dies] = <int>integer("dies", die, 0, 2**31 - 1)
                n_dies += 1
        if threads is not None:
            n_threads = <int>integer("threads", threads, 1, 256)
        try:
            handle.model = pn_load_on(name, &opts, die_list if dies is not None else NULL, n_dies)
        finally:
            raise_from_handlers()
        if n_threads > 0:
            pn_model_set_threads(handle.model, n_threads)
        self.handle = handle

    cdef ModelHandle open(self):
        """A reference for one call."""
        if self.handle is None:
            raise ValueError("the model is closed")
        return self.handle

    def close(self):
        """Closes the model and its states, without waiting: new calls raise ValueError, a running one ends with it, and
        the memory is freed when the last call has ended. May be called again, and from a signal handler."""
        cdef ModelHandle handle = self.handle
        self.handle = None
        if handle is not None:
            handle.closing = True
        for state in self.states.alive():
            (<State>state).shut()

    def __enter__(self):
        self.open()
        return self

    def __exit__(self, *error):
        self.close()

    @property
    def closed(self):
        return self.handle is None

    @property
    def path(self):
        cdef ModelHandle h = self.open()
        return os.fsdecode(<bytes>h.model.path)

    @property
    def arch_name(self):
        """Name of the architecture's registry row."""
        cdef ModelHandle h = self.open()
        return pn_arch_name(h.model).decode()

    @property
    def own_vocabulary(self):
        """Whether the architecture has a kind of vocabulary of its own, which load() may be given as a file."""
        cdef ModelHandle h = self.open()
        return ops_of(h.model).vocab_path != NULL

    @property
    def vocab_path(self):
        """Vocabulary that load() was given, or None."""
        cdef ModelHandle h = self.open()
        cdef const pn_arch_ops *ops = ops_of(h.model)
        cdef const char *path = ops.vocab_path(h.model) if ops.vocab_path != NULL else NULL
        return os.fsdecode(<bytes>path) if path != NULL else None

    @property
    def whole_prompts(self):
        """Whether a prompt must be one prefill, because two give another result than one (RWKV-X in memory mode)."""
        cdef ModelHandle h = self.open()
        return ops_of(h.model).whole_prompts != NULL and ops_of(h.model).whole_prompts(h.model)

    @property
    def container(self):
        """What the weights are in: "gguf" or "safetensors"."""
        cdef ModelHandle h = self.open()
        return "gguf" if (<pn_arch_weights *>h.model.weights).gguf != NULL else "safetensors"

    @property
    def mapped(self):
        """True: the weights are mapped files. False: a file of them was read into memory (see PANTHEON_MMAP)."""
        with self.gguf() if self.container == "gguf" else self.safetensors() as file:
            return file.mapped

    @property
    def n_vocab(self):
        """Logits per token."""
        cdef ModelHandle h = self.open()
        return h.model.config.n_vocab

    @property
    def n_ctx_train(self):
        """Context that the model was trained for."""
        cdef ModelHandle h = self.open()
        return h.model.config.n_ctx

    @property
    def threads(self):
        """Threads that take part in this model's runs, 1..256."""
        cdef ModelHandle h = self.open()
        return pn_model_threads(h.model)

    @threads.setter
    def threads(self, n):
        cdef int n_threads = <int>integer("threads", n, 1, 256)
        cdef ModelHandle h = self.open()
        with h.lock:
            pn_model_set_threads(h.model, n_threads)

    @property
    def chat_style(self):
        """How the file says that chats are written: "template", or a style detected from its vocabulary, or "none"."""
        cdef ModelHandle h = self.open()
        return NAMES[h.model.chat_style]

    @property
    def dies(self):
        """GPU dies that load() was given, () when none were."""
        cdef ModelHandle h = self.open()
        return tuple([h.model.gpu_dies[i] for i in range(h.model.n_gpu_dies)])

    def open_states(self):
        """The states of this model that were not closed."""
        return [state for state in self.states.alive() if not (<State>state).closed]

    def config_fields(self):
        """The fields of pn_config as a dict."""
        cdef ModelHandle h = self.open()
        return config_dict(&h.model.config)

    def gguf(self):
        """The model's file as a GGUFFile; ValueError when it is none."""
        cdef ModelHandle h = self.open()
        if (<pn_arch_weights *>h.model.weights).gguf == NULL:
            raise ValueError(f"{self.path}: not a GGUF file")
        return from_file((<pn_arch_weights *>h.model.weights).gguf, h)

    def safetensors(self):
        """The model's weights as a SafetensorsFile; ValueError when they are in none."""
        cdef ModelHandle h = self.open()
        if (<pn_arch_weights *>h.model.weights).safetensors == NULL:
            raise ValueError(f"{self.path}: no safetensors")
        return safetensors_view((<pn_arch_weights *>h.model.weights).safetensors, h)

    def new_state(self, n_ctx=None, kv_type=None, reach=None):
        """A new sequence of up to n_ctx positions (default: min(n_ctx_train, 4096), rounded up to a multiple of 8).

        kv_type: "f16", "f32", "q8_0" or "q4_0"; None: f16 (q4_0 for qwen35moe unless QWEN35_KV_Q4 is 0), or q8_0 while
        memory is short (rung 2 of the ladder).
        reach: positions that the sequence will have, prompt and answer; None: n_ctx. See State.set_reach.
        ValueError naming the argument; MemoryError.
        """
        cdef long n = 0 if n_ctx is None else whole("n_ctx", n_ctx)
        cdef long wanted = 0 if reach is None else whole("reach", reach)
        cdef pn_kv_type type = kv_number(kv_type)
        cdef ModelHandle h = self.open()
        cdef State state = State.__new__(State)
        cdef StateHandle s = StateHandle()
        if n_ctx is not None:
            between("n_ctx", n, 1, h.model.config.n_ctx)
        if reach is not None:
            between("reach", wanted, 1, h.model.config.n_ctx)
        s.model = h
        try:
            s.state = pn_state_new_ex(h.model, <int>n, pn_admit_kv_type(h.model) if type == PN_KV_DEFAULT else type)
        finally:
            raise_from_handlers()
        pn_state_set_reach(s.state, <int>wanted)
        state.handle = s
        state.model = self
        self.states.add(state)           # from here on close() reaches it
        h.check()
        return state

    def forward(self, token, State state not None):
        """Runs one token: (n_vocab,) float32 logits, the caller's own. state.pos grows by one.

        ContextFullError when the state is full, BusyError when another thread is using it.
        """
        cdef long id = whole("token", token)
        cdef ModelHandle h = self.open()
        cdef StateHandle s = state.enter(self, 1)
        cdef uint32_t known
        cdef tm_tensor *out = NULL
        try:
            known = checked_id(id, h.model)
            with h.lock:
                h.check()
                with nogil:
                    out = h.model.forward(h.model, known, s.state)
            ended(h, s, out == NULL)
            return logits_copy(out, h.model)
        finally:
            s.turn.give()

    def prefill(self, tokens, State state not None, all_logits=False):
        """Runs tokens (n,) in order: (n_vocab,) float32 logits of the last, or (n, n_vocab) of all.

        The same bits as n single calls of forward. Ctrl-C and close() stop it within a layer; the state then stands at
        its last whole position. Errors as forward.
        """
        cdef object given = token_ids(tokens)
        cdef bint all = bool(all_logits)
        cdef bint signals = on_main_thread()
        cdef ModelHandle h = self.open()
        cdef uint32_t[::1] ids = ids_between("token", given, h.model.config.n_vocab - 1)
        cdef int n = <int>ids.shape[0], status = 0
        cdef StateHandle s = state.enter(self, n)
        cdef float[:, ::1] out
        cdef run_watch watch
        try:
            logits = np.empty((n if all else 1, h.model.config.n_vocab), np.float32)
            out = logits
            with h.lock:
                s.check()
                watch_begin(&watch, h, s, signals)
                with nogil:
                    status = pn_prefill(h.model, &ids[0], n, s.state, &out[0, 0], all)
                watch_end(&watch)        # before any other Python code runs
            ended(h, s, status)
            return logits if all else logits[0]
        finally:
            s.turn.give()

    def forward_batch(self, tokens, states):
        """Runs tokens[i] in states[i], all different, reading the weights once: (n, n_vocab) float32 logits.

        The same bits as forward of each alone. Errors as forward; then no state has moved.
        """
        cdef object given = token_ids(tokens)
        cdef list sequences = list(states)
        cdef ModelHandle h = self.open()
        cdef uint32_t[::1] ids = ids_between("token", given, h.model.config.n_vocab - 1)
        cdef int n = <int>ids.shape[0], status = 0
        cdef pn_state **pointers
        cdef float[:, ::1] out
        cdef StateHandle s
        cdef list entered = []
        cdef run_watch watch
        if len(sequences) != n:
            raise ValueError(f"{n} tokens for {len(sequences)} states")
        if len({id(state) for state in sequences}) != n:
            raise ValueError("states: the same state is given twice")
        pointers = <pn_state **>malloc(n * sizeof(pn_state *))
        if pointers == NULL:
            raise MemoryError(f"no memory for a list of {n} states")
        try:
            for i, state in enumerate(sequences):
                s = (<State?>state).enter(self, 1)
                entered.append(s)
                pointers[i] = s.state
            logits = np.empty((n, h.model.config.n_vocab), np.float32)
            out = logits
            with h.lock:
                h.check()
                watch_begin(&watch, h, None, False)
                with nogil:
                    status = pn_forward_batch(h.model, &ids[0], pointers, n, &out[0, 0])
                watch_end(&watch)
            ended(h, None, status)
            return logits
        finally:
            free(pointers)
            for s in entered:
                s.turn.give()

    def step_begin(self, token, State state not None):
        """Starts one token without waiting: 0, -1 on error, 1 where the model has no such steps (use forward)."""
        cdef long id = whole("token", token)
        cdef ModelHandle h = self.open()
        cdef StateHandle s = state.enter(self, 1)
        try:
            return pn_forward_step_begin(h.model, checked_id(id, h.model), s.state)
        finally:
            s.turn.give()

    def step_poll(self, State state not None):
        """(1, None) while running, (0, (n_vocab,) logits) when done, (-1, None) on error or where there are no
        steps."""
        cdef ModelHandle h = self.open()
        cdef StateHandle s = state.enter(self, 0)
        cdef tm_tensor *out = NULL
        try:
            status = pn_forward_step_poll(h.model, s.state, &out)
            return (status, None) if status != 0 else (0, logits_copy(out, h.model))
        finally:
            s.turn.give()
