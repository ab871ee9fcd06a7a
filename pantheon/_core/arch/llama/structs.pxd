# Weights and buffers of the transformer family: no code.
from pantheon._core.arch.ops cimport pn_arch_weights
from pantheon._core.arch.structs cimport pn_work
from pantheon._core.layers.linear cimport pn_group
from pantheon._core.layers.matrix cimport pn_matrix, pn_owned
from pantheon._core.layers.moe_weights cimport pn_moe
from pantheon._core.layers.rope cimport pn_rope

cdef struct pn_llama_layer:
    const float *attn_norm               # (n_embd,) f32, borrowed from the mapping like all vectors here
    const float *attn_norm_bias          # (n_embd,): a LayerNorm; NULL: an RMSNorm
    pn_group qkv                         # q (n_head * head_dim, n_embd), k and v (n_kv_head * head_dim, n_embd)
    const float *q_bias                  # (n_head * head_dim,) or NULL
    const float *k_bias                  # (n_kv_head * head_dim,) or NULL
    const float *v_bias                  # (n_kv_head * head_dim,) or NULL
    const float *q_norm                  # (head_dim,) or NULL
    const float *k_norm                  # (head_dim,) or NULL
    const float *attn_sub_norm           # (n_head * head_dim,) or NULL: of attention's result
    pn_group out                         # (n_embd, n_head * head_dim)
    const float *out_bias                # (n_embd,) or NULL
    const float *ffn_norm                # (n_embd,), NULL where the feed-forward reads the norm of attention (Phi-2)
    pn_moe *moe                          # experts, owned; NULL: the dense feed-forward below
    pn_group gate_up                     # gate and up (n_ff, n_embd); Phi-2: up
    const float *gate_bias               # (n_ff,) or NULL
    const float *up_bias                 # (n_ff,) or NULL
    const float *ffn_sub_norm            # (n_ff,) or NULL: of what down reads
    pn_group down                        # (n_embd, n_ff)
    const float *down_bias               # (n_embd,) or NULL
    int window                           # positions a token sees, itself included; 0 = all

cdef struct pn_llama_work:
    pn_work base
    float *q                             # (n_tok, n_head * head_dim)
    float *k                             # (n_tok, n_kv_head * head_dim)
    float *v                             # (n_tok, n_kv_head * head_dim)
    float *heads                         # (n_tok, n_head * head_dim) attention's result
    float *gate                          # (n_ff,) of a single token; (n_tok, n_ff) where mlp makes it whole
    float *up                            # the same
    float *gated                         # (n_tok, n_ff) when down's weights are floats, or gate where whole; else NULL
    float *delta_ffn                     # (n_tok, n_embd) the feed-forward's beside attention's (Phi-2), else NULL

cdef struct pn_llama_model:
    pn_arch_weights base
    pn_llama_layer *layers               # (n_layer,)
    pn_matrix embd                       # (n_vocab, n_embd)
    const float *output_norm             # (n_embd,)
    const float *output_norm_bias        # (n_embd,): a LayerNorm; NULL: an RMSNorm
    pn_group head                        # (n_vocab, n_embd), the embedding when tied
    const float *head_bias               # (n_vocab,) or NULL
    pn_rope rope
    pn_rope rope_long                    # LongRoPE, for states that reach beyond rope_orig_ctx; else without freq.
    bint sub_norms                       # every layer has them
    bint squared_relu                    # activation of the gate; else SiLU
    pn_owned owned
