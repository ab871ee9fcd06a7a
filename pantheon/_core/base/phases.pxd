# Where the time of runs goes: a stopwatch that rank 0 switches at the borders between kinds of work. It runs only while
# someone measures; otherwise a switch reads one flag.
#
# The pool, matrix products, attention and barriers switch it: architectures need no lines for it.

cdef enum pn_phase:
    PHASE_OUTSIDE = 0                    # between runs: Python, sampling
    PHASE_VECTORS = 1                    # norms, rotation, quantising, activations, residual additions
    PHASE_PRODUCTS = 2
    PHASE_ATTENTION = 3                  # its softmax included
    PHASE_WAITING = 4                    # for other ranks
    PHASE_COUNT = 5

# nogil. What rank 0 does from now on; other ranks' calls do nothing.
cdef void phase_enter(int rank, pn_phase phase) noexcept nogil
