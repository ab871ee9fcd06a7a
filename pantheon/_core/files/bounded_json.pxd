# JSON from files that may be hostile.
from libc.stdint cimport uint8_t

# GIL; the parsed value of n bytes of text. ValueError, which begins with `what`: it is no JSON, no UTF-8, nests deeper
# than max_depth, has more than max_items values, or has a key twice in one object.
cdef object json_parse(const uint8_t *text, size_t n, int max_depth, size_t max_items, str what)
# GIL; the same of a whole file of at most max_bytes. OSError, or ValueError naming the file.
cdef object json_file(str path, int max_depth, size_t max_items, size_t max_bytes)
