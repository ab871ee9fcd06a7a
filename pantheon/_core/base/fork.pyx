"""Forks of the process (see fork.pxd for the contract)."""
from pantheon._core.base.pthread cimport (
    pthread_atfork,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
)

cdef extern from "Python.h" nogil:
    unsigned long PyThread_get_thread_ident()

cdef pthread_mutex_t half_done           # held while something must not be seen half done
cdef int forks = 0
cdef unsigned long survivor = 0


cdef int pn_forks() noexcept nogil:
    return forks


cdef unsigned long pn_fork_survivor() noexcept nogil:
    return survivor


cdef void pn_fork_hold() noexcept nogil:
    pthread_mutex_lock(&half_done)


cdef void pn_fork_release() noexcept nogil:
    pthread_mutex_unlock(&half_done)


cdef void in_child() noexcept nogil:
    global forks, survivor
    forks += 1
    survivor = PyThread_get_thread_ident()
    pthread_mutex_init(&half_done, NULL)


pthread_mutex_init(&half_done, NULL)
pthread_atfork(pn_fork_hold, pn_fork_release, in_child)
