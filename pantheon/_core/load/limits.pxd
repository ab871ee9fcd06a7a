# Sizes that hold for every model, whatever file it comes from.
cdef enum:
    PN_MAX_LAYERS = 1024
