# Forks of the process. A child has one thread, the one that forked; what other threads of the parent were doing never
# ends in the child, so their marks and locks are void there.

# nogil. How many forks lie between the first process and this one: a mark made under another count is the parent's.
cdef int pn_forks() noexcept nogil
# nogil. The thread that this process began with after its fork, as PyThread_get_thread_ident() gives it; 0 before any
# fork. What it held it holds still.
cdef unsigned long pn_fork_survivor() noexcept nogil
# nogil. No fork happens between the two, so that a child never sees what stands between them half done. Short, not
# nested, and nothing in between may need the GIL: the forking thread waits with the GIL held.
cdef void pn_fork_hold() noexcept nogil
cdef void pn_fork_release() noexcept nogil
