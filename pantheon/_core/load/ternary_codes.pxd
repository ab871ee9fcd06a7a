# Two-bit ternary codes: code - 1 is the weight, code 3 stands for nothing.
from libc.stdint cimport int64_t, uint8_t

# nogil. Index of the first byte of n that holds a code 3, or -1.
cdef int64_t ternary_bad_byte(const uint8_t *codes, size_t n) noexcept nogil
# nogil. The same for n_blocks blocks of `stride` bytes that begin with n_codes bytes of codes.
cdef int64_t ternary_bad_block(const uint8_t *blocks, size_t n_blocks, size_t stride, size_t n_codes) noexcept nogil
# nogil. Packs one row of float weights (cols,) into its packed row: t = clamp(round(w * s), -1, 1). 0, or -1 when
# `exact` is set and a weight times s is none of -1, 0, 1.
cdef int ternary_pack_row(const float *w, float s, bint exact, int cols, int shift, uint8_t *packed) noexcept nogil
