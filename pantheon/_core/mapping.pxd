# A model file in memory: mapped where the system can, read where it cannot.
from libc.stdint cimport uint8_t

cdef struct pn_mapping:
    const uint8_t *data                  # (size,) bytes, read-only; NULL for an empty file
    size_t size                          # bytes, fixed when the file was opened
    bint mapped                          # True: mmap; False: read into malloc'ed memory
    char *path                           # malloc, owned

# GIL; the caller owns the result; raises OSError (FileNotFoundError ...) or ValueError naming the file.
cdef pn_mapping *pn_mapping_open(str path) except NULL
# nogil; NULL is allowed.
cdef void pn_mapping_close(pn_mapping *m) noexcept nogil
