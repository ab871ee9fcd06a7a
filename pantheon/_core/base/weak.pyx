"""A set of objects that it does not keep alive, which may be listed while other threads add to it."""
import functools
import weakref


cdef class WeakRegistry:
    """Objects by identity, in the order in which they came. (Iterating a weakref.WeakSet fails when another thread adds
    to it.) Compiled, so that no signal handler runs in the middle of one of these calls."""
    cdef dict references                 # id -> weakref.ref

    def __cinit__(self):
        self.references = {}

    def add(self, item):
        forget = functools.partial(self.references.pop, id(item))        # called with the reference, pop's default
        self.references[id(item)] = weakref.ref(item, forget)

    def discard(self, item):
        self.references.pop(id(item), None)

    def __contains__(self, item):
        return id(item) in self.references

    def alive(self):
        """The objects that are there now."""
        items = [reference() for reference in list(self.references.values())]
        return [item for item in items if item is not None]
