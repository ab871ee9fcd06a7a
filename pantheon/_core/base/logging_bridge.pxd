# What Python code raised that the engine ran in this thread, such as handlers of the logger "pantheon": Ctrl-C, or
# whatever else is no Exception. Raised once, when the engine's call has returned, whether it failed or not.
cdef int raise_from_handlers() except -1
# Where the engine runs such code: puts the first of them aside until then.
cdef void keep_for_caller(object error) noexcept
