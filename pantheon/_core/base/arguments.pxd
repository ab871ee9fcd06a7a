# What callers hand in, as plain values. Objects may run any code while they are converted, even close what a call is
# about to use: every argument is converted before a handle is taken. Python code takes its own through the same rules.

# An integer, however large; TypeError for anything but an integer (True and False are none).
cdef object exact(str name, object value)
# An integer in low..high; TypeError as above, ValueError with the range.
cpdef long integer(str name, object value, long low, long high) except? -1
# The same in two steps, where the range is known only with a handle. Numbers that no C integer holds come out as the
# nearest of +-(2^63 - 1), which is in no range.
cpdef long whole(str name, object value) except? -1
cdef int between(str name, long value, long low, long high) except -1
# A number, as Python converts it; inf for an integer beyond all floats. TypeError for anything else (True and False).
cpdef double number(str name, object value) except? -1

# Token ids, in the same two steps: a copy of what is a sequence of integers, (n,); TypeError, ValueError for other
# shapes. Then the same as uint32, once all are in 0..high, which is one; `name` is what the error calls an id.
cdef object id_array(str name, object ids)
cdef object ids_between(str name, object ids, long high)
