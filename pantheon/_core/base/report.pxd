# What the engine has to say without the GIL: the last error, log lines, and whether the caller wants to stop.
#
# pn_set_error and the others below it take a format and its values as printf does, and the compiler checks them
# against each other. They are inline, so that an extension module without errors has none of it.
from pantheon._core.types cimport (
    PN_LOG_DEBUG,
    PN_LOG_ERROR,
    PN_LOG_INFO,
    PN_LOG_WARNING,
    pn_interrupt,
    pn_interrupt_fn,
    pn_log_fn,
)

ctypedef enum pn_error_kind:             # what Python raises for a failed call
    PN_ERROR_RUN = 0                     # RuntimeError
    PN_ERROR_MEMORY = 1                  # MemoryError
    PN_ERROR_FILE = 2                    # ValueError

cdef extern from * nogil:
    """
    #include <stdarg.h>
    #ifdef __GNUC__
    #define PN_PRINTF(i) __attribute__((format(printf, i, i + 1), unused))
    static void pn_set_error(const char *, ...) PN_PRINTF(1);
    static void pn_set_no_memory(const char *, ...) PN_PRINTF(1);
    static void pn_set_file_error(const char *, const char *, ...) PN_PRINTF(2);
    static void pn_log(int, const char *, ...) PN_PRINTF(2);
    #endif
    """
    ctypedef struct va_list:
        pass
    void va_start(va_list values, const void *last)
    void va_end(va_list values)

# Of the C API: engine.pxd explains them.
cdef const char *pn_last_error() noexcept nogil
cdef void pn_set_log(pn_log_fn callback) noexcept nogil
cdef const pn_interrupt *pn_set_interrupt(const pn_interrupt *now) noexcept nogil

cdef pn_error_kind pn_last_error_kind() noexcept nogil
# nogil. What the functions below do with their values. path: the file at fault, which the text begins with, or NULL.
# The text is cut at 511 bytes.
cdef void pn_report_error(pn_error_kind kind, const char *path, const char *format, va_list values) noexcept nogil
cdef void pn_report_line(int level, const char *format, va_list values) noexcept nogil

# nogil. Whether the call of this thread is to stop.
cdef bint pn_interrupted() noexcept nogil


cdef inline void pn_set_error "pn_set_error"(const char *format, ...) noexcept nogil:
    """The text of a failed call."""
    cdef va_list values
    va_start(values, format)
    pn_report_error(PN_ERROR_RUN, NULL, format, values)
    va_end(values)


cdef inline void pn_set_no_memory "pn_set_no_memory"(const char *format, ...) noexcept nogil:
    """The same for an allocation that failed."""
    cdef va_list values
    va_start(values, format)
    pn_report_error(PN_ERROR_MEMORY, NULL, format, values)
    va_end(values)


cdef inline void pn_set_file_error "pn_set_file_error"(const char *path, const char *format, ...) noexcept nogil:
    """The same for a file of the model."""
    cdef va_list values
    va_start(values, format)
    pn_report_error(PN_ERROR_FILE, path, format, values)
    va_end(values)


cdef inline void pn_log "pn_log"(int level, const char *format, ...) noexcept nogil:
    """A log line."""
    cdef va_list values
    va_start(values, format)
    pn_report_line(level, format, values)
    va_end(values)
