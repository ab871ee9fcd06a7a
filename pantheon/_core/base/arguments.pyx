"""Arguments of calls (see arguments.pxd for the contract)."""
from libc.math cimport INFINITY

from operator import index

import numpy as np

cdef long FAR = 2**63 - 1


cdef object exact(str name, object value):
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    return int(index(value))             # exactly int: an __index__ may return a subclass with methods of its own


cpdef long whole(str name, object value) except? -1:
    return min(max(exact(name, value), -FAR), FAR)


cdef int between(str name, long value, long low, long high) except -1:
    if not low <= value <= high:
        shown = value if -FAR < value < FAR else "beyond 2^63"
        raise ValueError(f"{name} is {shown}, not in {low}..{high}")
    return 0


cpdef long integer(str name, object value, long low, long high) except? -1:
    cdef long number = whole(name, value)
    between(name, number, low, high)
    return number


cpdef double number(str name, object value) except? -1:
    try:
        if not isinstance(value, bool):
            return value
    except OverflowError:
        return INFINITY
    except TypeError:
        pass
    raise TypeError(f"{name} must be a number, not {type(value).__name__}")


cdef object id_array(str name, object ids):
    array = np.array(ids)
    if array.ndim != 1:
        raise ValueError(f"{name} must be a sequence of ids, not of shape {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        if isinstance(ids, np.ndarray) or not all([type(item) is int for item in ids]):
            raise TypeError(f"{name} must be integers, not {array.dtype}")
        array = np.array(ids, object)    # numbers that no type of C holds together
    return array


cdef object ids_between(str name, object ids, long high):
    if ids.size:
        integer(name, ids.min(), 0, high)
        integer(name, ids.max(), 0, high)
    return ids.astype(np.uint32, copy=False)
