# What callers hand in, as plain values. Objects may run any code while they are converted, even close what a call is
# about to use: every argument is converted before a handle is taken.

# An integer in low..high; TypeError for anything but an integer (True and False are none), ValueError with the range.
cdef long integer(str name, object value, long low, long high) except? -1
# The same in two steps, where the range is known only with a handle. Numbers beyond 2^62 come out as that.
cdef long whole(str name, object value) except? -1
cdef int between(str name, long value, long low, long high) except -1
