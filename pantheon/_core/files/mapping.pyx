"""A model file in memory. The mapping is private and read-only: weights cost no memory beyond the pages that were
touched, and the page cache shares them between processes.

PANTHEON_MMAP chooses how: "auto" (the default) maps, but reads the file into memory where mapping fails and on NFS and
SMB, where a change on the server would end the process with SIGBUS; "mmap" maps or fails; "read" always reads.

The same signal comes on any file system when somebody cuts a mapped file short and a page behind its new end is
touched. So the descriptor stays open, and whoever is about to read much asks first whether the file is whole.
"""
import os

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, errno
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy
from posix.mman cimport MAP_FAILED, MAP_PRIVATE, PROT_READ, mmap, munmap
from posix.stat cimport S_ISREG, fstat, struct_stat
from posix.types cimport off_t
from posix.unistd cimport close

from pantheon.regular_file import file_name, open_regular


cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void *buffer, size_t count, off_t offset)

cdef extern from "<sys/vfs.h>" nogil:
    struct c_statfs "statfs":
        long f_type
    int fstatfs(int fd, c_statfs *out)

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void **out, size_t alignment, size_t size)

cdef enum:
    READ_ALIGNMENT = 64                  # of the memory that a file is read into
    READ_CHUNK = 64 << 20                # bytes read between two looks for Ctrl-C
    NFS_MAGIC = 0x6969
    SMB_MAGIC = 0x517B

cdef uint32_t CIFS_MAGIC = 0xFF534D42
cdef uint32_t SMB2_MAGIC = 0xFE534D42

MODES = ("auto", "mmap", "read")


def is_network_filesystem(f_type):
    """True for the statfs type numbers of file systems whose files must not be mapped: NFS, SMB, CIFS."""
    cdef uint32_t magic = f_type & 0xFFFFFFFF
    return magic in (NFS_MAGIC, SMB_MAGIC, CIFS_MAGIC, SMB2_MAGIC)


cdef pn_room_fn room_for_files = NULL


cdef void pn_mapping_set_room(pn_room_fn room) noexcept nogil:
    global room_for_files
    room_for_files = room


cdef object os_error(int code, str path):
    return OSError(code, os.strerror(code), path)


cdef str mode_of_environment():
    mode = os.environ.get("PANTHEON_MMAP", "auto")
    if mode not in MODES:
        raise ValueError(f"PANTHEON_MMAP={mode!r}: choose one of {', '.join(MODES)}")
    return mode


cdef int map_file(pn_mapping *m, int fd) noexcept nogil:
    """0, or the errno that says why the file cannot be mapped. Keeps the descriptor."""
    cdef void *p = mmap(NULL, m.size, PROT_READ, MAP_PRIVATE, fd, 0)
    if p == MAP_FAILED:
        return errno
    m.data = <const uint8_t *> p
    m.mapped = True
    m.descriptor = fd
    return 0


cdef int read_file(pn_mapping *m, int fd, str path) except -1:
    cdef void *buffer = NULL
    cdef size_t done = 0, want
    cdef ssize_t got
    cdef int code = 0
    cdef uint64_t room = m.size
    if room_for_files != NULL:
        with nogil:
            room = room_for_files()
    if room < m.size:
        raise MemoryError(f"{path}: its {m.size} bytes are to be read into memory, where {room} may be taken; "
                          "PANTHEON_MMAP=mmap maps it")
    if posix_memalign(&buffer, READ_ALIGNMENT, m.size) != 0:
        raise MemoryError(f"{path}: no memory to read {m.size} bytes into")
    m.data = <const uint8_t *> buffer
    while done < m.size:
        want = min(m.size - done, <size_t> READ_CHUNK)
        with nogil:
            got = pread(fd, <uint8_t *> buffer + done, want, done)
            if got < 0:
                code = errno
        PyErr_CheckSignals()
        if got < 0 and code != EINTR:
            raise os_error(code, path)
        if got == 0:
            raise ValueError(f"{path}: the file shrank from {m.size} to {done} bytes while it was read")
        if got > 0:
            done += got
    return 0


cdef int fill(pn_mapping *m, int fd, str mode, str path) except -1:
    cdef c_statfs system
    cdef bint remote
    cdef int code
    if m.size == 0:                      # nothing to map: mmap refuses a length of 0
        return 0
    if mode == "auto":
        remote = fstatfs(fd, &system) == 0 and is_network_filesystem(system.f_type)
        if not remote and map_file(m, fd) == 0:
            return 0
    elif mode == "mmap":
        code = map_file(m, fd)
        if code != 0:
            raise os_error(code, path)
        return 0
    read_file(m, fd, path)
    return 0


cdef pn_mapping *pn_mapping_open(str path) except NULL:
    cdef bytes name = file_name(path)
    cdef str mode = mode_of_environment()
    cdef pn_mapping *m
    cdef struct_stat info
    cdef int fd = open_regular(path)
    m = <pn_mapping *> calloc(1, sizeof(pn_mapping))
    try:
        if m == NULL:
            raise MemoryError(f"{path}: no memory")
        m.descriptor = -1
        if fstat(fd, &info) != 0:
            raise os_error(errno, path)
        m.size = info.st_size
        m.device = info.st_dev
        m.inode = info.st_ino
        m.path = <char *> malloc(len(name) + 1)
        if m.path == NULL:
            raise MemoryError(f"{path}: no memory")
        memcpy(m.path, <const char *> name, len(name) + 1)
        fill(m, fd, mode, path)
    except BaseException:
        if m == NULL or m.descriptor != fd:
            close(fd)
        pn_mapping_close(m)
        raise
    if m.descriptor != fd:
        close(fd)
    return m


cdef bint has_descriptor(const pn_mapping *m, struct_stat *info) noexcept nogil:
    """Whether the descriptor is still that of the file, and what it says: programs that become daemons close all."""
    return (m.descriptor >= 0 and fstat(m.descriptor, info) == 0 and S_ISREG(info.st_mode)
            and <uint64_t> info.st_dev == m.device and <uint64_t> info.st_ino == m.inode)


cdef void pn_mapping_close(pn_mapping *m) noexcept nogil:
    cdef struct_stat info
    if m == NULL:
        return
    if has_descriptor(m, &info):
        close(m.descriptor)
    if m.mapped:
        munmap(<void *> m.data, m.size)
    else:
        free(<void *> m.data)
    free(m.path)
    free(m)


cdef const pn_mapping *pn_mappings_cut(pn_mapping **maps, int n) noexcept nogil:
    cdef struct_stat info
    cdef int i
    for i in range(n):
        if has_descriptor(maps[i], &info) and <size_t> info.st_size < maps[i].size:
            return maps[i]
    return NULL


cdef int pn_mappings_check(pn_mapping **maps, int n) except -1:
    cdef const pn_mapping *m = pn_mappings_cut(maps, n)
    if m != NULL:
        raise ValueError(f"{os.fsdecode(<bytes> m.path)}: the file was cut short after it was opened with "
                         f"{m.size} bytes")
    return 0


cdef class MappedFile:
    """A file as a read-only buffer: memoryview(MappedFile(path)), np.frombuffer(MappedFile(path), np.uint8).

    Opened by the constructor and let go with the last reference, those of its buffers included. Raises OSError
    (FileNotFoundError, IsADirectoryError, ...) or ValueError naming the file; the latter, too, for a new buffer when
    somebody has cut the file short.
    """

    cdef pn_mapping *m

    def __cinit__(self, path):
        self.m = pn_mapping_open(os.fsdecode(path))

    def __dealloc__(self):
        pn_mapping_close(self.m)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        pn_mappings_check(&self.m, 1)
        # An empty file has no address, and a buffer needs one even for nothing.
        cdef void *start = <void *> self.m.data if self.m.size else <void *> self.m.path
        PyBuffer_FillInfo(buffer, self, start, self.m.size, True, flags)

    def __len__(self):
        return self.m.size

    @property
    def path(self):
        """The path that it was opened with, as str."""
        return os.fsdecode(<bytes> self.m.path)

    @property
    def mapped(self):
        """True: mapped. False: read into memory."""
        return bool(self.m.mapped)
