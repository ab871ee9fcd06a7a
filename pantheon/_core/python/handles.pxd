# Who owns a model and a state of the C API on behalf of Python objects. A call keeps a reference to the handles that it
# uses: close() takes the objects' references away at once, and the memory goes with the last call.
from pantheon._core.base.turn cimport Turn, TurnLock
from pantheon._core.types cimport pn_interrupt, pn_model, pn_state

cdef class ModelHandle:                  # freed when the last of model, states and tensor views is gone
    cdef pn_model *model                 # owned
    cdef TurnLock lock                   # one run of this model at a time
    cdef int closing                     # set by close(); read without the GIL
    cdef int check(self) except -1       # ValueError once the model is closed

cdef class StateHandle:
    cdef pn_state *state                 # owned
    cdef ModelHandle model               # outlives the state
    cdef Turn turn                       # one call at a time
    cdef int closing                     # set by close(); read without the GIL
    cdef object override                 # backs state.embd_override
    cdef int check(self) except -1       # ValueError once the state or its model is closed

# What a running call asks between layers: whether what it runs on was closed, and on the main thread whether a signal
# came. On the stack of the call, between watch_begin and watch_end, both with the GIL.
cdef struct run_watch:
    pn_interrupt interrupt
    const pn_interrupt *before           # whom the thread asked until then
    const int *model_closing
    const int *state_closing             # NULL: the call goes on when a state is closed
    bint signals

cdef void watch_begin(run_watch *w, ModelHandle model, StateHandle state, bint signals) noexcept
# Raises what a signal handler raised in between.
cdef int watch_end(run_watch *w) except -1
# Whether signal handlers run in this thread.
cdef bint on_main_thread() except -1
