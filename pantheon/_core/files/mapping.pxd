# A model file in memory: mapped where the system can, read where it cannot.
from libc.stdint cimport uint8_t, uint64_t

cdef struct pn_mapping:
    const uint8_t *data                  # (size,) bytes, read-only; NULL for an empty file
    size_t size                          # bytes, fixed when the file was opened
    bint mapped                          # True: mmap; False: read into malloc'ed memory
    int descriptor                       # of a mapped file, to see whether it is whole; -1: there is none
    uint64_t device, inode               # what the descriptor was opened for
    char *path                           # malloc, owned

# nogil. How many bytes of files may be read into memory now.
ctypedef uint64_t (*pn_room_fn)() noexcept nogil

# GIL; the caller owns the result; raises OSError (FileNotFoundError ...) or ValueError naming the file.
cdef pn_mapping *pn_mapping_open(str path) except NULL
# nogil; NULL is allowed.
cdef void pn_mapping_close(pn_mapping *m) noexcept nogil
# nogil. The first of n mappings whose file has fewer bytes than when it was opened, NULL when all are whole. Touching
# what is missing would end the process with SIGBUS.
cdef const pn_mapping *pn_mappings_cut(pn_mapping **maps, int n) noexcept nogil
# GIL. ValueError naming the first of those.
cdef int pn_mappings_check(pn_mapping **maps, int n) except -1
# nogil. From now on a file is read into memory only where there is room; NULL: always.
cdef void pn_mapping_set_room(pn_room_fn room) noexcept nogil
