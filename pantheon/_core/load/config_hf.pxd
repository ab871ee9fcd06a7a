# pn_config from the config.json of a Hugging Face model. All of it needs the GIL; ValueError naming file and key.
from pantheon._core.types cimport pn_config

ctypedef enum pn_ternary_rule:           # how the matrices of a safetensors model are stored
    PN_TERNARY_NONE = 0
    PN_TERNARY_DIVIDE = 1                # packed codes; the product is divided by weight_scale
    PN_TERNARY_MULTIPLY = 2              # packed codes; the product is multiplied by weight_scale
    PN_TERNARY_ONLINE = 3                # float weights, quantised when loaded

cdef class HfConfig:                     # one object of a config.json; null counts as absent
    cdef readonly dict values
    cdef dict defaults                   # the model class's own, of keys that a file may leave out
    cdef str path                        # of the file: for messages
    cdef str prefix                      # of the object's keys: for messages
    cdef readonly str name               # the model class
    cdef readonly object facts           # its ModelClass
    cdef object refuse(self, str key, str expected)
    cdef object get(self, str key, object default=*)
    cdef object needed(self, str key, object default)
    cdef int integer(self, str key, object default=*) except? -1
    cdef int bounded(self, str key, int low, int high, object default=*) except? -1
    cdef double number(self, str key, object default=*) except? -1
    cdef bint flag(self, str key, bint default) except *
    cdef str text(self, str key, str default)

# The registry's name for the model class. (read_config makes the HfConfig of a file: Python calls it too.)
cdef str hf_architecture(HfConfig config)
# What the class has of the parts that may be missing, by the ends of their GGUF names ("attn_q.bias"): a file's other
# ones are no part of the model.
cdef frozenset hf_optional(HfConfig config)
# The rotation's own keys.
cdef HfConfig hf_rope(HfConfig config)
# Fills every field but arch; rope_kind is PN_ROPE_NEOX.
cdef int config_from_hf(pn_config *c, HfConfig config) except -1
# Sliding window of each layer, (n_layer,) ints, 0 = none.
cdef list hf_windows(HfConfig config, int n_layer, int n_ctx)
# LongRoPE's factors under a key, "short_factor" or "long_factor": (rope_dims / 2,) numbers; c is filled.
cdef list hf_rope_factors(const pn_config *c, HfConfig config, str key)
# How the matrices of the layers are stored.
cdef pn_ternary_rule hf_ternary_rule(HfConfig config) except *
# Whether the LM head is the embedding where the file has just one of them.
cdef bint hf_tied(HfConfig config) except *
