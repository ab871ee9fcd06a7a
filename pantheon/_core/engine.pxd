# The C API of Pantheon: load a model, make states, run tokens through it, sample; and ask for memory before any of it.
# Its types are in types.pxd. What other modules define is declared here once more, and the compiler compares: nobody
# needs more than these two files.
#
# A model is one file in memory, shared by all its states and read-only after loading. A state is one sequence. Calls
# that run a model use its work buffers: one call per model at a time, which is the caller's to see to (the Python
# classes hold a lock). Different models may run in different threads; their runs queue on the process's thread pool.
#
# Functions marked GIL raise Python exceptions. The others need no GIL and return a status; the text of a failure is in
# pn_last_error(), per thread, whichever part of the engine failed. A NULL pointer, a number out of range and a state of
# another model are failures; a freed pointer cannot be told from another one. Pointers that a function takes are
# borrowed until it returns, unless it says otherwise.
from libc.stdint cimport uint32_t, uint64_t

from pantheon._core.admit_steps cimport (
    pn_admit,
    pn_admit_ask,
    pn_admit_gpu_resident,
    pn_admit_kv_type,
    pn_admit_max_window,
    pn_admit_progress,
    pn_admit_release,
    pn_admit_reserve,
    pn_admit_worst_die,
    pn_cost_of,
)
from pantheon._core.base.report cimport pn_last_error, pn_set_interrupt, pn_set_log
from pantheon._core.memory.admit cimport pn_admit_request
from pantheon._core.memory.cost cimport pn_cost_die, pn_cost_fit, pn_cost_kv, pn_cost_need, pn_cost_total
from pantheon._core.memory.environment cimport pn_admit_kv_q4
from pantheon._core.memory.ladder cimport pn_ladder_plan_from_state
from pantheon._core.memory.memwatch cimport (
    pn_memwatch_read,
    pn_memwatch_running,
    pn_memwatch_set_dies,
    pn_memwatch_set_limit,
    pn_memwatch_start,
    pn_memwatch_stop,
)
from pantheon._core.sampling.defaults cimport pn_sampling_defaults, pn_sampling_reset
from pantheon._core.sampling.sampler cimport pn_sample_next_token
from pantheon._core.types cimport (
    PN_ABI_VERSION,
    pn_admit_code,
    pn_admit_status,
    pn_arch,
    pn_config,
    pn_cost,
    pn_die_source,
    pn_forward_fn,
    pn_interrupt,
    pn_kv_type,
    pn_ladder_plan,
    pn_load_opts,
    pn_log_fn,
    pn_mem_state,
    pn_model,
    pn_request,
    pn_reservation,
    pn_sampling_params,
    pn_state,
    pn_verdict,
    tm_tensor,
)

# ---- version ----
# Nobody makes one: its size tells versions apart. Whoever imports an extension that was compiled against other structs,
# or another PN_ABI_VERSION, gets "AbiVersion size changed, may indicate binary incompatibility", a ValueError.
cdef api class AbiVersion [object pn_abi_version_object, type pn_abi_version_type, check_size error]:
    cdef void *version[PN_ABI_VERSION]
    cdef pn_model model
    cdef pn_config config[2]             # of 4-byte fields: twice, so that one more is not lost in padding
    cdef pn_state state
    cdef pn_load_opts opts
    cdef tm_tensor tensor
    cdef pn_sampling_params sampling
    cdef pn_mem_state memory
    cdef pn_request request
    cdef pn_verdict verdict

# nogil. PN_ABI_VERSION of the installed library.
cdef int pn_abi_version() noexcept nogil

# ---- errors, log lines, interrupts ----
# nogil. Text of this thread's last failed call, never NULL; the thread's until its next failure.
cdef const char *pn_last_error() noexcept nogil
# nogil. Receives every log line, possibly from several threads at once; NULL: nothing is printed or kept. No lock of
# the engine is held then but, during a run, the thread pool's.
cdef void pn_set_log(pn_log_fn callback) noexcept nogil
# nogil. From now on long calls of this thread ask `now` between layers, NULL: nobody. It is borrowed until the next
# pn_set_interrupt; returns what was set before, so that calls can nest.
cdef const pn_interrupt *pn_set_interrupt(const pn_interrupt *now) noexcept nogil

# ---- models ----
# GIL; the caller owns the result. path is in the file system's encoding: a GGUF file, a safetensors file or index, or
# the folder of a Hugging Face model. OSError, ValueError or MemoryError naming the file.
cdef pn_model *pn_load(const char *path) except NULL
cdef pn_model *pn_load_ex(const char *path, const pn_load_opts *opts) except NULL
# GIL. Also records the GPU dies (n_dies,) that the weights are to be placed on, before anything is uploaded; dies may
# be NULL with n_dies 0.
cdef pn_model *pn_load_on(const char *path, const pn_load_opts *opts, const int *dies, int n_dies) except NULL
# GIL. 0; -1 when a state of the model was not freed yet, and then the model stays. NULL is allowed.
cdef int pn_model_free(pn_model *model) noexcept
# nogil. Ranks that take part in this model's runs, 1..256, the caller included; always 1 in a build without threads.
# May be changed between runs, whatever states there are. -1 on error; the other: 0 or -1.
cdef int pn_model_threads(const pn_model *model) noexcept nogil
cdef int pn_model_set_threads(pn_model *model, int n_threads) noexcept nogil
# nogil. Name of the model's architecture, static; NULL without a model.
cdef const char *pn_arch_name(const pn_model *model) noexcept nogil
# nogil. The CPU forward of an architecture; NULL for a number that is none.
cdef pn_forward_fn pn_get_forward_fn(pn_arch arch) noexcept nogil

# ---- states ----
# GIL; the caller owns the result, model must outlive it. n_ctx 0: min(the model's, 4096), rounded up to a multiple of
# 8. MemoryError, or ValueError naming the argument.
cdef pn_state *pn_state_new(pn_model *model) except NULL
cdef pn_state *pn_state_new_ex(pn_model *model, int n_ctx, pn_kv_type kv_type) except NULL
# nogil. How many positions a sequence will have, prompt and answer; 0: as many as fit, which is what a new state has.
# It matters where the rotation is another one for long sequences (LongRoPE): all positions of a state have the same.
# 0, or -1 when reach is negative or the state holds positions of the other one: pn_state_reset() first.
cdef int pn_state_set_reach(pn_state *state, int reach) noexcept nogil
# nogil. Positions that fit and that the rotation in use is made for: at most pn_state_n_ctx(). -1 without a state.
cdef int pn_state_reach(const pn_state *state) noexcept nogil
# nogil. Zeroes K and V as far as they were used; pos becomes 0. 0, or -1 without a state.
cdef int pn_state_reset(pn_state *state) noexcept nogil
# nogil. NULL is allowed.
cdef void pn_state_free(pn_state *state) noexcept nogil
# nogil. Forgets the positions from pos on; 0, or -1 when pos is not in 0..state.pos or the architecture cannot go back.
cdef int pn_state_truncate(pn_state *state, int pos) noexcept nogil
# nogil. Going back to where a state has been. A snapshot is pn_state_snapshot_bytes long, 0 where the KV cache is all;
# it brings the state back to the position that it was taken at, as long as the cache still holds the positions before
# it: restoring an earlier one, truncating to before it or a reset ends it. pos is where it was taken. 0 or -1.
cdef size_t pn_state_snapshot_bytes(const pn_state *state) noexcept nogil
cdef int pn_state_snapshot(const pn_state *state, void *out) noexcept nogil
cdef int pn_state_restore(pn_state *state, const void *snapshot, int pos) noexcept nogil
# nogil. Positions that fit; KV type in use; bytes held. Without a state -1, PN_KV_DEFAULT and 0.
cdef int pn_state_n_ctx(const pn_state *state) noexcept nogil
cdef pn_kv_type pn_state_kv_type(const pn_state *state) noexcept nogil
cdef size_t pn_state_bytes(const pn_state *state) noexcept nogil

# ---- forward ----
# nogil. The single-token seam is model.forward(model, token, state).
# n tokens, at least 1, into one state. logits_out: (n, n_vocab) f32 when all is set, else (n_vocab,) of the last token.
# 0 or -1; after -1 the state stands at its last whole position. embd_override does not count.
cdef int pn_prefill(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out,
                    bint all) noexcept nogil
# nogil. One token into each of n >= 1 different states in one pass over the weights. logits_out: (n, n_vocab) f32. 0 or
# -1.
cdef int pn_forward_batch(pn_model *model, const uint32_t *tokens, pn_state **states, int n,
                          float *logits_out) noexcept nogil
# nogil. Starts one token without waiting for it: 0, -1 on error, 1 where that is not supported (use model.forward).
cdef int pn_forward_step_begin(pn_model *model, uint32_t token, pn_state *state) noexcept nogil
# nogil. 1 while running; 0 when done, *logits_out set as by forward; -1 on error and where steps are not supported.
cdef int pn_forward_step_poll(pn_model *model, pn_state *state, tm_tensor **logits_out) noexcept nogil

# ---- sampling ----
# nogil. Every field at its default, no bias, no breakers, and pn_sampling_reset. 0, or -1 without params.
cdef int pn_sampling_defaults(pn_sampling_params *params, uint64_t seed) noexcept nogil
# nogil. Restarts both random streams from params.seed and mu at 2 * mirostat_tau. 0, or -1 without params.
cdef int pn_sampling_reset(pn_sampling_params *params) noexcept nogil
# nogil. Draws a token from logits (n_vocab,), which are changed in place: afterwards they hold what bias, penalties and
# DRY made of them, with -inf for every banned id and from params.n_tokens on. recent_tokens (n_recent,), most recent
# last; NULL when n_recent is 0. rng, xtc_rng and mu of params move on. Any number of threads may sample at once, each
# with its own logits and params. PN_NO_TOKEN on error, with rng, xtc_rng and mu as they were: a NaN logit, nothing left
# to draw, a malformed argument, no memory.
cdef uint32_t pn_sample_next_token(float *logits, int n_vocab, pn_sampling_params *params,
                                   uint32_t *recent_tokens, int n_recent) noexcept nogil

# ---- admission ----
# nogil. Whether n_tokens fit into memory, before any work on them: FIT, CAPPED with how many fit in *fit_tokens_out
# (which may be NULL), or DENIED. FIT, unchecked, while memwatch is not running. Only asks: nothing is held. DENIED and
# pn_last_error() without a model and for fewer than one token.
cdef pn_admit_status pn_admit(pn_model *model, int n_tokens, int *fit_tokens_out) noexcept nogil
# nogil. The same for a request in full; v has the numbers and what the ladder asks for. DENIED and pn_last_error() for
# numbers that no request can have, contexts beyond the model's among them.
cdef pn_admit_status pn_admit_ask(pn_model *model, const pn_request *request, pn_verdict *v) noexcept nogil
# nogil. Asks and holds: with FIT and CAPPED *out is a reservation of what v.fit_tokens need, which the caller owns and
# releases when the request has ended and its memory is freed. *out is NULL with DENIED, and with FIT when nothing was
# checked.
cdef pn_admit_status pn_admit_reserve(pn_model *model, const pn_request *request, pn_verdict *v,
                                      pn_reservation **out) noexcept nogil
# nogil. The sequence holds pos tokens by now: what they touched is no longer promised but used. v: of the reserve.
# NULL, and a reservation that was released, are allowed.
cdef void pn_admit_progress(pn_reservation *reservation, const pn_verdict *v, int pos) noexcept nogil
# nogil. NULL is allowed.
cdef void pn_admit_release(pn_reservation *reservation) noexcept nogil
# nogil. The decision itself, a pure function: whether a sequence of n_tokens fits what the state has free, all of it
# (PN_ADMIT_OK), *fit_tokens of it (PN_ADMIT_CAP) or none (PN_ADMIT_REJECT, *fit_tokens 0; also on error). max_window
# bounds the tokens of a prefill call: scratch that the cost states for a longer one is scaled down to it. Every die
# that holds a part of the sequence is asked too.
cdef pn_admit_code pn_admit_request(const pn_mem_state *st, const pn_cost *cost, int n_tokens, int max_window,
                                    int *fit_tokens) noexcept nogil
# nogil. KV type for a new state whose type was left open: what the ladder asks for now, else PN_KV_DEFAULT.
cdef pn_kv_type pn_admit_kv_type(const pn_model *model) noexcept nogil
# nogil. The helpers of pn_admit: whether Qwen3.5-MoE keeps its KV cache in q4_0 (true unless QWEN35_KV_Q4=0); whether
# the model runs from GPU memory; most tokens of a prefill call (QWEN35_MAX_SEQ, the context), -1 on error; the die with
# the least free memory, -1 without one.
cdef bint pn_admit_kv_q4() noexcept nogil
cdef bint pn_admit_gpu_resident(const pn_model *model) noexcept nogil
cdef int pn_admit_max_window(const pn_model *model) noexcept nogil
cdef int pn_admit_worst_die(const pn_mem_state *st) noexcept nogil

# ---- prices ----
# nogil. The price of one sequence of n_prompt + n_new tokens in a state that is made for just as many, fed by prefill
# calls of window tokens (0: as many as the model takes). 0 or -1.
cdef int pn_cost_of(const pn_model *model, int n_prompt, int n_new, int window, pn_kv_type kv_type,
                    pn_cost *out) noexcept nogil
# nogil. Bytes of a sequence of n tokens. 0 on error.
# KV alone: what is allocated for them, or with c.n_ctx what they touch of it.
cdef uint64_t pn_cost_kv(const pn_cost *c, int n) noexcept nogil
# All of it, scratch, logits and the request's checkpoints included;
cdef uint64_t pn_cost_total(const pn_cost *c, int n) noexcept nogil
# of that, what the process does not hold yet;
cdef uint64_t pn_cost_need(const pn_cost *c, int n) noexcept nogil
# and what is on one die.
cdef uint64_t pn_cost_die(const pn_cost *c, int die, int n) noexcept nogil
# nogil. The most tokens up to n whose need is not above have. 0 on error.
cdef int pn_cost_fit(const pn_cost *c, uint64_t have, int n) noexcept nogil

# ---- memwatch ----
# nogil. Starts sampling every interval_ms (1..60000), or changes the interval. PANTHEON_MEMORY_LIMIT counts from then
# on, unless a limit was set by a call. 0, or -1: the interval or that variable is out of range; or the system gives no
# thread, in which case memwatch is running all the same and whoever decides samples.
cdef int pn_memwatch_start(int interval_ms) noexcept nogil
# nogil. Ends sampling; pn_admit then answers FIT, unchecked. May be called again.
cdef void pn_memwatch_stop() noexcept nogil
cdef bint pn_memwatch_running() noexcept nogil
# nogil. Copies the newest record, however old; all zero before the first sample.
cdef void pn_memwatch_read(pn_mem_state *st) noexcept nogil
# nogil. What this process may take, in bytes that are not backed by files, at most 2^62; 0: no limit of its own, and
# the next start looks at PANTHEON_MEMORY_LIMIT again. Samples at once. 0 or -1.
cdef int pn_memwatch_set_limit(uint64_t bytes) noexcept nogil
# nogil. Where the numbers of the GPU dies come from; NULL: there are none.
cdef void pn_memwatch_set_dies(pn_die_source source) noexcept nogil
# nogil. What the ladder asks for in this condition, a pure function of it and of the process's thresholds. An empty
# plan without a state.
cdef void pn_ladder_plan_from_state(const pn_mem_state *st, pn_ladder_plan *plan) noexcept nogil
