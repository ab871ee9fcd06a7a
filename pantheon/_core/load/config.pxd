# pn_config: reading it from GGUF metadata and refusing what no model can be.
from libc.stdint cimport int64_t

from pantheon._core.files.gguf_file cimport gguf_file
from pantheon._core.load.source cimport Source
from pantheon._core.types cimport pn_config, pn_rope_kind

cdef struct pn_gguf_rules:               # what the GGUF files of an architecture mean without saying it
    pn_rope_kind rope_kind
    bint layer_norm                      # norms are LayerNorms
    bint experts_raw                     # routing weights are not divided by their sum, unless a key says so
    bint experts_split_ff                # without a key, experts are n_ff wide together: as many as a token uses
    bint expert_shared                   # there is a shared expert, without a key n_ff wide

cdef class GgufKeys:                     # the keys of a file's architecture; ValueError naming file and key
    cdef const gguf_file *f
    cdef str arch                        # general.architecture, which their names begin with
    cdef str path
    cdef object value(self, str key)                         # None when it is absent
    cdef int64_t integer(self, str key, object default=*, int64_t layer=*) except? -1
    cdef int64_t bounded(self, str key, int64_t low, int64_t high, object default=*) except? -1
    cdef double number(self, str key, object default=*) except? -1
    cdef int int32(self, str key, object default=*) except? -1

# GIL. The keys of a GGUF source.
cdef GgufKeys gguf_keys(Source f)
# GIL; ValueError naming the key. Fills every field but arch.
cdef int config_from_gguf(pn_config *c, GgufKeys keys, const pn_gguf_rules *rules) except -1
# GIL; ValueError naming the hyper-parameter, its value and the accepted range.
cdef int config_validate(const pn_config *c, str path) except -1
# A plain dict of the fields, enums as names; for Python and for messages.
cdef dict config_dict(const pn_config *c)
