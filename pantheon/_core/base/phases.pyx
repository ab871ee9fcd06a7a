"""Stopwatch of the kinds of work within runs (see phases.pxd). One for the process: measure one model at a time."""
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

cdef bint measuring = False
cdef pn_phase current = PHASE_OUTSIDE
cdef int64_t since                       # when it began
cdef int64_t total[PHASE_COUNT]          # nanoseconds

NAMES = ("outside", "vectors", "products", "attention", "waiting")


cdef inline int64_t now() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t>t.tv_sec * 1000000000 + t.tv_nsec


cdef void phase_enter(int rank, pn_phase phase) noexcept nogil:
    global current, since
    cdef int64_t at
    if not measuring or rank != 0:
        return
    at = now()
    total[<int>current] += at - since
    current = phase
    since = at


def start():
    """Sets the stopwatch to zero and lets it run."""
    global measuring, current, since
    cdef int i
    for i in range(<int>PHASE_COUNT):
        total[i] = 0
    current = PHASE_OUTSIDE
    since = now()
    measuring = True


def stop():
    """Stops it: seconds since start() by kind of work, a dict with the keys NAMES; every moment counts once."""
    global measuring
    cdef int i
    phase_enter(0, PHASE_OUTSIDE)
    measuring = False
    return {NAMES[i]: 1e-9 * total[i] for i in range(<int>PHASE_COUNT)}
