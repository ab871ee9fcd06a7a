# Changes of single logits before anything is cut: logit bias and the three repetition penalties.
from libc.stdint cimport uint32_t

from pantheon._core.sampling.scratch cimport pn_scratch
from pantheon._core.types cimport pn_sampling_params

# Adds params.bias to logits (n_vocab,). 0, or -1 with the text set: a token outside the vocabulary, a NaN bias.
cdef int pn_apply_bias(pn_scratch *s, float *logits, int n_vocab, const pn_sampling_params *params) noexcept nogil
# Repeat, frequency and presence penalty over the last params.penalty_last_n of recent (n_recent,).
cdef void pn_apply_penalties(pn_scratch *s, float *logits, int n_vocab, const pn_sampling_params *params,
                             const uint32_t *recent, int n_recent) noexcept nogil
# When no candidate is left: takes back all changes but the bans (bias -inf). logits (n_vocab,).
cdef void pn_undo_penalties(pn_scratch *s, float *logits, int n_vocab, const pn_sampling_params *params) noexcept nogil
