# pn_config from the config.json of a Hugging Face model.
from pantheon._core.load.source cimport pn_ternary_rule
from pantheon._core.types cimport pn_config

# What all of these take is standard_config() of the file. GIL; ValueError naming the file and the key.
# The registry's name for the model class.
cdef str hf_architecture(dict config, str path)
# What the class has of the parts that may be missing, by the ends of their GGUF names ("attn_q.bias"): a file's other
# ones are no part of the model.
cdef frozenset hf_optional(dict config, str path)
# The rotation's own keys, {} when there are none.
cdef dict hf_rope(dict config)
# GIL. An integer of the configuration in low..high; default None: the class's, which must have one.
cdef int hf_integer(dict config, str path, str key, int low, int high, object default) except? -1
# GIL. Fills every field but arch; rope_kind is PN_ROPE_NEOX.
cdef int config_from_hf(pn_config *c, dict config, str path) except -1
# GIL. Sliding window of each layer, (n_layer,) ints, 0 = none; c is filled.
cdef list hf_windows(const pn_config *c, dict config, str path)
# GIL. LongRoPE's factors under a key, "short_factor" or "long_factor": (rope_dims / 2,) numbers; c is filled.
cdef list hf_rope_factors(const pn_config *c, dict config, str path, str key)
# GIL. How the matrices of the layers are stored.
cdef pn_ternary_rule hf_ternary_rule(dict config, str path) except *
# GIL. Whether the LM head is the embedding where the file has just one of them.
cdef bint hf_tied(dict config, str path) except *
