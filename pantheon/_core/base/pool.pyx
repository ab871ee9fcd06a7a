"""fw_pool: the worker threads of the process (see pool.pxd for the contract).

Every worker has an event of its own, so a run wakes just the ranks that take part. After a fork the child starts with
an empty pool: threads do not survive a fork, and the child starts its own on first use.
"""
from libc.stdint cimport uint32_t
from libc.string cimport memset

from pantheon._core.base.fork cimport pn_forks
from pantheon._core.base.phases cimport PHASE_OUTSIDE, PHASE_VECTORS, PHASE_WAITING, phase_enter
from pantheon._core.base.pthread cimport (
    pthread_atfork,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
    pthread_t,
)
from pantheon._core.types cimport fw_pool

cdef extern from "base/sync.h" nogil:
    ctypedef struct pn_event:
        pass
    ctypedef struct pn_barrier:
        pass
    int pn_thread_start(pthread_t *thread, void *(*body)(void *) noexcept nogil, void *arg)
    void pn_event_advance(pn_event *e)
    void pn_event_wait(pn_event *e, uint32_t seen)
    uint32_t pn_event_value(pn_event *e)
    void pn_barrier_wait(pn_barrier *b, uint32_t n)

cdef extern from *:
    """
    #if PN_USE_THREADS
    #define PN_THREADS_BUILT 1
    #else
    #define PN_THREADS_BUILT 0
    #endif
    """
    const int PN_THREADS_BUILT

cdef extern from *:
    """
    static _Thread_local int pn_in_run;
    """
    int pn_in_run                        # this thread is inside a run: what it starts there, it does alone

cdef enum:
    MAX_WORKERS = 255

cdef struct pool_worker:
    pn_event start                       # advanced once per run that this worker takes part in
    pthread_t thread
    int rank

cdef struct pool_body:                   # what fw_pool * points to
    pthread_mutex_t lock                 # held during a run: runs queue
    pn_barrier barrier
    pool_worker workers[MAX_WORKERS]
    int n_workers
    fw_task task                         # of the run in progress
    void *arg
    int n

cdef pool_body the_pool


cdef void *worker_main(void *arg) noexcept nogil:
    cdef pool_worker *self = <pool_worker *>arg
    cdef uint32_t seen = 0
    while True:
        pn_event_wait(&self.start, seen)
        seen += 1
        the_pool.task(the_pool.arg, self.rank, the_pool.n)
        pn_barrier_wait(&the_pool.barrier, <uint32_t>the_pool.n)
    return NULL


cdef void reset_pool() noexcept nogil:
    memset(&the_pool, 0, sizeof(the_pool))
    pthread_mutex_init(&the_pool.lock, NULL)


cdef int grow(int n_workers) noexcept nogil:
    """Starts workers until there are n_workers or the system refuses; returns how many there are."""
    cdef pool_worker *w
    while the_pool.n_workers < min(n_workers, <int>MAX_WORKERS):
        w = &the_pool.workers[the_pool.n_workers]
        memset(&w.start, 0, sizeof(pn_event))
        w.rank = the_pool.n_workers + 1
        if pn_thread_start(&w.thread, worker_main, w) != 0:
            break
        the_pool.n_workers += 1
    return the_pool.n_workers


cdef fw_pool *fw_pool_get() noexcept nogil:
    return <fw_pool *>&the_pool if PN_THREADS_BUILT else NULL


cdef void fw_pool_run(fw_pool *p, fw_task task, void *arg, int n) noexcept nogil:
    global pn_in_run
    cdef int i, forks = pn_forks()
    if p == NULL or n < 2 or pn_in_run:
        phase_enter(0, PHASE_VECTORS)
        task(arg, 0, 1)
        phase_enter(0, PHASE_OUTSIDE)
        return
    pthread_mutex_lock(&the_pool.lock)
    phase_enter(0, PHASE_WAITING)
    n = min(n, grow(n - 1) + 1)
    the_pool.task = task
    the_pool.arg = arg
    the_pool.n = n
    for i in range(n - 1):
        pn_event_advance(&the_pool.workers[i].start)
    phase_enter(0, PHASE_VECTORS)
    pn_in_run = 1
    task(arg, 0, n)
    pn_in_run = 0
    if forks != pn_forks():              # inside the task this process began as a fork: no lock, no workers
        phase_enter(0, PHASE_OUTSIDE)
        return
    phase_enter(0, PHASE_WAITING)
    pn_barrier_wait(&the_pool.barrier, <uint32_t>n)
    phase_enter(0, PHASE_OUTSIDE)
    pthread_mutex_unlock(&the_pool.lock)


cdef void fw_pool_barrier(fw_pool *p, int n) noexcept nogil:
    if p != NULL:
        pn_barrier_wait(&the_pool.barrier, <uint32_t>n)


cdef int fw_pool_workers(fw_pool *p) noexcept nogil:
    return the_pool.n_workers if p != NULL else 0


reset_pool()
if PN_THREADS_BUILT:
    pthread_atfork(NULL, NULL, reset_pool)


# ---- test hook -------------------------------------------------------------------------------------------------------

cdef struct probe_job:
    int rounds
    int *hits                            # (n,) rounds that each rank ran
    int *torn                            # times a rank saw another one a round behind after a barrier


cdef void probe_task(void *arg, int rank, int n) noexcept nogil:
    cdef probe_job *job = <probe_job *>arg
    cdef int r, i
    for r in range(job.rounds):
        job.hits[rank] += 1
        fw_pool_barrier(fw_pool_get(), n)
        for i in range(n):
            if job.hits[i] != r + 1:
                job.torn[0] += 1
        fw_pool_barrier(fw_pool_get(), n)


def probe(int n, int rounds):
    """Runs `rounds` barrier rounds on n ranks; returns (rounds of each rank, torn reads). For tests."""
    cdef int hits[MAX_WORKERS + 1]
    cdef int torn = 0
    cdef probe_job job
    if not 1 <= n <= MAX_WORKERS:
        raise ValueError(f"n must be 1..{MAX_WORKERS}, not {n}")
    memset(hits, 0, sizeof(hits))
    job.rounds = rounds
    job.hits = hits
    job.torn = &torn
    with nogil:
        fw_pool_run(fw_pool_get(), probe_task, &job, n)
    return [hits[i] for i in range(n)], torn


def workers():
    """Worker threads started so far in this process."""
    return fw_pool_workers(fw_pool_get())


def threads_built():
    """False in a build without USE_THREADS."""
    return bool(PN_THREADS_BUILT)
