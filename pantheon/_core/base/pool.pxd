# fw_pool: the worker threads of the process, shared by all models.
#
# A run is one function executed by n ranks at once; the caller is rank 0. Ranks meet at fw_pool_barrier. Runs of
# different callers queue. Workers are started on first use, spin for a moment when they have nothing to do, then sleep.
from pantheon._core.types cimport fw_pool

cdef extern from "base/sync.h" nogil:
    ctypedef struct pn_counter:
        pass
    int pn_counter_next(pn_counter *c)
    void pn_counter_zero(pn_counter *c)

ctypedef void (*fw_task)(void *arg, int rank, int n) noexcept nogil

# nogil. The pool of the process, borrowed; NULL in a build without USE_THREADS.
cdef fw_pool *fw_pool_get() noexcept nogil
# nogil. Runs task on up to n ranks (fewer when the system refuses threads, 1 when p is NULL) and returns when all are
# done.
cdef void fw_pool_run(fw_pool *p, fw_task task, void *arg, int n) noexcept nogil
# nogil. Inside a task: waits until all n ranks of the run are here.
cdef void fw_pool_barrier(fw_pool *p, int n) noexcept nogil
# nogil. Workers started so far.
cdef int fw_pool_workers(fw_pool *p) noexcept nogil
