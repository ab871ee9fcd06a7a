# What the engine's Cython code uses of POSIX threads. Threads themselves are started by sync.h and memory/sampler.h.
cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *m, void *attr)
    int pthread_mutex_lock(pthread_mutex_t *m)
    int pthread_mutex_unlock(pthread_mutex_t *m)
    ctypedef void (*fork_handler)() noexcept nogil
    int pthread_atfork(fork_handler prepare, fork_handler parent, fork_handler child)
