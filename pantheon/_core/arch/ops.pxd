# What an architecture gives the engine: one pn_arch_ops row, and a weight struct that starts with pn_arch_weights.
#
# A row begins as run_ops() (run.pxd) and differs from it where the architecture does: with a walk, a layer and what
# comes before the first and after the last one, the frame runs it; a state keeps what `keeps` says.
from libc.stdint cimport uint32_t

from pantheon._core.arch.structs cimport pn_kept, pn_layout, pn_pass, pn_run, pn_work
from pantheon._core.base.pool cimport fw_task
from pantheon._core.files.gguf_file cimport gguf_file
from pantheon._core.files.safetensors cimport safetensors_file
from pantheon._core.kernels.table cimport pn_kernels
from pantheon._core.load.config cimport pn_gguf_rules
from pantheon._core.load.source cimport Source
from pantheon._core.types cimport (
    pn_arch,
    pn_chat_style,
    pn_cost,
    pn_forward_fn,
    pn_kv_type,
    pn_model,
    pn_state,
    tm_tensor,
)

cdef struct pn_arch_ops

cdef struct pn_arch_weights:             # first member of every architecture's weight struct
    const pn_arch_ops *ops               # the registry row
    const pn_kernels *k
    gguf_file *gguf                      # owned: the mapping that the weights are views into; NULL for safetensors
    safetensors_file *safetensors        # owned, the same; NULL for GGUF
    int n_threads                        # ranks of this model's runs
    int prefill_window                   # most tokens of one pass over the weights
    int n_states                         # states of this model that were not freed; atomic
    pn_work *work                        # of all runs, shared by all states; owned pages, NULL: none yet
    size_t work_bytes

cdef struct pn_run_sizes:                # the largest runs that work buffers are for
    int window                           # tokens of a prefill call, at least 1
    int batch                            # sequences of a forward_batch call, at least 1
    bint all_logits                      # prefill calls want the logits of every token

# What runs a model from GPU memory: in the architecture's folder, through a table that pantheon.cuda fills. All NULL:
# the architecture has no such path.
cdef struct pn_gpu_ops:
    # nogil. Notes the dies (n_dies,) that an upload would use.
    void (*set_dies)(pn_model *model, const int *dies, int n_dies) noexcept nogil
    # GIL. Uploads the weights: 0, or -1 without a device or room for them, and the model stays on the CPU.
    int (*upload)(pn_model *model) noexcept
    pn_forward_fn forward                # of an uploaded model
    # nogil. As pn_forward_step_begin and pn_forward_step_poll.
    int (*step_begin)(pn_model *model, uint32_t token, pn_state *state) noexcept nogil
    int (*step_poll)(pn_model *model, pn_state *state, tm_tensor **logits_out) noexcept nogil
    void (*free)(pn_model *model) noexcept nogil             # nogil. What upload allocated

cdef struct pn_arch_ops:
    const char *name                     # general.architecture of GGUF
    pn_arch arch
    pn_gguf_rules gguf                   # of its GGUF files
    pn_chat_style chat_style             # with a vocabulary of its own kind, whatever a file says; else PN_CHAT_NONE
    bint quantizes                       # loading may make matrices INT8
    # GIL. Fills model.config, whose arch is set, and model.weights from a source, whose file stays the caller's;
    # ValueError naming the tensor or key.
    int (*load)(pn_model *model, const pn_arch_ops *self, Source f) except -1
    # nogil. Frees model.weights, not the file.
    void (*unload)(pn_model *model) noexcept nogil
    # ---- runs; nogil ----
    int window                           # most tokens of a run, up to RUN_WINDOW
    size_t work_size                     # of its work struct, up to WORK_WORDS
    # Names what the layers read (layout_reads, layout_experts) and the buffers of its work struct; see work.pxd.
    void (*walk)(pn_layout *l, pn_work *work) noexcept nogil
    # What a rank does before the first layer: embedding, and the input of the first layer; then the ranks meet.
    void (*enter)(pn_pass *p) noexcept nogil
    # One layer. On entry the residual stream is whole and its norm is prepared for the layer, on exit so for the next.
    void (*layer)(pn_pass *p, int l) noexcept nogil
    # What follows the last layer: logits.
    void (*leave)(pn_pass *p) noexcept nogil
    # The run's tokens from `first` on are the next n of this state. NULL: the frame notes all that there is.
    void (*add)(pn_run *run, pn_state *state, int first, int n) noexcept nogil
    # What every rank does for a pn_run.
    fw_task task
    # The single-token seam.
    pn_forward_fn forward
    # n tokens into one state; logits_out: (n, n_vocab) when all is set, else (n_vocab,) of the last token. 0, or -1
    # with pn_last_error(); then state.pos is the last whole position.
    int (*prefill)(pn_model *model, const uint32_t *tokens, int n, pn_state *state, float *logits_out,
                   bint all) noexcept nogil
    # One token into each of n different states, one pass over the weights; logits_out: (n, n_vocab). 0 or -1.
    int (*forward_batch)(pn_model *model, const uint32_t *tokens, pn_state **states, int n,
                         float *logits_out) noexcept nogil
    # ---- states ----
    size_t state_size                    # of what state.kv_cache points to, which starts with pn_sequence
    # nogil. What a sequence keeps that asks for n_ctx positions and a KV cache of this type.
    void (*keeps)(const pn_model *model, int n_ctx, pn_kv_type type, pn_kept *kept) noexcept nogil
    # GIL. Allocates state.kv_cache and state.arena; MemoryError.
    int (*state_new)(pn_model *model, pn_state *state, int n_ctx, pn_kv_type type) except -1
    # nogil. Where a state notes that its keys are rotated by LongRoPE's long factors; NULL where none has them.
    bint *(*state_stretched)(const pn_state *state) noexcept nogil
    # nogil. Positions that fit and that the rotation in use is made for.
    int (*state_reach)(const pn_state *state) noexcept nogil
    # nogil.
    void (*state_reset)(pn_state *state) noexcept nogil
    void (*state_free)(pn_state *state) noexcept nogil
    # nogil. Forgets everything from pos on; 0, or -1 with pn_last_error() where the architecture cannot.
    int (*state_truncate)(pn_state *state, int pos) noexcept nogil
    # nogil. What a checkpoint keeps beside the positions in the KV cache: its bytes, a copy of it into `out`, and the
    # way back to it at position pos. The last two: 0, or -1 with pn_last_error(). No bytes: going back is truncating.
    size_t (*state_snapshot_bytes)(const pn_state *state) noexcept nogil
    int (*state_snapshot)(const pn_state *state, void *out) noexcept nogil
    int (*state_restore)(pn_state *state, const void *snapshot, int pos) noexcept nogil
    # nogil. Positions that fit, KV type in use and bytes held.
    int (*state_n_ctx)(const pn_state *state) noexcept nogil
    pn_kv_type (*state_kv_type)(const pn_state *state) noexcept nogil
    size_t (*state_bytes)(const pn_state *state) noexcept nogil
    # nogil. Price of one sequence with a KV cache of this type (PN_KV_DEFAULT: the architecture's own), and of its
    # runs: fills kv_type, window, areas, state_bytes, scratch_bytes and, where it is not 0, checkpoint_bytes of a
    # zeroed *cost. The exact sizes of what state_new, prefill, forward_batch and a checkpoint allocate.
    void (*cost)(const pn_model *model, pn_kv_type type, const pn_run_sizes *sizes, pn_cost *cost) noexcept nogil
    # nogil. Whether two prefills of a prompt's parts give another result than one of all of it; NULL: they never do.
    bint (*whole_prompts)(const pn_model *model) noexcept nogil
    # nogil. The vocabulary file that came with the model, borrowed, or NULL. NULL: vocabularies are in the models.
    const char *(*vocab_path)(const pn_model *model) noexcept nogil
    pn_gpu_ops gpu
