# memwatch: what memory there is, sampled by a thread of its own, and what has been promised of it.
#
# Readers copy the record without a lock and without the GIL. Who decides calls pn_memwatch_decide_begin, which takes
# the lock and a fresh sample, and pn_memwatch_decide_end: decisions queue, so that two requests cannot both get the
# last bytes. No log line may be written in between.
from libc.stdint cimport uint64_t

from pantheon._core.types cimport PN_MODEL_MAX_DIES, pn_die_source, pn_mem_state, pn_reservation

# Of the C API: engine.pxd explains them.
cdef int pn_memwatch_start(int interval_ms) noexcept nogil
cdef void pn_memwatch_stop() noexcept nogil
cdef bint pn_memwatch_running() noexcept nogil
cdef void pn_memwatch_read(pn_mem_state *st) noexcept nogil
cdef int pn_memwatch_set_limit(uint64_t bytes) noexcept nogil
cdef void pn_memwatch_set_dies(pn_die_source source) noexcept nogil

# nogil. Copies the record, after a new sample when it is older than 4 intervals.
cdef void pn_memwatch_fresh(pn_mem_state *st) noexcept nogil
# nogil. Samples now.
cdef void pn_memwatch_sample() noexcept nogil
# nogil. What touching one byte of fresh memory takes: a page, or a huge one.
cdef uint64_t pn_memwatch_page_bytes() noexcept nogil

cdef void pn_memwatch_decide_begin(pn_mem_state *st) noexcept nogil
cdef void pn_memwatch_decide_end() noexcept nogil
# nogil. Between begin and end. Promises bytes of the host, and of each die when n_dies > 0; NULL when there is no
# memory for the entry itself.
cdef pn_reservation *pn_memwatch_promise(uint64_t host, const uint64_t *dies, int n_dies) noexcept nogil
# nogil. Of a reservation, how many bytes its holder has touched by now; they are the system's to count from then on.
# One that was released is left alone, as is NULL.
cdef void pn_reservation_touched(pn_reservation *r, uint64_t bytes) noexcept nogil
cdef uint64_t pn_reservation_bytes(const pn_reservation *r) noexcept nogil
# nogil. Ends a reservation; NULL, and one that was ended, are allowed.
cdef void pn_reservation_release(pn_reservation *r) noexcept nogil
