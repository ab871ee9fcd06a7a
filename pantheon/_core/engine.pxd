# The C API of Pantheon: load a model, make states, run tokens through it, sample.
#
# A model is one file in memory, shared by all its states and read-only after loading. A state is one sequence. Calls
# that run a model use its work buffers: one call per model at a time, which is the caller's to see to (the Python
# classes hold a lock). Different models may run in different threads; their runs queue on the process's thread pool.
#
# Functions marked GIL raise Python exceptions. The others need no GIL and return a status; the text of a failure is in
# pn_last_error(), per thread, whichever part of the engine failed. A NULL pointer, a number out of range and a state of
# another model are failures; a freed pointer cannot be told from another one.
from libc.stdint cimport uint32_t

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
from pantheon._core.base.report cimport (
    PN_LOG_DEBUG,
    PN_LOG_ERROR,
    PN_LOG_INFO,
    PN_LOG_WARNING,
    pn_interrupt,
    pn_interrupt_fn,
    pn_last_error,
    pn_log_fn,
    pn_set_interrupt,
    pn_set_log,
)
from pantheon._core.memory.admit cimport pn_admit_request
from pantheon._core.memory.cost cimport pn_cost_die, pn_cost_fit, pn_cost_kv, pn_cost_need, pn_cost_total
from pantheon._core.memory.environment cimport pn_admit_kv_q4
from pantheon._core.memory.ladder cimport pn_ladder_plan_from_state
from pantheon._core.memory.memwatch cimport (
    pn_die_source,
    pn_memwatch_read,
    pn_memwatch_running,
    pn_memwatch_set_dies,
    pn_memwatch_set_limit,
    pn_memwatch_start,
    pn_memwatch_stop,
)
from pantheon._core.memory.state cimport (
    pn_admit_code,
    pn_cost,
    pn_ladder_plan,
    pn_mem_level,
    pn_mem_state,
    pn_request,
    pn_reservation,
    pn_verdict,
)
from pantheon._core.sampling.defaults cimport pn_sampling_defaults, pn_sampling_reset
from pantheon._core.sampling.sampler cimport PN_NO_TOKEN, pn_sample_next_token
from pantheon._core.types cimport (
    PN_ABI_VERSION,
    pn_admit_status,
    pn_arch,
    pn_chat_style,
    pn_config,
    pn_forward_fn,
    pn_kv_type,
    pn_load_opts,
    pn_model,
    pn_sampling_params,
    pn_state,
    tm_tensor,
)

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
