"""Routes the engine's log lines to the Python logger "pantheon"."""
import logging

from pantheon._core.report cimport pn_log, pn_set_log

logger = logging.getLogger("pantheon")


cdef void to_python(int level, const char *text) noexcept nogil:
    with gil:
        try:
            logger.log(level, "%s", text.decode("utf-8", "replace"))
        except Exception:                # a failing handler must not take the engine down
            pass


def install():
    """From now on the lines go to the logger; without handlers Python prints warnings and errors only."""
    pn_set_log(to_python)


def uninstall():
    """From now on nothing is printed or kept."""
    pn_set_log(NULL)


def emit(int level, str text not None):
    """One line from the engine's side, with the GIL released. For tests."""
    cdef bytes line = text.replace("%", "%%").encode()
    cdef const char *p = line
    with nogil:
        pn_log(level, p, 0, 0)
