# States of the Python API. Other Cython code may cimport them to reach the pointer of one: through a handle, which the
# caller holds for as long as it uses it.
from pantheon._core.python.handles cimport StateHandle
from pantheon._core.types cimport PN_KV_DEFAULT, pn_kv_type

cdef class State:
    cdef StateHandle handle              # None after close()
    cdef readonly object model           # a ModelBase
    cdef object checkpoints              # WeakRegistry of the valid ones
    cdef object __weakref__
    cdef StateHandle open(self)
    cdef StateHandle begin(self)
    cdef StateHandle enter(self, object model, int n)
    cdef void shut(self)
    cdef void forget(self, int pos)

# A KV type by its name, None: PN_KV_DEFAULT; ValueError for any other.
cdef pn_kv_type kv_number(object kv_type) except? PN_KV_DEFAULT
# The name of a KV type; None for PN_KV_DEFAULT, which is where there is no cache.
cdef object kv_name(pn_kv_type kv_type)
