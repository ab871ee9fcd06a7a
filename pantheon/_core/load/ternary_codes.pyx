"""Two-bit ternary codes (see ternary_codes.pxd for the contract)."""
from libc.math cimport rint
from libc.stdint cimport int64_t, uint8_t


cdef int64_t ternary_bad_byte(const uint8_t *codes, size_t n) noexcept nogil:
    cdef size_t i, j, end
    cdef uint8_t bad
    i = 0
    while i < n:
        end = min(i + 4096, n)
        bad = 0
        for j in range(i, end):
            bad |= codes[j] & (codes[j] >> 1)
        if bad & 0x55:
            for j in range(i, end):
                if codes[j] & (codes[j] >> 1) & 0x55:
                    return j
        i = end
    return -1


cdef int64_t ternary_bad_block(const uint8_t *blocks, size_t n_blocks, size_t stride, size_t n_codes) noexcept nogil:
    cdef size_t b
    for b in range(n_blocks):
        if ternary_bad_byte(blocks + b * stride, n_codes) >= 0:
            return b
    return -1


cdef int ternary_pack_row(const float *w, float s, bint exact, int cols, int shift, uint8_t *packed) noexcept nogil:
    cdef int c
    cdef float t
    for c in range(cols):
        t = rint(w[c] * s)               # half to even
        if exact and t != w[c] * s:
            return -1
        if exact and not -1 <= t <= 1:
            return -1
        t = -1 if t < -1 else 1 if t > 1 else t
        if t != t:
            return -1
        packed[c] |= <uint8_t>(<int>t + 1) << shift
    return 0
