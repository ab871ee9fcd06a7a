"""What the engine has to say without the GIL (see report.pxd for the contract)."""
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf

cdef extern from *:
    """
    typedef void (*pn_log_callback_fn)(int, const char *);
    static _Thread_local char pn_error_text[512] = "no error";
    static _Thread_local int pn_error_kind_now;
    static _Thread_local const void *pn_interrupt_now;
    static pn_log_callback_fn volatile pn_log_callback;
    """
    char pn_error_text[512]
    int pn_error_kind_now
    const void *pn_interrupt_now         # const pn_interrupt *, of this thread
    pn_log_fn pn_log_callback


cdef const char *pn_last_error() noexcept nogil:
    return pn_error_text


cdef void pn_set_error(const char *format, int64_t a, int64_t b) noexcept nogil:
    global pn_error_kind_now
    pn_error_kind_now = PN_ERROR_RUN
    snprintf(pn_error_text, sizeof(pn_error_text), format, <long long>a, <long long>b)


cdef void pn_set_error_text(const char *format, const char *text) noexcept nogil:
    global pn_error_kind_now
    pn_error_kind_now = PN_ERROR_RUN
    snprintf(pn_error_text, sizeof(pn_error_text), format, text)


cdef void pn_set_no_memory(const char *format, int64_t a, int64_t b) noexcept nogil:
    global pn_error_kind_now
    pn_set_error(format, a, b)
    pn_error_kind_now = PN_ERROR_MEMORY


cdef void pn_set_file_error(const char *path, const char *format, int64_t a, int64_t b) noexcept nogil:
    global pn_error_kind_now
    cdef int n = min(snprintf(pn_error_text, sizeof(pn_error_text), b"%.300s: ", path), 302)
    snprintf(pn_error_text + n, sizeof(pn_error_text) - n, format, <long long>a, <long long>b)
    pn_error_kind_now = PN_ERROR_FILE


cdef pn_error_kind pn_last_error_kind() noexcept nogil:
    return <pn_error_kind>pn_error_kind_now


cdef void pn_set_log(pn_log_fn callback) noexcept nogil:
    global pn_log_callback
    pn_log_callback = callback


cdef void pn_log(int level, const char *format, int64_t a, int64_t b) noexcept nogil:
    cdef pn_log_fn callback = pn_log_callback
    cdef char text[512]
    if callback != NULL:
        snprintf(text, sizeof(text), format, <long long>a, <long long>b)
        callback(level, text)


cdef const pn_interrupt *pn_set_interrupt(const pn_interrupt *now) noexcept nogil:
    global pn_interrupt_now
    cdef const pn_interrupt *before = <const pn_interrupt *>pn_interrupt_now
    pn_interrupt_now = now
    return before


cdef bint pn_interrupted() noexcept nogil:
    cdef const pn_interrupt *now = <const pn_interrupt *>pn_interrupt_now
    return now != NULL and now.stop(now.arg)
