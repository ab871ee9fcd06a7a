"""memwatch: what memory there is, and what has been promised of it (see memwatch.pxd for the contract).

Nothing is remembered but the last level, for hysteresis: every record is a function of the sample and of the live
reservations. A reservation counts with what was promised less what its holder had touched when the sample was taken;
what was touched since is in neither number, so it is counted twice for a moment rather than not at all.

Where there is no /proc no thread runs: whoever decides asks psutil, under the GIL. Neither does one in a build without
USE_THREADS: whoever decides samples.
"""
import os

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strncpy

from pantheon._core.base.logging_bridge cimport raise_from_handlers
from pantheon._core.base.pthread cimport pthread_atfork
from pantheon._core.base.report cimport pn_last_error, pn_set_error
from pantheon._core.memory.environment cimport environment_memory_limit
from pantheon._core.memory.host cimport (
    PN_HOST_PATH,
    host_ask_psutil,
    host_root,
    pn_host_memory,
    pn_host_memory_read,
    pn_touch_bytes,
    pn_trim,
)
from pantheon._core.memory.ladder cimport pn_ladder_have, pn_ladder_level_of, pn_ladder_plan_from_state
from pantheon._core.types cimport PN_MODEL_MAX_DIES, pn_ladder_plan, pn_mem_level, pn_mem_state, pn_reservation

from pantheon._core.memory.ladder import LEVELS

cdef extern from "memory/seqlock.h" nogil:
    ctypedef struct pn_seqlock:
        pass
    const int PN_SEQLOCK_WORDS
    void pn_seqlock_write(pn_seqlock *s, const uint64_t *words, size_t n)
    uint64_t pn_seqlock_read(pn_seqlock *s, uint64_t *words, size_t n)

cdef extern from "memory/timer.h" nogil:
    ctypedef void (*pn_timer_tick)() noexcept nogil
    ctypedef struct pn_timer:
        pass
    uint64_t pn_monotonic_ns()
    void pn_timer_init(pn_timer *s, pn_timer_tick tick)
    int pn_timer_start(pn_timer *s, unsigned interval_ms, int with_thread)
    void pn_timer_stop(pn_timer *s, int halt_only)
    void pn_timer_ensure(pn_timer *s)
    int pn_timer_running(pn_timer *s)
    unsigned pn_timer_interval(pn_timer *s)
    void pn_timer_lock(pn_timer *s)
    void pn_timer_unlock(pn_timer *s)
    void pn_timer_before_fork(pn_timer *s)
    void pn_timer_after_fork(pn_timer *s)
    void pn_timer_in_child(pn_timer *s)

cdef extern from *:
    """
    #if PN_USE_THREADS
    #define PN_THREADS_BUILT 1
    #else
    #define PN_THREADS_BUILT 0
    #endif
    """
    const int PN_THREADS_BUILT

cdef enum:
    STALE_INTERVALS = 4
    MOST_LIMIT_BITS = 62                 # a limit is at most 2^62 bytes

cdef struct reservation_body:            # what pn_reservation * points to
    uint64_t promised                    # bytes of the host
    uint64_t touched                     # of them, so far
    uint64_t counted                     # of them, when the last sample was taken
    uint64_t dies[PN_MODEL_MAX_DIES]
    reservation_body *next

cdef struct die_memory:                  # one answer of a pn_die_source
    int n
    uint64_t total[PN_MODEL_MAX_DIES]
    uint64_t free[PN_MODEL_MAX_DIES]

cdef pn_timer timer
cdef pn_seqlock published
# Under the timer's lock:
cdef pn_mem_state current                # the writer's own copy of what is published
cdef reservation_body *reservations
cdef uint64_t memory_limit               # the user's, of what is not backed by files; 0: none
cdef bint limit_was_set                  # by a call, which counts for more than the environment
cdef char proc_root[PN_HOST_PATH]
cdef char cgroup_root[PN_HOST_PATH]
cdef pn_die_source die_source
cdef uint64_t page_bytes
cdef bint has_proc                       # else psutil has the numbers


cdef void publish() noexcept nogil:
    """Sums up the reservations, finds the levels and publishes. Under the lock."""
    cdef reservation_body *r = reservations
    cdef int i
    current.host_reserved = 0
    memset(current.die_reserved, 0, sizeof(current.die_reserved))
    while r != NULL:
        current.host_reserved += r.promised - min(r.promised, r.counted)
        for i in range(PN_MODEL_MAX_DIES):
            current.die_reserved[i] += r.dies[i]
        r = r.next
    current.level = pn_ladder_level_of(current.host_avail, current.host_reserved, current.host_total,
                                       <pn_mem_level>current.level)
    for i in range(<int>current.n_dies):
        current.die_level[i] = pn_ladder_level_of(current.die_free[i], current.die_reserved[i], current.die_total[i],
                                                  <pn_mem_level>current.die_level[i])
    current.seq += 1
    pn_seqlock_write(&published, <const uint64_t *>&current, sizeof(current) // sizeof(uint64_t))


cdef void take(const pn_host_memory *m, const die_memory *dies) noexcept nogil:
    """A sample of the host and the dies becomes the record, with the user's limit. Under the lock."""
    current.stamp_ns = pn_monotonic_ns()
    current.host_total = m.total
    current.host_avail = m.avail
    current.host_rss = m.rss
    if memory_limit > 0:
        current.host_total = min(m.total, memory_limit)
        current.host_avail = min(m.avail, memory_limit - min(memory_limit, m.anon))
    current.n_dies = dies.n
    memcpy(current.die_total, dies.total, sizeof(current.die_total))
    memcpy(current.die_free, dies.free, sizeof(current.die_free))
    publish()


cdef void count_touched() noexcept nogil:
    """Before a sample is taken, so that nothing is in neither number. Under the lock."""
    cdef reservation_body *r = reservations
    while r != NULL:
        r.counted = r.touched
        r = r.next


cdef void sample_and_keep_lock() noexcept nogil:
    """One sample. Who answers from outside is asked without the lock: a driver may be slow, psutil needs the GIL, and
    who holds that may be waiting for the lock."""
    cdef pn_host_memory m
    cdef die_memory dies
    cdef pn_die_source source
    memset(&dies, 0, sizeof(dies))
    pn_timer_lock(&timer)
    source = die_source
    if not has_proc:
        count_touched()
    pn_timer_unlock(&timer)
    if source != NULL:
        dies.n = max(0, min(<int>PN_MODEL_MAX_DIES, source(dies.total, dies.free)))
    if not has_proc:
        host_ask_psutil(&m)
    pn_timer_lock(&timer)
    if has_proc:
        count_touched()
        if pn_host_memory_read(proc_root, cgroup_root, &m) != 0:
            memset(&m, 0, sizeof(m))     # unknown: nothing is refused for a number that is not there
    take(&m, &dies)


cdef bint stale() noexcept nogil:
    cdef pn_mem_state st
    pn_memwatch_read(&st)
    return pn_monotonic_ns() - st.stamp_ns > <uint64_t>1000000 * STALE_INTERVALS * pn_timer_interval(&timer)


# ---- C API -----------------------------------------------------------------------------------------------------------

cdef int pn_memwatch_start(int interval_ms) noexcept nogil:
    global memory_limit
    cdef uint64_t limit
    if not 1 <= interval_ms <= 60000:
        pn_set_error(b"interval_ms is %d, not in 1..60000", interval_ms)
        return -1
    if not pn_memwatch_running():
        if environment_memory_limit(&limit) != 0:
            return -1
        pn_timer_lock(&timer)
        if not limit_was_set:
            memory_limit = limit
            current.stamp_ns = 0         # the next one who decides samples with it
            publish()
        pn_timer_unlock(&timer)
    if pn_timer_start(&timer, <unsigned>interval_ms, has_proc and PN_THREADS_BUILT) != 0:
        pn_set_error(b"the system gives no thread: memory is looked at when somebody decides")
        return -1
    return 0


cdef int pn_memwatch_set_limit(uint64_t bytes) noexcept nogil:
    global memory_limit, limit_was_set
    if bytes > <uint64_t>1 << MOST_LIMIT_BITS:
        pn_set_error(b"the memory limit is not in 0..%lld bytes", <long long>1 << MOST_LIMIT_BITS)
        return -1
    pn_timer_lock(&timer)
    memory_limit = bytes
    limit_was_set = bytes > 0
    pn_timer_unlock(&timer)
    pn_memwatch_sample()
    return 0


cdef void pn_memwatch_stop() noexcept nogil:
    pn_timer_stop(&timer, 0)


cdef bint pn_memwatch_running() noexcept nogil:
    return pn_timer_running(&timer)


cdef void pn_memwatch_read(pn_mem_state *st) noexcept nogil:
    if st == NULL:
        pn_set_error(b"state is NULL")
        return
    pn_seqlock_read(&published, <uint64_t *>st, sizeof(pn_mem_state) // sizeof(uint64_t))


cdef void pn_memwatch_fresh(pn_mem_state *st) noexcept nogil:
    if stale():
        pn_memwatch_sample()
    pn_memwatch_read(st)


cdef void pn_memwatch_sample() noexcept nogil:
    sample_and_keep_lock()
    pn_timer_unlock(&timer)


cdef void pn_memwatch_set_dies(pn_die_source source) noexcept nogil:
    global die_source
    pn_timer_lock(&timer)
    die_source = source
    pn_timer_unlock(&timer)


cdef uint64_t pn_memwatch_page_bytes() noexcept nogil:
    return page_bytes


cdef void pn_memwatch_decide_begin(pn_mem_state *st) noexcept nogil:
    pn_timer_ensure(&timer)
    if stale():
        sample_and_keep_lock()
    else:
        pn_timer_lock(&timer)
    st[0] = current


cdef void pn_memwatch_decide_end() noexcept nogil:
    pn_timer_unlock(&timer)


cdef pn_reservation *pn_memwatch_promise(uint64_t host, const uint64_t *dies, int n_dies) noexcept nogil:
    global reservations
    cdef reservation_body *r = <reservation_body *>calloc(1, sizeof(reservation_body))
    cdef int i
    if r == NULL:
        return NULL
    r.promised = host
    for i in range(n_dies):
        r.dies[i] = dies[i]
    r.next = reservations
    reservations = r
    publish()
    return <pn_reservation *>r


cdef reservation_body **live(const pn_reservation *r) noexcept nogil:
    """The link to a reservation, NULL behind it when it was released. Under the lock."""
    cdef reservation_body **at = &reservations
    while at[0] != NULL and at[0] != <const reservation_body *>r:
        at = &at[0].next
    return at


cdef void pn_reservation_touched(pn_reservation *r, uint64_t bytes) noexcept nogil:
    cdef reservation_body *body
    if r == NULL:
        return
    pn_timer_lock(&timer)
    body = live(r)[0]
    if body != NULL:
        body.touched = max(body.touched, bytes)
    pn_timer_unlock(&timer)


cdef uint64_t pn_reservation_bytes(const pn_reservation *r) noexcept nogil:
    return (<const reservation_body *>r).promised if r != NULL else 0


cdef void pn_reservation_release(pn_reservation *r) noexcept nogil:
    cdef reservation_body **at
    if r == NULL:
        return
    # What the holder touched may live on, in a cache: the sample that no longer counts the promise has to see it.
    sample_and_keep_lock()
    at = live(r)
    if at[0] != NULL:
        at[0] = at[0].next
        free(r)
        publish()
    pn_timer_unlock(&timer)


# ---- fork ------------------------------------------------------------------------------------------------------------

cdef void before_fork() noexcept nogil:
    pn_timer_before_fork(&timer)


cdef void after_fork() noexcept nogil:
    pn_timer_after_fork(&timer)


cdef void in_child() noexcept nogil:
    pn_timer_in_child(&timer)
    current.stamp_ns = 0                 # nobody has sampled this process yet: the next one who decides does
    publish()


# ---- Python face -----------------------------------------------------------------------------------------------------

def configure(proc="/proc", cgroup="/sys/fs/cgroup", limit=None):
    """Where memwatch reads, and how much memory this process may take: limit bytes that are not backed by files.

    Samples at once. ValueError naming the argument and its range.
    """
    global memory_limit, limit_was_set, has_proc
    cdef char p[PN_HOST_PATH]
    cdef char c[PN_HOST_PATH]
    if limit is not None and not 1 <= limit <= 2**62:
        raise ValueError(f"memory limit is {limit}, not in 1..{2**62} bytes")
    host_root(p, proc, "proc")
    host_root(c, cgroup, "cgroup")
    cdef uint64_t new_limit = limit or 0
    cdef bint proc_there = os.path.exists(os.path.join(proc, "meminfo"))
    with nogil:
        pn_timer_lock(&timer)
        memory_limit = new_limit
        limit_was_set = new_limit > 0
        has_proc = proc_there
        strncpy(proc_root, p, PN_HOST_PATH)
        strncpy(cgroup_root, c, PN_HOST_PATH)
        pn_timer_unlock(&timer)
    sample()


def start(interval_ms=250):
    """Starts sampling every interval_ms milliseconds, 1..60000; or changes the interval. ValueError, for a
    PANTHEON_MEMORY_LIMIT that is none too."""
    if not 1 <= interval_ms <= 60000:
        raise ValueError(f"interval_ms is {interval_ms}, not in 1..60000")
    cdef int interval = interval_ms
    with nogil:
        pn_memwatch_start(interval)
    if not pn_memwatch_running():
        raise ValueError(pn_last_error().decode("utf-8", "replace"))


def stop():
    """Ends sampling. From then on every request fits, unchecked."""
    with nogil:
        pn_memwatch_stop()


def halt():
    """Ends the thread but not the sampling, as if the thread were stuck. For tests."""
    with nogil:
        pn_timer_stop(&timer, 1)


def running():
    """True between start and stop."""
    return bool(pn_memwatch_running())


def limit():
    """The user's limit in bytes; None without one."""
    return memory_limit or None


def read(fresh=False):
    """The newest record as a dict, after a new sample when fresh is set and the record is stale.

    With it host_have, the bytes that new work may take, and evict_bytes and unload_bytes, which the ladder wants back.
    """
    cdef pn_mem_state st
    cdef pn_ladder_plan plan
    cdef bint anew = fresh
    with nogil:
        if anew:
            pn_memwatch_fresh(&st)
        else:
            pn_memwatch_read(&st)
    raise_from_handlers()
    pn_ladder_plan_from_state(&st, &plan)
    return {"seq": st.seq, "stamp_ns": st.stamp_ns, "host_total": st.host_total, "host_avail": st.host_avail,
            "host_rss": st.host_rss, "host_reserved": st.host_reserved,
            "host_have": pn_ladder_have(st.host_avail, st.host_reserved, st.host_total),
            "level": LEVELS[st.level], "evict_bytes": plan.evict_bytes, "unload_bytes": plan.unload_bytes,
            "dies": [{"total": st.die_total[i], "free": st.die_free[i], "reserved": st.die_reserved[i],
                      "level": LEVELS[st.die_level[i]]} for i in range(<int>st.n_dies)]}


def sample():
    """Samples now."""
    with nogil:
        pn_memwatch_sample()
    raise_from_handlers()                # Ctrl-C while psutil was asked


def trim():
    """Gives freed memory back to the system, where the allocator kept it, and samples."""
    with nogil:
        pn_trim()
    sample()


cdef uint64_t test_dies[2][PN_MODEL_MAX_DIES]
cdef int n_test_dies = 0


cdef int read_test_dies(uint64_t *totals, uint64_t *frees) noexcept nogil:
    cdef int i
    for i in range(n_test_dies):
        totals[i], frees[i] = test_dies[0][i], test_dies[1][i]
    return n_test_dies


def set_dies(dies):
    """Makes up GPU dies, (total, free) bytes of each; () for none. For tests."""
    global n_test_dies
    cdef int i
    n_test_dies = min(len(dies), <int>PN_MODEL_MAX_DIES)
    for i in range(n_test_dies):
        test_dies[0][i], test_dies[1][i] = dies[i]
    with nogil:
        if n_test_dies > 0:
            pn_memwatch_set_dies(read_test_dies)
        else:
            pn_memwatch_set_dies(NULL)
    sample()


RECORD_WORDS = sizeof(pn_mem_state) // sizeof(uint64_t)      # that the seqlock copies; for tests
assert RECORD_WORDS <= PN_SEQLOCK_WORDS
pn_timer_init(&timer, pn_memwatch_sample)
pthread_atfork(before_fork, after_fork, in_child)
page_bytes = pn_touch_bytes("/sys/kernel/mm/transparent_hugepage/enabled")
host_root(proc_root, "/proc", "proc")
host_root(cgroup_root, "/sys/fs/cgroup", "cgroup")
has_proc = os.path.exists("/proc/meminfo")
