# The first half of a gated MLP for several tokens: silu(gate x) * up x, made in column blocks that stay in the cache
# and are quantised where they are, so that the wide intermediate never exists in floats.
from libc.stdint cimport uint8_t

from pantheon._core.layers.linear cimport pn_group, pn_input, pn_team

# nogil. Bytes of scratch that one rank needs for up to n_tok tokens.
cdef size_t gated_scratch(int n_tok) noexcept nogil
# nogil. gate_up: gate and up, both (n_ff, n) and prepared in x; biases (n_ff,) or NULL. Writes the quantised forms of
# ff that down reads (its floats too when down's weights are floats), not the packed ones: after the next barrier
# input_pack makes those. This rank's share.
cdef void gated_product(pn_team *team, const pn_group *gate_up, const pn_input *x, const float *gate_bias,
                        const float *up_bias, const pn_group *down, pn_input *ff, uint8_t *scratch) noexcept nogil
