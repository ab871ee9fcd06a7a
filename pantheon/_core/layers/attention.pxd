# Attention of one layer for all tokens of a step, run by all ranks of a team together.
from libc.stdint cimport uint8_t

from pantheon._core.layers.kvcache cimport pn_llama_kv_cache
from pantheon._core.layers.linear cimport pn_team

cdef enum:
    ATTN_BLOCK = 16                      # tokens of one sequence that are worked on together

cdef struct pn_attn_step:
    int n_tok
    bint one_sequence                    # all tokens belong to one cache (prefill); else each to its own (batch)
    int n_head
    int n_kv_head
    int head_dim
    float scale
    int window                           # positions a token sees, itself included; 0 = all
    const float *q                       # (n_tok, n_head * head_dim)
    float *out                           # (n_tok, n_head * head_dim)
    pn_llama_kv_cache **caches           # (n_tok,) borrowed
    const int *pos                       # (n_tok,)

# nogil. Bytes of scratch that one rank needs.
cdef size_t attention_scratch(int n_head, int n_kv_head, int head_dim) noexcept nogil
# nogil. K and V of the step's positions are in the caches. This rank's share of the result; the next barrier makes it
# whole.
cdef void attention(pn_team *team, const pn_attn_step *step, int layer, uint8_t *scratch) noexcept nogil
# nogil. This rank's heads [a, b) of a single-token step.
cdef void attention_heads(const pn_team *team, int n_head, int *a, int *b) noexcept nogil
