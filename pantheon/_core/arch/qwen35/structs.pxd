# Weights, buffers and states of Qwen3.5: no code.
from libc.stdint cimport uint8_t

from pantheon._core.arch.ops cimport pn_arch_weights
from pantheon._core.base.pool cimport pn_counter
from pantheon._core.kernels.table cimport pn_kernels
from pantheon._core.layers.deltanet cimport pn_deltanet, pn_deltanet_dims, pn_deltanet_state
from pantheon._core.layers.kvcache cimport pn_llama_kv_cache
from pantheon._core.layers.linear cimport pn_group, pn_input
from pantheon._core.layers.matrix cimport pn_matrix, pn_owned
from pantheon._core.layers.moe_weights cimport pn_moe, pn_moe_work
from pantheon._core.layers.rope cimport pn_rope
from pantheon._core.types cimport PN_MODEL_MAX_DIES, pn_state, tm_tensor

cdef struct pn_qwen35moe_layer:
    const float *attn_norm               # (n_embd,) f32, borrowed from the mapping like all vectors here
    bint recurrent                       # Gated DeltaNet, else attention
    int slot                             # its place among the layers of its kind: in the states, in the KV cache
    pn_deltanet delta                    # of a recurrent layer
    pn_group qkv                         # q with gates (n_head * 2 * head_dim, n_embd), a head's query first; k, v
    const float *q_norm                  # (head_dim,)
    const float *k_norm                  # (head_dim,)
    pn_group out                         # (n_embd, n_head * head_dim)
    const float *ffn_norm                # (n_embd,) of the residual sum, before the feed-forward part
    pn_moe moe                           # n_experts 0: a dense layer, of the next two
    pn_group gate_up                     # gate and up (n_ff, n_embd)
    pn_group down                        # (n_embd, n_ff)

cdef struct pn_qwen35moe_mtp:            # a block that drafts the token after the next one; no forward runs it yet
    pn_group eh_proj                     # (n_embd, 2 * n_embd) of the normed embedding, then the normed hidden vector
    const float *enorm                   # (n_embd,)
    const float *hnorm                   # (n_embd,)
    const float *head_norm               # (n_embd,)
    pn_matrix embd                       # (n_vocab, n_embd), the model's when the block has none
    pn_group head                        # (n_vocab, n_embd), likewise
    pn_qwen35moe_layer layer             # attention; slot 0 of a KV cache of its own

# What norms and matrix inputs work on. Shared for several tokens; for a single one every rank has its own, which saves
# barriers.
cdef struct pn_qwen35moe_stream:
    float *x                             # (n_tok, n_embd) residual stream
    float *normed                        # (n_tok, n_embd)
    float *angles                        # (n_tok, rope_dims / 2, 2) cos and sin
    pn_input embd                        # input of the mixers and of the feed-forward part
    pn_input heads                       # input of an attention layer's out
    pn_input values                      # input of a recurrent layer's out
    pn_input ff                          # input of a dense layer's down
    pn_input head                        # input of the LM head, n_out vectors

cdef struct pn_qwen35moe_rank:           # private to one rank
    pn_qwen35moe_stream single
    uint8_t *mixer                       # scratch of attention and of the recurrence
    uint8_t *panel                       # scratch
    uint8_t *gated                       # scratch of a dense layer

cdef struct pn_qwen35moe_work:           # buffers of one run
    int n_tok                            # most tokens
    int n_out                            # most tokens whose logits are wanted
    int n_ranks
    float *qg                            # (n_tok, n_head * 2 * head_dim) queries and gates
    float *q                             # (n_tok, n_head * head_dim) normed and rotated queries
    float *k                             # (n_tok, n_kv_head * head_dim)
    float *v                             # (n_tok, n_kv_head * head_dim)
    float *heads                         # (n_tok, n_head * head_dim) attention's result
    float *qkv                           # (n_tok, channels) of a recurrent layer; up to alpha, in the memory above
    float *z                             # (n_tok, values) gates, then the recurrence's result
    float *beta                          # (n_tok, n_v_head)
    float *alpha                         # (n_tok, n_v_head)
    float *gate                          # (n_ff,) of a single token, dense layers only like the next two
    float *up                            # (n_ff,) of a single token
    float *gated                         # (n_tok, n_ff) when down's weights are floats, else NULL
    pn_moe_work moe                      # of the layers with experts
    float *delta                         # (n_tok, n_embd) what the next residual addition adds
    pn_counter *counters                 # (n_counters,)
    int n_counters
    pn_qwen35moe_stream shared
    pn_qwen35moe_rank *ranks             # (n_ranks,)

cdef struct pn_qwen35moe_model:
    pn_arch_weights base
    const pn_kernels *k
    pn_deltanet_dims dims                # of the recurrent layers
    int n_recurrent                      # recurrent layers
    int n_attention                      # attention layers
    pn_qwen35moe_layer *layers           # (n_layer,)
    pn_qwen35moe_mtp *mtp                # (n_mtp,)
    int n_mtp
    pn_matrix embd                       # (n_vocab, n_embd)
    const float *output_norm             # (n_embd,)
    pn_group head                        # (n_vocab, n_embd), the embedding when tied
    pn_rope rope
    int sections[3]                      # pairs that turn with the text, row and column position; see mrope_angles
    int gpu_dies[PN_MODEL_MAX_DIES]      # explicit placement
    int n_gpu_dies                       # 0 = none given
    pn_owned owned
    pn_qwen35moe_work work               # of all runs, shared by all states of the model
    void *work_memory                    # owned, grown on demand
    size_t work_bytes

cdef struct pn_qwen35moe_state:          # what a pn_state's kv_cache points to
    pn_llama_kv_cache *kv                # of the attention layers, owned
    pn_deltanet_state recurrent          # of the recurrent layers, inside `memory`
    size_t recurrent_bytes               # of both parts, which are adjacent: conv, then s
    bint used                            # the recurrent part is not zero
    bint broken                          # a run stopped in the middle of a chunk: layers stand at different positions
    float *logits                        # (n_vocab,) of the last forward, inside `memory`
    tm_tensor logits_view
    void *memory                         # owned
    size_t nbytes                        # of memory and this struct
