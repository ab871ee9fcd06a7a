# Python classes over the C API. Other Cython code may cimport them to reach the pointers of a Model or State.
from pantheon._core.types cimport pn_model, pn_state

cdef class ModelHandle:                  # frees the model when the last of model, states and tensor views is gone
    cdef pn_model *model

cdef class ModelBase:
    cdef ModelHandle handle              # None after close()
    cdef readonly object lock            # threading.Lock: one run of this model at a time
    cdef object states                   # weakref.WeakSet of its open states
    cdef object __weakref__
    cdef pn_model *ptr(self) except NULL

cdef class State:
    cdef ModelHandle handle              # None after close()
    cdef readonly ModelBase model
    cdef pn_state *state
    cdef bint busy                       # a call is running; guarded by the GIL
    cdef object override                 # backs state.embd_override
    cdef object checkpoints              # weakref.WeakSet of the valid ones
    cdef object __weakref__
    cdef pn_state *ptr(self) except NULL
    cdef pn_state *enter(self, ModelBase model, int n) except NULL
    cdef pn_state *idle(self) except NULL
    cdef void forget(self, int pos)
    cdef void release(self) noexcept
