"""pn_arena: bump allocator for the scratch of one forward (see arena.pxd for the contract).

In the debug build every allocation is followed by a canary of 16 bytes. Sizes are multiples of 16, so canaries at most
double the memory; they do not count towards size, used or high-water mark, which are the same in both builds.
"""
cimport cython
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from pantheon._core.base.fork cimport pn_fork_hold, pn_fork_release
from pantheon._core.base.report cimport pn_set_no_memory
from pantheon._core.types cimport pn_arena, pn_config

cdef extern from *:
    """
    #include <stdlib.h>
    static const uint8_t PN_CANARY[16] = {0xA5, 0x5A, 0xC3, 0x3C, 0x96, 0x69, 0xF0, 0x0F,
                                          0xDE, 0xAD, 0xFA, 0xCE, 0x0B, 0xAD, 0xF0, 0x0D};
    """
    const int PN_DEBUG
    const uint8_t PN_CANARY[16]
    void *aligned_alloc(size_t alignment, size_t size) nogil

cdef enum:
    ALIGN = 16

cdef struct arena_body:                  # what pn_arena * points to
    uint8_t *base                        # owned, 64-byte aligned
    size_t size
    size_t used                          # without canaries
    size_t high_water
    size_t offset                        # with canaries
    size_t *ends                         # debug build: (n,) offsets of the canaries, owned
    size_t n
    size_t n_max


cdef int resize(arena_body *a, size_t size) noexcept nogil:
    """Gives the arena, in which nothing is allocated, other memory; 0, or -1 and it keeps what it had."""
    cdef uint8_t *base
    cdef uint8_t *old_base = a.base
    cdef size_t *ends
    cdef size_t *old_ends = a.ends
    cdef size_t n_max
    if size > <size_t>-1 // 4:
        return -1
    size = (size + ALIGN - 1) // ALIGN * ALIGN
    n_max = size // ALIGN if PN_DEBUG else 0
    ends = <size_t *>malloc((n_max + 1) * sizeof(size_t))
    base = <uint8_t *>aligned_alloc(64, (size * (2 if PN_DEBUG else 1) + 64 + 63) // 64 * 64)
    if base == NULL or ends == NULL:
        free(base)
        free(ends)
        return -1
    pn_fork_hold()                       # a child finds one memory or the other
    a.base, a.ends, a.size, a.n_max = base, ends, size, n_max
    pn_fork_release()
    free(old_base)
    free(old_ends)
    return 0


cdef pn_arena *pn_arena_new(size_t size) except NULL:
    cdef arena_body *a = <arena_body *>calloc(1, sizeof(arena_body))
    if a == NULL:
        raise MemoryError("no memory for an arena")
    if resize(a, size) != 0:
        free(a)
        raise MemoryError(f"arena of {size} bytes")
    return <pn_arena *>a


cdef int pn_arena_begin(pn_arena *arena, size_t size) noexcept nogil:
    cdef arena_body *a = <arena_body *>arena
    pn_arena_reset(arena)
    if size > a.size and resize(a, size) != 0:
        pn_set_no_memory(b"no memory for an arena of %zu bytes", size)
        return -1
    return 0


cdef void pn_arena_free(pn_arena *arena) noexcept nogil:
    cdef arena_body *a = <arena_body *>arena
    if a != NULL:
        free(a.base)
        free(a.ends)
        free(a)


cdef void *pn_arena_alloc(pn_arena *arena, size_t n) noexcept nogil:
    cdef arena_body *a = <arena_body *>arena
    cdef void *p
    if n > a.size:
        return NULL
    n = (n + ALIGN - 1) // ALIGN * ALIGN
    if n == 0:
        n = ALIGN
    if n > a.size - a.used:
        return NULL
    p = a.base + a.offset
    a.used += n
    a.offset += n
    if a.used > a.high_water:
        a.high_water = a.used
    if PN_DEBUG:
        memcpy(a.base + a.offset, PN_CANARY, ALIGN)
        a.ends[a.n] = a.offset
        a.n += 1
        a.offset += ALIGN
    return p


cdef void pn_arena_reset(pn_arena *arena) noexcept nogil:
    cdef arena_body *a = <arena_body *>arena
    a.used = a.offset = a.n = 0


cdef size_t pn_arena_size(const pn_arena *a) noexcept nogil:
    return (<const arena_body *>a).size


cdef size_t pn_arena_used(const pn_arena *a) noexcept nogil:
    return (<const arena_body *>a).used


cdef size_t pn_arena_high_water(const pn_arena *a) noexcept nogil:
    return (<const arena_body *>a).high_water


cdef int pn_arena_overrun(const pn_arena *arena) noexcept nogil:
    cdef const arena_body *a = <const arena_body *>arena
    cdef size_t i
    for i in range(a.n):
        if memcmp(a.base + a.ends[i], PN_CANARY, ALIGN) != 0:
            return <int>(i + 1)
    return 0


cdef size_t compute_arena_size(const pn_config *c) noexcept nogil:
    cdef size_t layers = c.n_layer, embd = c.n_embd, ff = c.n_ff, kv = <size_t>c.n_kv_head * c.head_dim
    cdef size_t scores = min(c.n_ctx, 4096)
    cdef size_t bytes
    if c.sliding_window > 0:
        scores = min(scores, <size_t>c.sliding_window)
    bytes = 4 * (layers * (5 * embd + 3 * ff + 2 * kv) + 2 * embd + c.n_head * scores + c.n_vocab)
    bytes += 16 * (11 * layers + 5)
    if c.n_experts > 0:
        bytes += 4 * layers * (c.n_experts + 2 * <size_t>c.n_experts_used + 4 * embd + 2 * ff) + 16 * 5 * layers
    return bytes + bytes // 4


def arena_size(*, int n_layer, int n_embd, int n_ff, int n_head, int n_kv_head, int head_dim, int n_vocab, int n_ctx,
               int sliding_window=0, int n_experts=0, int n_experts_used=0):
    """compute_arena_size of these hyper-parameters, in bytes."""
    cdef pn_config c
    memset(&c, 0, sizeof(c))
    c.n_layer, c.n_embd, c.n_ff, c.n_head = n_layer, n_embd, n_ff, n_head
    c.n_kv_head, c.head_dim, c.n_vocab, c.n_ctx = n_kv_head, head_dim, n_vocab, n_ctx
    c.sliding_window, c.n_experts, c.n_experts_used = sliding_window, n_experts, n_experts_used
    return compute_arena_size(&c)


@cython.final
cdef class Arena:
    """A pn_arena for tests: alloc(n) returns the address, write(address, n) fills n bytes with 0xFF."""
    cdef pn_arena *a

    def __cinit__(self, size_t size):
        self.a = pn_arena_new(size)

    def __dealloc__(self):
        pn_arena_free(self.a)

    def alloc(self, size_t n):
        cdef void *p = pn_arena_alloc(self.a, n)
        return <size_t>p if p != NULL else None

    def write(self, size_t address, size_t n):
        cdef size_t i
        for i in range(n):
            (<uint8_t *>address)[i] = 0xFF

    def reset(self):
        pn_arena_reset(self.a)

    def grow(self, size_t size, size_t step):
        """pn_arena_begin again and again, up to size bytes, without the GIL."""
        cdef size_t n = pn_arena_size(self.a)
        cdef int status = 0
        with nogil:
            while n < size and status == 0:
                n += step
                status = pn_arena_begin(self.a, n)
        if status != 0:
            raise MemoryError(f"arena of {n} bytes")

    @property
    def size(self):
        return pn_arena_size(self.a)

    @property
    def used(self):
        return pn_arena_used(self.a)

    @property
    def high_water(self):
        return pn_arena_high_water(self.a)

    @property
    def overrun(self):
        return pn_arena_overrun(self.a)

    @property
    def debug(self):
        return bool(PN_DEBUG)
