"""Arguments of Python calls (see arguments.pxd for the contract)."""
from operator import index

cdef long FAR = 1L << 62


cdef long whole(str name, object value) except? -1:
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    number = int(index(value))           # exactly int: an __index__ may return a subclass with methods of its own
    return min(max(number, -FAR), FAR)


cdef int between(str name, long value, long low, long high) except -1:
    if not low <= value <= high:
        shown = value if -FAR < value < FAR else "beyond 2^62"
        raise ValueError(f"{name} is {shown}, not in {low}..{high}")
    return 0


cdef long integer(str name, object value, long low, long high) except? -1:
    cdef long number = whole(name, value)
    between(name, number, low, high)
    return number
