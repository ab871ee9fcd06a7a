# What the environment says about memory. Nothing here takes a lock; only environment_warn logs.
from libc.stdint cimport uint64_t

# Of the C API: engine.pxd explains it.
cdef bint pn_admit_kv_q4() noexcept nogil
# nogil. QWEN35_MAX_SEQ, at most PN_QWEN35MOE_MAX_SEQ_CAP; 16384 when it is unset or no positive number.
cdef int environment_max_seq() noexcept nogil
# nogil. Logs a warning for each of these two whose value says nothing, once for each such value. Log lines go to
# Python: not to be called under a lock that a holder of the GIL may wait for.
cdef void environment_warn() noexcept nogil
# nogil. *bytes is PANTHEON_MEMORY_LIMIT, 0 when it is unset or empty; 0, or -1 with pn_last_error().
cdef int environment_memory_limit(uint64_t *bytes) noexcept nogil
