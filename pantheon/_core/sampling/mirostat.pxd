# Mirostat 1 and 2: the length of the list follows from how surprising the last tokens were (mu).
from pantheon._core.sampling.scratch cimport pn_scratch
from pantheon._core.types cimport pn_sampling_params

# Lists the candidates of logits (n,), whose maximum is max, by logit; after it, pn_cand_exp(s, 1 / T) weighs them.
cdef void pn_mirostat_collect(pn_scratch *s, const float *logits, int n, float max,
                              const pn_sampling_params *params) noexcept nogil
# Moves params.mu after candidate i was drawn.
cdef void pn_mirostat_accept(pn_scratch *s, int i, pn_sampling_params *params) noexcept nogil
