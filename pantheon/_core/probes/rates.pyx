"""Limits of the machine that a benchmark compares with: read bandwidth, and multiply-adds on registers alone.

Both run on the engine's thread pool, on the ranks that a model would use. The engine does not import this module.
"""
from libc.stdint cimport int64_t, uint8_t, uintptr_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import numpy as np

from pantheon._core.base.pool cimport fw_pool_barrier, fw_pool_get, fw_pool_run
from pantheon._core.kernels.table cimport pn_kernels_level

cdef extern from "probes/read.h" nogil:
    enum:
        PN_PROBE_STREAMS
    int64_t pn_probe_read(const uint8_t *p, size_t n)

cdef extern from "probes/ceiling.h" nogil:
    ctypedef double (*pn_ceiling_fn)() noexcept nogil
    pn_ceiling_fn pn_ceiling(const char *level, int floats)

cdef enum:
    MAX_RANKS = 256
    PEAK_LOOPS = 64                      # per pass: about a millisecond

cdef struct probe_job:
    const uint8_t *data                  # (n ranks, slice)
    size_t slice                         # bytes of a rank
    pn_ceiling_fn loop                   # NULL: reads
    int passes
    int ranks                            # that took part
    double best                          # seconds of the quickest pass
    double work[MAX_RANKS]               # multiply-adds of one pass
    int64_t seen[MAX_RANKS]


cdef double seconds() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + 1e-9 * now.tv_nsec


cdef void probe_task(void *arg, int rank, int n) noexcept nogil:
    cdef probe_job *job = <probe_job *>arg
    cdef double begin, work
    for _ in range(job.passes):
        fw_pool_barrier(fw_pool_get(), n)
        begin = seconds()
        if job.loop == NULL:
            job.seen[rank] ^= pn_probe_read(job.data + rank * job.slice, job.slice)
        else:
            work = 0
            for _ in range(PEAK_LOOPS):
                work += job.loop()
            job.work[rank] = work
        fw_pool_barrier(fw_pool_get(), n)
        if rank == 0:
            job.ranks = n
            job.best = min(job.best, seconds() - begin)


cdef void run(probe_job *job, int threads, int passes) noexcept nogil:
    job.passes = passes
    job.best = 1e300
    fw_pool_run(fw_pool_get(), probe_task, job, threads)


cdef class ReadProbe:
    """A buffer to read; it is filled when it is made, so that its pages are there.

    nbytes should be far more than the caches hold: what is left in them would be read faster.
    """
    cdef object memory
    cdef uint8_t *data
    cdef size_t nbytes

    def __cinit__(self, size_t nbytes):
        self.memory = np.empty(nbytes + 64, np.uint8)
        self.memory.fill(1)
        self.data = <uint8_t *>((<uintptr_t>self.memory.ctypes.data + 63) // 64 * 64)
        self.nbytes = nbytes

    def bandwidth(self, int threads=1, int passes=1):
        """Bytes a second that so many threads read together, each its part as 8 streams far apart; the best pass."""
        cdef probe_job job
        check_threads(threads)
        job.loop = NULL
        job.data = self.data
        job.slice = self.nbytes // threads // (64 * PN_PROBE_STREAMS) * (64 * PN_PROBE_STREAMS)
        if job.slice == 0:
            raise ValueError(f"{self.nbytes} bytes are too few for {threads} threads")
        with nogil:
            run(&job, threads, passes)
        return job.slice * job.ranks / job.best


def multiply_peak(str level, int threads=1, bint floats=False, int passes=20):
    """Multiply-adds a second of so many threads with the level's product instructions, on int8 codes or floats.

    None for a level without product instructions of its own (ref). ValueError: no such level.
    """
    cdef probe_job job
    cdef bytes name = level.encode()
    cdef double work = 0
    cdef int i
    check_threads(threads)
    pn_kernels_level(level)
    job.loop = pn_ceiling(name, floats)
    if job.loop == NULL:
        return None
    with nogil:
        run(&job, threads, passes)
    for i in range(job.ranks):
        work += job.work[i]
    return work / job.best


cdef int check_threads(int threads) except -1:
    if not 1 <= threads <= MAX_RANKS:
        raise ValueError(f"threads is {threads}, not in 1..{<int>MAX_RANKS}")
    return 0
