# The types of the C API, which every part of the engine shares; engine.pxd has the functions. No code, no extern
# header: `cimport pantheon` needs nothing else.
#
# Three lives: a pn_model is a loaded file (weights are views into the mapping, shared by all its sequences), a pn_state
# is one sequence (KV cache and scratch of its own), a pn_arena holds what lives for one forward. Each
# pointer says what it points to and who owns that.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    PN_ABI_VERSION = 2                   # grows when a struct or a function of the C API changes
    PN_MODEL_MAX_DIES = 16
    PN_QWEN35MOE_MAX_SEQ_CAP = 262144
    PN_COST_AREAS = 4

ctypedef enum pn_arch:                   # one value per registry row
    PN_ARCH_LLAMA = 0
    PN_ARCH_MISTRAL = 1
    PN_ARCH_QWEN2 = 2
    PN_ARCH_QWEN3 = 3
    PN_ARCH_MIXTRAL = 4
    PN_ARCH_QWEN2MOE = 5
    PN_ARCH_QWEN3MOE = 6
    PN_ARCH_PHI2 = 7
    PN_ARCH_PHI3 = 8
    PN_ARCH_BITNET = 9                   # 1bitLLM's: SiLU
    PN_ARCH_BITNET_B158 = 10             # Microsoft's: squared ReLU
    PN_ARCH_BITNET_25 = 11               # the same under a fork's name
    PN_ARCH_QWEN35 = 12
    PN_ARCH_QWEN35MOE = 13
    PN_ARCH_RWKVX = 14
    PN_ARCH_COUNT = 15

ctypedef enum pn_chat_style:
    PN_CHAT_NONE = 0
    PN_CHAT_TEMPLATE = 1                 # the file carries its own template
    PN_CHAT_CHATML = 2                   # the rest is detected from the vocabulary, used when there is no template
    PN_CHAT_LLAMA3 = 3
    PN_CHAT_MISTRAL = 4
    PN_CHAT_PHI3 = 5
    PN_CHAT_RWKV = 6

ctypedef enum pn_kv_type:
    PN_KV_DEFAULT = 0                    # f16; for qwen35moe q4_0 unless QWEN35_KV_Q4 is 0
    PN_KV_F16 = 1
    PN_KV_F32 = 2
    PN_KV_Q8_0 = 3
    PN_KV_Q4_0 = 4

ctypedef enum pn_rope_kind:
    PN_ROPE_NONE = 0
    PN_ROPE_NORM = 1                     # pair p = elements (2p, 2p + 1)
    PN_ROPE_NEOX = 2                     # pair p = elements (p, p + dims/2)

ctypedef enum pn_rope_scaling:
    PN_ROPE_SCALING_NONE = 0
    PN_ROPE_SCALING_LINEAR = 1
    PN_ROPE_SCALING_YARN = 2
    PN_ROPE_SCALING_LONGROPE = 3
    PN_ROPE_SCALING_LLAMA3 = 4

# ---- models and states ----
cdef struct tm_tensor:                   # a borrowed view
    void *data                           # element (0, 0, 0, 0)
    int type                             # GGUF type number
    int64_t ne[4]                        # elements per dimension, fastest first; missing ones are 1
    size_t nb[4]                         # bytes from one index to the next; nb[0] is a block's size
    char name[64]                        # NUL-terminated

cdef struct pn_config:                   # parsed hyper-parameters: plain numbers, validated before anything uses them
    pn_arch arch
    int n_vocab                          # rows of the LM head: logits per token
    int n_tokens                         # tokens of the vocabulary; ids above are padding and never sampled
    int n_ctx                            # context the model was trained for
    int n_embd
    int n_layer
    int n_head
    int n_kv_head
    int head_dim
    int n_ff
    float norm_eps
    float attn_scale                     # multiplies q . k
    pn_rope_kind rope_kind
    int rope_dims                        # rotated dimensions of a head, even
    float rope_base
    pn_rope_scaling rope_scaling
    float rope_factor
    int rope_orig_ctx
    float rope_attn_factor               # multiplies cos and sin
    float rope_ext_factor                # YaRN
    float rope_beta_fast                 # YaRN
    float rope_beta_slow                 # YaRN
    bint rope_truncate                   # YaRN: the pairs between which it fades are rounded outwards
    float rope_low_freq                  # Llama 3: wavelengths above rope_orig_ctx / low are stretched whole
    float rope_high_freq                 # Llama 3: wavelengths below rope_orig_ctx / high are left alone
    int sliding_window                   # positions a token sees, itself included; 0 = all
    int n_experts                        # 0 = dense
    int n_experts_used
    int n_ff_expert                      # width of one expert
    int n_ff_shared                      # width of the expert that every token goes through; 0 = none
    bint expert_renormalise              # routing weights are divided by their sum
    float expert_scale                   # multiplies the routing weights

cdef extern from *:
    """
    #ifndef PN_OPAQUE_TYPES
    #define PN_OPAQUE_TYPES
    typedef struct pn_arena pn_arena;
    typedef struct fw_pool fw_pool;
    typedef struct ft_tokenizer ft_tokenizer;
    typedef struct pn_reservation pn_reservation;
    #endif
    """
    ctypedef struct pn_arena:            # bump allocator, body in base/arena.pyx
        pass
    ctypedef struct fw_pool:             # thread pool, body in base/pool.pyx
        pass
    ctypedef struct ft_tokenizer:        # vocabulary view, body in files/ft_tokenizer.h
        pass
    ctypedef struct pn_reservation:      # what admission promised to a request, body in memory/memwatch.pyx
        pass

# One token through the model: (n_vocab,) f32 logits in the state's memory, valid until the state's next forward. NULL
# on error, with the text in pn_last_error(). The GIL is not needed.
ctypedef tm_tensor *(*pn_forward_fn)(pn_model *model, uint32_t token, pn_state *state) noexcept nogil

cdef struct pn_load_opts:
    const char *vocab_path               # RWKV World tokenizer
    const char *config_path              # HF config.json of a safetensors model
    bint quantize                        # INT8 at load; RWKV-X only

cdef struct pn_model:
    pn_config config                     # parsed dimensions
    void *weights                        # the architecture's weight struct, owned; holds the mapping
    pn_forward_fn forward
    ft_tokenizer *tokenizer              # borrowed view of the vocabulary in the mapping; NULL for RWKV-X
    char *path                           # malloc, NUL-terminated, owned
    int chat_style                       # pn_chat_style
    void *vision                         # pn_vision_model *, NULL without one
    fw_pool *pool                        # borrowed from the process; NULL without USE_THREADS
    int gpu_dies[PN_MODEL_MAX_DIES]      # explicit placement (pn_load_on)
    int n_gpu_dies                       # 0 = none given, environment and defaults apply

cdef struct pn_state:
    void *kv_cache                       # the architecture's sequence state, owned
    int pos                              # tokens already in the state
    pn_config *config                    # borrowed from the model
    pn_arena *arena                      # scratch of one forward, owned; NULL for RWKV-X and Qwen3.5-MoE
    const float *embd_override           # (n_embd,) f32 or NULL, borrowed: used by forward in place of the token's row

# ---- sampling ----
cdef enum:
    PN_NO_TOKEN = 0xFFFFFFFF             # no token's id

cdef struct pn_logit_bias:
    uint32_t token
    float bias                           # added to the logit; -inf bans the token

cdef struct pn_sampling_params:          # spec of each field: docs/sampling.md; the off value is in brackets
    float temperature                    # <= 0: greedy
    int top_k                            # [0]
    float top_p                          # [1]
    float min_p                          # [0]
    float typical_p                      # [1]
    float top_n_sigma                    # [-1]
    float repeat_penalty                 # [1]
    float frequency_penalty              # [0]
    float presence_penalty               # [0]
    int penalty_last_n                   # window of recent tokens that the three penalties look at [0]
    float dry_multiplier                 # [0]
    float dry_base
    int dry_allowed_length
    int dry_penalty_last_n               # [0]
    float xtc_probability                # [0]
    float xtc_threshold
    float dynatemp_range                 # [0]
    float dynatemp_exponent
    int mirostat                         # [0], 1 or 2
    float mirostat_tau
    float mirostat_eta
    int min_keep                         # the truncations leave at least this many candidates
    int n_tokens                         # ids >= n_tokens are never drawn; 0 = all may be
    uint64_t seed                        # the seed actually used
    int n_bias
    const pn_logit_bias *bias            # (n_bias,) borrowed
    int n_dry_breaker_ids                # length of dry_breaker_ids
    const int32_t *dry_breaker_ids       # borrowed; sequences, each: head token, length of the tail, the tail's tokens
    uint64_t rng[4]                      # xoshiro256** of the draw
    uint64_t xtc_rng[4]                  # the same for XTC
    float mu                             # mirostat

# ---- memory ----
# memwatch publishes a pn_mem_state; the ladder turns it into a pn_ladder_plan; an architecture prices a request as a
# pn_cost; admission compares the two; a granted request holds a pn_reservation until it ends.
ctypedef enum pn_admit_status:
    PN_ADMIT_FIT = 0
    PN_ADMIT_CAPPED = 1
    PN_ADMIT_DENIED = 2

ctypedef enum pn_admit_code:             # of the pure decision, pn_admit_request
    PN_ADMIT_OK = 0
    PN_ADMIT_CAP = 1
    PN_ADMIT_REJECT = 2

ctypedef enum pn_mem_level:
    PN_MEM_OK = 0
    PN_MEM_WATCH = 1
    PN_MEM_TIGHT = 2
    PN_MEM_CRITICAL = 3

cdef struct pn_mem_state:                # nothing but 64-bit words: the seqlock copies it word by word
    uint64_t seq                         # how many samples and changes came before, from 1 on
    uint64_t stamp_ns                    # CLOCK_MONOTONIC of the sample
    uint64_t host_total                  # bytes, the container's where it has a limit; 0: the system does not say
    uint64_t host_avail                  # bytes
    uint64_t host_rss                    # bytes of this process
    uint64_t host_reserved               # promised to running requests and not yet touched when the sample was taken
    uint64_t level                       # pn_mem_level of the host
    uint64_t n_dies                      # 0 without a GPU driver
    uint64_t die_total[PN_MODEL_MAX_DIES]
    uint64_t die_free[PN_MODEL_MAX_DIES]
    uint64_t die_reserved[PN_MODEL_MAX_DIES]
    uint64_t die_level[PN_MODEL_MAX_DIES]

cdef struct pn_ladder_plan:              # what a level asks for; acting on it is the caller's job
    pn_mem_level level
    uint64_t evict_bytes                 # rung 1: of idle prefix-cache entries, to be OK again
    pn_kv_type kv_type                   # rung 2: of new caches whose type was left open; PN_KV_DEFAULT: as ever
    int prefill_window                   # rung 3: most tokens of one prefill call
    uint64_t unload_bytes                # rung 4: of idle models, to be no longer TIGHT
    bint cap                             # rung 5: max_tokens is what fits
    bint deny                            # rung 6: nothing is left for new work

cdef struct pn_cost_area:                # memory of which there is one group per 8 positions
    uint64_t n                           # areas, each rounded up to 64 bytes
    uint64_t group_bytes                 # of 8 positions

cdef struct pn_cost:                     # the price of one sequence; pn_cost_kv and its like add it up
    uint64_t kv_bytes                    # KV of the tokens that were asked for
    uint64_t state_bytes                 # what is fixed per sequence: arena, recurrent and conv state
    uint64_t scratch_bytes               # work buffers of a pass, shared by the model's sequences
    uint64_t logits_bytes                # of all rows that one call gives
    int n_dies                           # dies that hold a part of the sequence
    uint64_t per_die[PN_MODEL_MAX_DIES]  # bytes on each, of the tokens that were asked for
    uint64_t die_state_bytes[PN_MODEL_MAX_DIES]      # of them: what is fixed,
    uint64_t die_token_bytes[PN_MODEL_MAX_DIES]      # and what a token takes
    pn_kv_type kv_type                   # never PN_KV_DEFAULT, except where there is no KV cache
    int n_ctx                            # positions of the state; 0: made for exactly the tokens that are asked for
    int window                           # tokens of one pass over the weights that scratch is for
    uint64_t page_bytes                  # what touching a byte takes; counts where a state has more positions than used
    int max_ctx                          # most positions of a state; 0: the model's context
    bint whole_prompt                    # the prompt is one pass, however long: it must not be cut
    double row_share                     # part of the positions that the areas have rows for; 0: all of them
    int rows_max                         # most rows; 0: any
    int n_areas
    pn_cost_area areas[PN_COST_AREAS]    # what grows per token: KV
    uint64_t checkpoint_bytes            # of one checkpoint of a recurrent state; 0: going back is truncating
    int n_checkpoints                    # that the request takes
    uint64_t held_bytes                  # of all that, already touched by the state that goes on
    uint64_t scratch_held                # already allocated by the model

cdef struct pn_request:
    int n_prompt                         # tokens to be fed, at least 0
    int n_new                            # most tokens to be generated, at least 0; n_prompt + n_new is at least 1
    int n_ctx                            # positions that the state is to have; 0: as many as asked for
    int window                           # most tokens of one prefill call; 0: as many as the model takes
    pn_kv_type kv_type                   # PN_KV_DEFAULT: left open
    int n_checkpoints                    # checkpoints that it will take, at least 0
    int batch                            # sequences of its forward_batch calls, itself included; 0 or 1: it runs alone
    bint all_logits                      # its prefill calls want the logits of every token
    bint quiet                           # no log line: the caller asks more than once for the same work
    uint64_t reclaimable_bytes           # what the caller would free first: evicted cache entries, unloaded models
    const pn_state *state                # the sequence that goes on, borrowed; NULL: a new one

cdef struct pn_verdict:
    pn_admit_status status
    bint checked                         # False: memwatch is off or knows nothing, and the answer is FIT
    int n_tokens                         # tokens asked for
    int fit_tokens                       # how many of them fit
    uint64_t need_bytes                  # for n_tokens, beyond what is held already
    uint64_t have_bytes                  # what new work may take
    pn_kv_type kv_type                   # of the cache
    bint kv_lowered                      # rung 2 chose it
    int window_asked
    int prefill_window                   # most tokens of one prefill call
    int die                              # the die that decided; -1: the host
    pn_ladder_plan plan
    pn_cost cost                         # the prices behind it

# Fills total and free (PN_MODEL_MAX_DIES,), bytes of each die; returns how many dies there are. Called from memwatch's
# thread and from whoever decides, without a lock, maybe by several at once.
ctypedef int (*pn_die_source)(uint64_t *total, uint64_t *free) noexcept nogil

# ---- log lines and interrupts ----
cdef enum:                               # the numbers of Python's logging
    PN_LOG_DEBUG = 10
    PN_LOG_INFO = 20
    PN_LOG_WARNING = 30
    PN_LOG_ERROR = 40

ctypedef void (*pn_log_fn)(int level, const char *text) noexcept nogil
ctypedef bint (*pn_interrupt_fn)(void *arg) noexcept nogil

cdef struct pn_interrupt:                # who is asked whether a call is to stop
    pn_interrupt_fn stop                 # true: the call stops at once with an error
    void *arg                            # handed to stop, the caller's own
