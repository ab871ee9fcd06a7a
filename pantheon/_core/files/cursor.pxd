# A bounded cursor over bytes that nobody vouches for, and arithmetic that cannot wrap. No function here reads past the
# end: a length is compared with the bytes left, never added to the position first.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef extern from *:
    """
    #ifndef PN_CHECKED_MUL
    #define PN_CHECKED_MUL
    static inline int pn_checked_mul(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }
    #endif
    """
    # 1 and *out = a * b, or 0 when the product does not fit.
    bint pn_checked_mul(int64_t a, int64_t b, int64_t *out) noexcept nogil


cdef struct byte_cursor:
    const uint8_t *base                  # (size,) borrowed
    size_t size
    size_t pos                           # <= size


cdef inline size_t cursor_left(const byte_cursor *c) noexcept nogil:
    return c.size - c.pos


# The next n bytes, or NULL (cursor unmoved) when fewer are left.
cdef inline const uint8_t *cursor_take(byte_cursor *c, uint64_t n) noexcept nogil:
    cdef const uint8_t *p
    if n > cursor_left(c):
        return NULL
    p = c.base + c.pos
    c.pos += n
    return p


# 1 and the little-endian number, or 0 (cursor unmoved) when the bytes run out.
cdef inline bint cursor_u32(byte_cursor *c, uint32_t *out) noexcept nogil:
    cdef const uint8_t *p = cursor_take(c, 4)
    if p == NULL:
        return False
    memcpy(out, p, 4)
    return True


cdef inline bint cursor_u64(byte_cursor *c, uint64_t *out) noexcept nogil:
    cdef const uint8_t *p = cursor_take(c, 8)
    if p == NULL:
        return False
    memcpy(out, p, 8)
    return True


# A string of the file: u64 length, then the bytes. Returns them, or NULL with the cursor at the start of the string.
cdef inline const uint8_t *cursor_string(byte_cursor *c, uint64_t *length) noexcept nogil:
    cdef size_t start = c.pos
    cdef const uint8_t *p
    if not cursor_u64(c, length):
        return NULL
    p = cursor_take(c, length[0])
    if p == NULL:
        c.pos = start
    return p
