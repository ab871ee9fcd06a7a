# The C side of a Model. Other Cython code may cimport it to reach the pointer: through a handle, which the caller holds
# for as long as it uses it.
from pantheon._core.python.handles cimport ModelHandle

cdef class ModelBase:
    cdef ModelHandle handle              # None after close()
    cdef object states                   # WeakRegistry of its states
    cdef object __weakref__
    cdef ModelHandle open(self)
