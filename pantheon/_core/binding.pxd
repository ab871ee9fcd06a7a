# Python classes over the C API. Other Cython code may cimport them to reach the pointers of a Model or State: through a
# handle, which the caller holds for as long as it uses them.
from pantheon._core.handles cimport ModelHandle, StateHandle
from pantheon._core.types cimport PN_KV_DEFAULT, pn_kv_type

cdef class ModelBase:
    cdef ModelHandle handle              # None after close()
    cdef object states                   # WeakRegistry of its states
    cdef object __weakref__
    cdef ModelHandle open(self)

cdef class State:
    cdef StateHandle handle              # None after close()
    cdef readonly ModelBase model
    cdef object checkpoints              # WeakRegistry of the valid ones
    cdef object __weakref__
    cdef StateHandle open(self)
    cdef StateHandle begin(self)
    cdef StateHandle enter(self, ModelBase model, int n)
    cdef void shut(self)
    cdef void forget(self, int pos)

# A KV type by its name, None: PN_KV_DEFAULT; ValueError for any other.
cdef pn_kv_type kv_number(object kv_type) except? PN_KV_DEFAULT
