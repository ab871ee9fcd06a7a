# cython: auto_pickle=False
"""ModelHandle, StateHandle and the watch over a running call (see handles.pxd for the contract)."""
import threading

cimport cython
from cpython.exc cimport PyErr_Occurred

from pantheon._core.engine cimport pn_model_free, pn_set_interrupt, pn_state_free

cdef extern from "Python.h":
    int PyErr_CheckSignals()
    unsigned long PyThread_get_thread_ident()


cdef class ModelHandle:

    def __cinit__(self):
        self.lock = TurnLock("the model")

    def __dealloc__(self):
        pn_model_free(self.model)

    cdef int check(self) except -1:
        if self.closing:
            raise ValueError("the model is closed")
        return 0


@cython.no_gc_clear                      # freeing the state needs the model
cdef class StateHandle:

    def __cinit__(self):
        self.turn = Turn("the state")

    def __dealloc__(self):
        pn_state_free(self.state)

    cdef int check(self) except -1:
        self.model.check()
        if self.closing:
            raise ValueError("the state is closed")
        return 0


cdef bint stop_wanted(void *arg) noexcept nogil:
    cdef run_watch *w = <run_watch *>arg
    if w.model_closing[0] or w.state_closing != NULL and w.state_closing[0]:
        return True
    if not w.signals:
        return False
    with gil:
        return PyErr_Occurred() != NULL or PyErr_CheckSignals() != 0


cdef void watch_begin(run_watch *w, ModelHandle model, StateHandle state, bint signals) noexcept:
    w.interrupt.stop = stop_wanted
    w.interrupt.arg = w
    w.model_closing = &model.closing
    w.state_closing = &state.closing if state is not None else NULL
    w.signals = signals
    w.before = pn_set_interrupt(&w.interrupt)


cdef int watch_end(run_watch *w) except -1:
    pn_set_interrupt(w.before)
    return -1 if PyErr_Occurred() != NULL else 0


cdef bint on_main_thread() except -1:
    return PyThread_get_thread_ident() == threading.main_thread().ident
