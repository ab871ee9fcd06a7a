# The structs that every part of the engine shares. No code, no extern header: `cimport pantheon` needs only this file.
#
# Three lives: a pn_model is a loaded file (weights are views into the mapping, shared by all its sequences), a pn_state
# is one sequence (KV cache and scratch of its own), a pn_arena is one forward (reset when the next one begins).
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    PN_ABI_VERSION = 2                   # grows when a struct or a function of the C API changes
    PN_MODEL_MAX_DIES = 16
    PN_QWEN35MOE_MAX_SEQ_CAP = 262144

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

ctypedef enum pn_admit_status:
    PN_ADMIT_FIT = 0
    PN_ADMIT_CAPPED = 1
    PN_ADMIT_DENIED = 2

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
    typedef struct pn_arena pn_arena;            /* bump allocator, body in arena.pyx */
    typedef struct fw_pool fw_pool;              /* thread pool, body in pool.pyx */
    typedef struct ft_tokenizer ft_tokenizer;    /* vocabulary view, body in gguf.pyx */
    #endif
    """
    ctypedef struct pn_arena:
        pass
    ctypedef struct fw_pool:
        pass
    ctypedef struct ft_tokenizer:
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
