# pn_arena: bump allocator for the scratch of forwards of one token. What a forward writes there does not outlive it.
from pantheon._core.types cimport pn_arena, pn_config

# GIL; the caller owns the result; MemoryError.
cdef pn_arena *pn_arena_new(size_t size) except NULL
cdef void pn_arena_free(pn_arena *a) noexcept nogil
# nogil. n bytes, 16-byte aligned, not zeroed; NULL when the arena is full. Lives until the next reset.
cdef void *pn_arena_alloc(pn_arena *a, size_t n) noexcept nogil
# nogil. Forgets all allocations.
cdef void pn_arena_reset(pn_arena *a) noexcept nogil
# nogil. The same, and makes room for size bytes where there is less; 0, or -1 with pn_last_error() and the arena as it
# was.
cdef int pn_arena_begin(pn_arena *a, size_t size) noexcept nogil
# nogil. Bytes of the arena; bytes in use; the most that was ever in use.
cdef size_t pn_arena_size(const pn_arena *a) noexcept nogil
cdef size_t pn_arena_used(const pn_arena *a) noexcept nogil
cdef size_t pn_arena_high_water(const pn_arena *a) noexcept nogil
# nogil. Debug build: 1-based number of the first allocation since the last reset that was written past its end; 0 if
# none was, and always 0 in other builds.
cdef int pn_arena_overrun(const pn_arena *a) noexcept nogil
# nogil. Bytes of the arena of one transformer state: b + b/4 with b = floats of every layer and of the output, plus 16
# bytes of alignment per allocation (docs/architecture.md). A forward that needs more than this asks for more, never for
# less.
cdef size_t compute_arena_size(const pn_config *c) noexcept nogil
