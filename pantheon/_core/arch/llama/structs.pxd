# Weights, buffers and runs of the transformer family: no code.
from libc.stdint cimport uint8_t

from pantheon._core.arch.ops cimport pn_arch_weights
from pantheon._core.arch.run cimport pn_run
from pantheon._core.base.pool cimport pn_counter
from pantheon._core.kernels.table cimport pn_kernels
from pantheon._core.layers.attention cimport pn_attn_step
from pantheon._core.layers.linear cimport pn_group, pn_input, pn_team
from pantheon._core.layers.matrix cimport pn_matrix, pn_owned
from pantheon._core.layers.moe_weights cimport pn_moe, pn_moe_work
from pantheon._core.layers.rope cimport pn_rope
from pantheon._core.types cimport pn_config

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

# What norms and matrix inputs work on. Shared for several tokens; for a single one every rank has its own, which saves
# barriers.
cdef struct pn_llama_stream:
    float *x                             # (n_tok, n_embd) residual stream
    float *normed                        # (n_tok, n_embd)
    float *angles                        # (n_tok, rope_dims / 2, 2) cos and sin
    pn_input embd                        # input of qkv and gate_up
    pn_input heads                       # input of out: attention's result, normed where there is a sub-norm
    pn_input ff                          # input of down, the same
    pn_input head                        # input of the LM head, n_out vectors

cdef struct pn_llama_model
cdef struct pn_llama_work

# What every rank of a run does for one layer; on entry the residual stream is whole and its norm is prepared for qkv,
# on exit so for the next layer. [t0, t1): this rank's tokens.
ctypedef void (*llama_layer_fn)(llama_job *job, pn_team *team, pn_llama_stream *s, int layer, int t0,
                                int t1) noexcept nogil

cdef struct llama_job:                   # one run
    pn_run *run
    const pn_config *c
    pn_llama_model *w
    pn_llama_work *work
    llama_layer_fn layer
    int n_tok                            # these two as in the run, but for a job of its last token
    int first_out
    pn_attn_step attn

cdef struct pn_llama_rank:               # private to one rank
    pn_llama_stream single
    llama_job tail                       # of a prefill that wants the last token's logits only, see llama_layer
    uint8_t *attention                   # scratch
    uint8_t *panel                       # scratch
    uint8_t *gated                       # scratch

cdef struct pn_llama_work:               # buffers of one run
    int n_tok                            # most tokens
    int n_out                            # most tokens whose logits are wanted
    int n_ranks
    float *q                             # (n_tok, n_head * head_dim)
    float *k                             # (n_tok, n_kv_head * head_dim)
    float *v                             # (n_tok, n_kv_head * head_dim)
    float *heads                         # (n_tok, n_head * head_dim) attention's result
    float *gate                          # (n_ff,) of a single token; (n_tok, n_ff) where mlp makes it whole
    float *up                            # the same
    float *gated                         # (n_tok, n_ff) when down's weights are floats, or gate where whole; else NULL
    float *delta                         # (n_tok, n_embd) what the next residual addition adds
    float *delta_ffn                     # (n_tok, n_embd) the feed-forward's beside attention's (Phi-2), else NULL
    pn_counter *counters                 # (LAYER_COUNTERS * n_layer + 1,)
    pn_moe_work moe                      # where a layer has experts
    pn_llama_stream shared
    pn_llama_rank *ranks                 # (n_ranks,)

cdef struct pn_llama_model:
    pn_arch_weights base
    const pn_kernels *k
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
    pn_llama_work work                   # of prefill and batch, shared by all states of the model
    void *work_memory                    # (work_bytes,) owned pages, grown on demand
    size_t work_bytes
