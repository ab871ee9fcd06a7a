# Python's face of a GGUF file. cimport it to hand an open gguf_file to Python code.
from pantheon._core.files.gguf_file cimport gguf_file

cdef class GGUFHandle:                   # keeps a gguf_file in memory: its last reference closes it
    cdef gguf_file *f
    cdef bint owned                      # True: closed by this handle
    cdef object owner                    # else: who closes it, kept alive by this reference

cdef class GGUFFile:
    cdef GGUFHandle handle               # None after close()
    cdef gguf_file *file(self) except NULL

# GIL; borrows f. The owner must not close f before its own last reference is gone: views of tensors hold one.
cdef GGUFFile from_file(gguf_file *f, object owner)
