"""Routes the engine's log lines to the Python logger "pantheon"."""
import logging

from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject

from pantheon._core.base.report cimport pn_log, pn_set_log

cdef extern from *:
    """
    static _Thread_local PyObject *pn_handler_error;
    """
    PyObject *pn_handler_error           # owned: what a handler of this thread raised; NULL: nothing

logger = logging.getLogger("pantheon")


cdef void to_python(int level, const char *text) noexcept nogil:
    cdef PyObject *type
    cdef PyObject *value
    cdef PyObject *traceback
    with gil:
        PyErr_Fetch(&type, &value, &traceback)       # of a call that is failing already
        try:
            logger.log(level, "%s", text.decode("utf-8", "replace"))
        except Exception:                # a failing handler must not take the engine down
            pass
        except BaseException as error:   # Ctrl-C: raised when the engine has returned
            keep_for_caller(error)
        PyErr_Restore(type, value, traceback)


cdef void keep_for_caller(object error) noexcept:
    global pn_handler_error
    if pn_handler_error == NULL:
        Py_INCREF(error)
        pn_handler_error = <PyObject *>error


cdef int raise_from_handlers() except -1:
    global pn_handler_error
    cdef PyObject *kept = pn_handler_error
    if kept != NULL:
        pn_handler_error = NULL
        error = <object>kept
        Py_XDECREF(kept)
        raise error
    return 0


def install():
    """From now on the lines go to the logger; without handlers Python prints warnings and errors only."""
    pn_set_log(to_python)


def uninstall():
    """From now on nothing is printed or kept."""
    pn_set_log(NULL)


def emit(int level, str text not None):
    """One line from the engine's side, with the GIL released. For tests."""
    cdef bytes line = text.encode()
    cdef const char *p = line
    with nogil:
        pn_log(level, b"%s", p)
    raise_from_handlers()
