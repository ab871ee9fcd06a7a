"""Turn and TurnLock: marks of use that know their thread, survive signal handlers and are void after a fork.

A plain lock hangs in two places: a signal handler that wants what its own thread holds below it, and a forked child
that wants what another thread of its parent held.
"""
import threading

from pantheon._core.base.fork cimport pn_fork_survivor, pn_forks

from pantheon._core.base.errors import BusyError

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1
    unsigned long PyThread_get_thread_ident()

cdef double SLICE = 0.05                 # seconds of waiting between two looks


cdef class Turn:
    """One thread's turn at `what`, or nobody's; for with statements."""

    def __cinit__(self, str what not None="this", **_):
        self.what = what

    cdef bint taken(self) noexcept:
        return self.thread != 0 and (self.forks == pn_forks() or self.thread == pn_fork_survivor())

    cdef bint mine(self) noexcept:
        return self.thread == PyThread_get_thread_ident() and self.taken()

    cdef int take(self) except -1:
        if self.taken():
            raise BusyError(f"{self.what} is in a call already: another thread's, or this one's below a signal handler")
        self.thread = PyThread_get_thread_ident()
        self.forks = pn_forks()
        return 0

    cdef void give(self) noexcept:
        self.thread = 0

    def __enter__(self):
        self.take()
        return self

    def __exit__(self, *error):
        self.give()


cdef class TurnLock(Turn):
    """A lock, for with statements. The thread that holds it gets BusyError, or with reentrant enters again."""

    def __cinit__(self, str what not None="this", *, bint reentrant=False):
        self.lock = threading.Lock()
        self.reentrant = reentrant

    cdef int wait(self) except -1:
        if self.mine():
            if not self.reentrant:
                self.take()              # which raises
            self.depth += 1
            return 0
        # Signal handlers run while this waits. What they raise comes out with nothing taken. In a child that one of
        # them forked nobody ever releases the parent's lock: so the wait is cut into slices.
        lock = self.own_lock()
        free = lock.acquire(False)
        while not free or lock is not self.own_lock():
            PyErr_CheckSignals()         # of a signal between two slices acquire knows nothing
            lock = self.own_lock()
            free = lock.acquire(True, SLICE)
        self.take()
        self.depth = 1
        return 0

    cdef object own_lock(self):
        """The lock of this process: whoever holds its parent's, or waits for that, is a thread of the parent."""
        if self.forks != pn_forks():
            if not self.taken():
                self.lock = threading.Lock()
                self.thread = 0
            self.forks = pn_forks()
        return self.lock

    cdef int leave(self) except -1:
        self.depth -= 1
        if self.depth == 0:
            self.give()
            self.lock.release()
        return 0

    def __enter__(self):
        self.wait()
        return self

    def __exit__(self, *error):
        self.leave()
