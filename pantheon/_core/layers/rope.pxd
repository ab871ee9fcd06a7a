# Rotary position embedding: frequencies of a model and the (cos, sin) pairs of a position.
from pantheon._core.types cimport pn_config, pn_rope_scaling

cdef struct pn_rope:
    int n_pair                           # rotated pairs of a head
    double *freq                         # (n_pair,) radians per position, owned
    float factor                         # multiplies cos and sin

# GIL; MemoryError. factors: (n_pair,) divisors of the frequencies from the file, or NULL.
cdef int rope_init(pn_rope *r, const pn_config *c, const float *factors) except -1
cdef void rope_free(pn_rope *r) noexcept nogil
# nogil. cs: (n_pair, 2) cos and sin at one position.
cdef void rope_angles(const pn_rope *r, int pos, float *cs) noexcept nogil
# nogil. The same for interleaved M-RoPE: pos is (text, row, column); of the pairs in threes, the second ones follow the
# row while below 3 * sections[1], the third ones the column while below 3 * sections[2], all others the text position.
cdef void mrope_angles(const pn_rope *r, const int *sections, const int *pos, float *cs) noexcept nogil
# nogil. Multiplier of cos and sin that a scaling implies when the model gives none.
cdef double rope_attention_factor(pn_rope_scaling scaling, double factor, int orig_ctx) noexcept nogil
