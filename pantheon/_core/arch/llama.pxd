# The dense transformer family: Llama 2/3, Mistral, Qwen2, Qwen3.
from libc.stdint cimport uint8_t, uint32_t

from pantheon._core.arch.ops cimport pn_arch_ops, pn_arch_weights
from pantheon._core.kernels.table cimport pn_kernels
from pantheon._core.linear cimport pn_group, pn_input
from pantheon._core.pool cimport pn_counter
from pantheon._core.rope cimport pn_rope
from pantheon._core.tensor cimport pn_matrix, pn_owned
from pantheon._core.types cimport pn_arch, pn_model, pn_rope_kind, pn_state, tm_tensor

cdef struct pn_llama_layer:
    const float *attn_norm               # (n_embd,) f32, borrowed from the mapping like all vectors here
    pn_group qkv                         # q (n_head * head_dim, n_embd), k and v (n_kv_head * head_dim, n_embd)
    const float *q_bias                  # (n_head * head_dim,) or NULL
    const float *k_bias                  # (n_kv_head * head_dim,) or NULL
    const float *v_bias                  # (n_kv_head * head_dim,) or NULL
    const float *q_norm                  # (head_dim,) or NULL
    const float *k_norm                  # (head_dim,) or NULL
    pn_group out                         # (n_embd, n_head * head_dim)
    const float *out_bias                # (n_embd,) or NULL
    const float *ffn_norm                # (n_embd,)
    pn_group gate_up                     # gate and up (n_ff, n_embd)
    const float *gate_bias               # (n_ff,) or NULL
    const float *up_bias                 # (n_ff,) or NULL
    pn_group down                        # (n_embd, n_ff)
    const float *down_bias               # (n_embd,) or NULL

# What norms and matrix inputs work on. Shared for several tokens; for a single one every rank has its own, which saves
# barriers.
cdef struct pn_llama_stream:
    float *x                             # (n_tok, n_embd) residual stream
    float *normed                        # (n_tok, n_embd)
    float *angles                        # (n_tok, rope_dims / 2, 2) cos and sin
    pn_input embd                        # input of qkv and gate_up
    pn_input heads                       # input of out: attention's result
    pn_input ff                          # input of down
    pn_input head                        # input of the LM head, n_out vectors

cdef struct pn_llama_rank:               # private to one rank
    pn_llama_stream single
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
    float *gate                          # (n_ff,) of a single token
    float *up                            # (n_ff,) of a single token
    float *gated                         # (n_tok, n_ff) when down's weights are floats, else NULL
    float *delta                         # (n_tok, n_embd) what the next residual addition adds
    pn_counter *counters                 # (5 * n_layer + 1,)
    pn_llama_stream shared
    pn_llama_rank *ranks                 # (n_ranks,)

cdef struct pn_llama_model:
    pn_arch_weights base
    const pn_kernels *k
    pn_llama_layer *layers               # (n_layer,)
    pn_matrix embd                       # (n_vocab, n_embd)
    const float *output_norm             # (n_embd,)
    pn_group head                        # (n_vocab, n_embd), the embedding when tied
    pn_rope rope
    pn_owned owned
    pn_llama_work work                   # of prefill and batch, shared by all states of the model
    void *work_memory                    # owned, grown on demand
    size_t work_bytes

# nogil. The registry row of one architecture of the family.
cdef pn_arch_ops pn_llama_ops(const char *name, pn_arch arch, pn_rope_kind rope_kind) noexcept nogil
# nogil; see pn_forward_fn.
cdef tm_tensor *pn_llama_forward(pn_model *model, uint32_t token, pn_state *state) noexcept nogil
