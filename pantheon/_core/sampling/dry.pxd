# The DRY penalty ("don't repeat yourself"): lowers the tokens that would continue a repeat of the recent text.
from libc.stdint cimport uint32_t

from pantheon._core.sampling.scratch cimport pn_scratch
from pantheon._core.types cimport pn_sampling_params

# Changes logits (n_vocab,) in place; recent (n_recent,), most recent last. 0, or -1 with the text set: the breakers of
# params are not in the form that types.pxd gives.
cdef int pn_apply_dry(pn_scratch *s, float *logits, int n_vocab, const pn_sampling_params *params,
                      const uint32_t *recent, int n_recent) noexcept nogil
