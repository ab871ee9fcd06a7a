# The host's memory truth: hostmem.h where there is /proc, psutil elsewhere.
from libc.stdint cimport uint64_t

cdef enum:
    PN_HOST_PATH = 4096                  # bytes of a root's path, its NUL included

cdef extern from "memory/hostmem.h" nogil:
    ctypedef struct pn_host_memory:
        uint64_t total, avail, mem_total, mem_avail, rss, anon, limit, used
        int version
        char cgroup[512]
    int pn_host_memory_read(const char *proc, const char *root, pn_host_memory *m)
    uint64_t pn_touch_bytes(const char *setting)
    void pn_trim()

# GIL. Copies a path into to (PN_HOST_PATH,); ValueError naming the argument.
cdef int host_root(char *to, path, str name) except -1
# Takes the GIL. The same numbers from psutil, all 0 where it has none; no cgroups. Ctrl-C is kept for
# raise_from_handlers().
cdef void host_ask_psutil(pn_host_memory *m) noexcept with gil
