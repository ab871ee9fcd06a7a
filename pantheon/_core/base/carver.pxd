# Buffers carved out of one block of memory, each at a multiple of 64 bytes. Without a block they are only counted: so
# the same function says how much memory a run needs and lays it out.
from libc.stdint cimport uint8_t

cdef struct carver:
    uint8_t *base                        # 64-byte aligned; NULL: only counts
    size_t used

# Bytes of a buffer with what keeps the next one aligned.
cdef inline size_t aligned(size_t n) noexcept nogil:
    return (n + 63) // 64 * 64

cdef inline void *carve(carver *m, size_t n) noexcept nogil:
    cdef void *p = m.base + m.used if m.base != NULL else NULL
    m.used += aligned(n)
    return p

cdef inline float *carve_floats(carver *m, size_t rows, size_t n) noexcept nogil:
    return <float *>carve(m, rows * n * sizeof(float))
