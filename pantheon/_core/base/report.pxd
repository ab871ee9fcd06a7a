# What the engine has to say without the GIL: the last error, log lines, and whether the caller wants to stop.
from libc.stdint cimport int64_t

ctypedef void (*pn_log_fn)(int level, const char *text) noexcept nogil
ctypedef bint (*pn_interrupt_fn)(void *arg) noexcept nogil

cdef struct pn_interrupt:                # who is asked whether a call is to stop
    pn_interrupt_fn stop                 # true: the call stops at once with an error
    void *arg                            # handed to stop, the caller's own

ctypedef enum pn_error_kind:             # what Python raises for a failed call
    PN_ERROR_RUN = 0                     # RuntimeError
    PN_ERROR_MEMORY = 1                  # MemoryError
    PN_ERROR_FILE = 2                    # ValueError

cdef enum:                               # the numbers of Python's logging
    PN_LOG_DEBUG = 10
    PN_LOG_INFO = 20
    PN_LOG_WARNING = 30
    PN_LOG_ERROR = 40

# nogil. Text of this thread's last failed call, never NULL; valid until the thread's next failure.
cdef const char *pn_last_error() noexcept nogil
# nogil. format may hold up to two %lld, for a and b; the text is cut at 511 bytes.
cdef void pn_set_error(const char *format, int64_t a, int64_t b) noexcept nogil
# nogil. The same; format holds one %s, for text.
cdef void pn_set_error_text(const char *format, const char *text) noexcept nogil
# nogil. The same for an allocation that failed.
cdef void pn_set_no_memory(const char *format, int64_t a, int64_t b) noexcept nogil
# nogil. The same for a file of the model; the text begins with its path.
cdef void pn_set_file_error(const char *path, const char *format, int64_t a, int64_t b) noexcept nogil
cdef pn_error_kind pn_last_error_kind() noexcept nogil
# nogil. Receives every log line, possibly from several threads at once; NULL: nothing is printed or kept. No lock of
# the engine is held then but, during a run, the thread pool's.
cdef void pn_set_log(pn_log_fn callback) noexcept nogil
cdef void pn_log(int level, const char *format, int64_t a, int64_t b) noexcept nogil
# nogil. From now on long calls of this thread ask `now` between layers, NULL: nobody. It is borrowed until the next
# pn_set_interrupt; returns what was set before, so that calls can nest.
cdef const pn_interrupt *pn_set_interrupt(const pn_interrupt *now) noexcept nogil
cdef bint pn_interrupted() noexcept nogil
