"""What the environment says about memory (see environment.pxd for the contract)."""
from libc.stdint cimport uint64_t
from libc.stdlib cimport getenv, strtol, strtoull
from libc.string cimport strchr, strcmp, strlen, strspn

from pantheon._core.base.report cimport pn_log, pn_set_error
from pantheon._core.types cimport PN_LOG_WARNING, PN_QWEN35MOE_MAX_SEQ_CAP

cdef extern from *:
    """
    #include <stdatomic.h>
    #include <stdint.h>
    static _Atomic uint64_t pn_warned[2];        /* hash of the value that was last warned of */

    /* Whether this value is another one than the last. */
    static int pn_warn_anew(int which, const char *value) {
        uint64_t hash = 14695981039346656037u;
        for (; *value; value++) hash = (hash ^ (unsigned char)*value) * 1099511628211u;
        return atomic_exchange(&pn_warned[which], hash) != hash;
    }
    """
    bint pn_warn_anew(int which, const char *value) nogil

cdef enum:
    MAX_SEQ_UNSET = 16384                # QWEN35_MAX_SEQ when it says nothing
    LIMIT_BITS = 62                      # a memory limit is at most 2^62 bytes

cdef enum:
    WARNED_MAX_SEQ = 0
    WARNED_KV_Q4 = 1


cdef bint pn_admit_kv_q4() noexcept nogil:
    cdef const char *value = getenv("QWEN35_KV_Q4")
    return value == NULL or strcmp(value, "0") != 0


cdef long number(const char *text) noexcept nogil:
    """The positive number that text is; 0 when it is none."""
    cdef char *end = NULL
    cdef long value = strtol(text, &end, 10)
    return value if value > 0 and end[0] == 0 else 0


cdef int environment_max_seq() noexcept nogil:
    cdef const char *text = getenv("QWEN35_MAX_SEQ")
    cdef long value = number(text) if text != NULL else 0
    return <int>min(value if value > 0 else <long>MAX_SEQ_UNSET, <long>PN_QWEN35MOE_MAX_SEQ_CAP)


cdef void environment_warn() noexcept nogil:
    cdef const char *text = getenv("QWEN35_MAX_SEQ")
    if text != NULL and text[0] != 0 and number(text) == 0 and pn_warn_anew(WARNED_MAX_SEQ, text):
        pn_log(PN_LOG_WARNING, b"QWEN35_MAX_SEQ is not a positive number: %d is used", MAX_SEQ_UNSET)
    text = getenv("QWEN35_KV_Q4")
    if text != NULL and text[0] != 0 and strcmp(text, "0") != 0 and strcmp(text, "1") != 0 \
            and pn_warn_anew(WARNED_KV_Q4, text):
        pn_log(PN_LOG_WARNING, b"QWEN35_KV_Q4 is neither 0 nor 1: 1 is used")


cdef int environment_memory_limit(uint64_t *bytes) noexcept nogil:
    cdef const char *text = getenv("PANTHEON_MEMORY_LIMIT")
    cdef const char *digits
    cdef const char *suffix
    cdef const char *units = "KkMmGgTt"
    cdef uint64_t value = 0
    cdef size_t n
    cdef int shift = 0
    bytes[0] = 0
    if text == NULL or text[0] == 0:
        return 0
    digits = text + strspn(text, " \t")
    n = strspn(digits, "0123456789")
    suffix = digits + n
    if suffix[0] != 0 and strchr(units, suffix[0]) != NULL:
        shift = 10 * (1 + <int>(strchr(units, suffix[0]) - units) // 2)
        suffix += 1
    if 1 <= n <= 19:                     # as many as fit into 64 bits
        value = strtoull(digits, NULL, 10)
    if value < 1 or value > (<uint64_t>1 << LIMIT_BITS) >> shift or strspn(suffix, " \t") != strlen(suffix):
        pn_set_error(b"PANTHEON_MEMORY_LIMIT is '%s', not in 1..4611686018427387904 bytes (suffixes K, M, G, T)", text)
        return -1
    bytes[0] = value << shift
    return 0
