"""What the engine has to say without the GIL (see report.pxd for the contract)."""
from libc.stdio cimport snprintf
from libc.string cimport strcpy

cdef extern from "<stdio.h>" nogil:
    int vsnprintf(char *text, size_t size, const char *format, va_list values)
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


cdef void pn_report_error(pn_error_kind kind, const char *path, const char *format, va_list values) noexcept nogil:
    global pn_error_kind_now
    cdef char text[512]                  # a value may be the last error's own text
    cdef int n = 0
    if path != NULL:
        n = min(snprintf(text, sizeof(text), b"%.300s: ", path), 302)
    vsnprintf(text + n, sizeof(text) - n, format, values)
    strcpy(pn_error_text, text)
    pn_error_kind_now = kind


cdef pn_error_kind pn_last_error_kind() noexcept nogil:
    return <pn_error_kind>pn_error_kind_now


cdef void pn_set_log(pn_log_fn callback) noexcept nogil:
    global pn_log_callback
    pn_log_callback = callback


cdef void pn_report_line(int level, const char *format, va_list values) noexcept nogil:
    cdef pn_log_fn callback = pn_log_callback
    cdef char text[512]
    if callback != NULL:
        vsnprintf(text, sizeof(text), format, values)
        callback(level, text)


cdef const pn_interrupt *pn_set_interrupt(const pn_interrupt *now) noexcept nogil:
    global pn_interrupt_now
    cdef const pn_interrupt *before = <const pn_interrupt *>pn_interrupt_now
    pn_interrupt_now = now
    return before


cdef bint pn_interrupted() noexcept nogil:
    cdef const pn_interrupt *now = <const pn_interrupt *>pn_interrupt_now
    return now != NULL and now.stop(now.arg)
