# Who may use a thing that one thread at a time may use. Both classes are guarded by the GIL, know their thread, and are
# free in the child of a fork unless the thread that forked holds them.

cdef class Turn:                         # never waits: BusyError, for a second call of the same thread too
    cdef str what                        # "the state": whose turn it is, for the error
    cdef unsigned long thread            # the holder's identity, 0: nobody's turn
    cdef int forks                       # pn_forks() when it was taken
    cdef bint taken(self) noexcept
    cdef bint mine(self) noexcept        # this thread holds it
    cdef int take(self) except -1
    cdef void give(self) noexcept

cdef class TurnLock(Turn):               # waits for other threads; with reentrant, a thread may take it several times
    cdef object lock                     # threading.Lock of the process that it was taken in
    cdef bint reentrant
    cdef int depth                       # how often the holder has taken it
    cdef object own_lock(self)
    cdef int wait(self) except -1
    cdef int leave(self) except -1
