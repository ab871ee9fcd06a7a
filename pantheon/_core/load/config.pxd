# pn_config: reading it from GGUF metadata and refusing what no model can be.
from pantheon._core.files.gguf_file cimport gguf_file
from pantheon._core.types cimport pn_config

# GIL; ValueError naming the key. Fills every field that the keys of `arch` (GGUF prefix) and the vocabulary tensor
# define; rope_kind is the architecture's own and stays as it is.
cdef int config_from_gguf(pn_config *c, const gguf_file *f, str arch, str path) except -1
# GIL; ValueError naming the hyper-parameter, its value and the accepted range.
cdef int config_validate(const pn_config *c, str path) except -1
# A plain dict of the fields, enums as names; for Python and for messages.
cdef dict config_dict(const pn_config *c)
