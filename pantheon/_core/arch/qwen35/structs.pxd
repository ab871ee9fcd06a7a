# Weights and buffers of Qwen3.5: no code.
from pantheon._core.arch.ops cimport pn_arch_weights
from pantheon._core.arch.structs cimport pn_work
from pantheon._core.layers.deltanet cimport pn_deltanet, pn_deltanet_dims, pn_deltanet_step
from pantheon._core.layers.linear cimport pn_group
from pantheon._core.layers.matrix cimport pn_matrix, pn_owned
from pantheon._core.layers.moe_weights cimport pn_moe
from pantheon._core.layers.rope cimport pn_rope
from pantheon._core.types cimport PN_MODEL_MAX_DIES

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

cdef struct pn_qwen35moe_work:
    pn_work base
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
    pn_deltanet_step step                # of the recurrent layers: the buffers above, and the run's sequences

cdef struct pn_qwen35moe_model:
    pn_arch_weights base
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
