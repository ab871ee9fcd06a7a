# What handlers of the logger "pantheon" raised while the engine was logging in this thread: Ctrl-C, or whatever else is
# no Exception. Raised once, after the engine's call that logged.
cdef int raise_from_handlers() except -1
