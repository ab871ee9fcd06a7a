"""What memory the host has (see host.pxd for the contract): the trees of /proc and cgroups, or psutil."""
import logging
import os

from libc.string cimport memset, strncpy

from pantheon._core.base.logging_bridge cimport keep_for_caller


cdef void host_ask_psutil(pn_host_memory *m) noexcept with gil:
    memset(m, 0, sizeof(pn_host_memory))
    try:
        import psutil

        memory, rss = psutil.virtual_memory(), psutil.Process().memory_info().rss
        m.total = m.mem_total = memory.total
        m.avail = m.mem_avail = memory.available
        m.rss = m.anon = rss
    except Exception as e:
        logging.getLogger("pantheon").debug("memory of this system is unknown: %s", e)
    except BaseException as e:           # Ctrl-C
        keep_for_caller(e)


cdef int host_root(char *to, path, str name) except -1:
    cdef bytes raw = os.fsencode(path)
    if b"\0" in raw or len(raw) >= PN_HOST_PATH:
        raise ValueError(f"{name} is {path!r}, not a path below {<int>PN_HOST_PATH} bytes")
    strncpy(to, raw, PN_HOST_PATH)
    return 0


cdef dict host_dict(const pn_host_memory *m):
    return {"total": m.total, "available": m.avail, "mem_total": m.mem_total, "mem_available": m.mem_avail,
            "rss": m.rss, "anonymous": m.anon, "cgroup_limit": m.limit if m.version else None,
            "cgroup_used": m.used if m.version else None, "cgroup_version": m.version or None,
            "cgroup": os.fsdecode(<bytes>m.cgroup) if m.version else None}


def host_memory(proc="/proc", cgroup="/sys/fs/cgroup"):
    """What these trees say of this process's memory, as a dict; None when there is no meminfo.

    total, available: bytes, the container's where it is tighter; mem_total, mem_available: the machine's; rss,
    anonymous: this process's; cgroup_limit, cgroup_used (without page cache), cgroup_version, cgroup: the group that
    leaves least, None without a limit.
    """
    cdef pn_host_memory m
    cdef char p[PN_HOST_PATH]
    cdef char c[PN_HOST_PATH]
    host_root(p, proc, "proc")
    host_root(c, cgroup, "cgroup")
    if pn_host_memory_read(p, c, &m) != 0:
        return None
    return host_dict(&m)
