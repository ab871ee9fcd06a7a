# Where a loader finds a model's tensors: a GGUF file, or the safetensors of a Hugging Face model under GGUF names.
#
# Loaders ask for tensors by their GGUF names ("blk.0.attn_q.weight"); for safetensors the name is translated. So one
# loader serves both containers.
from pantheon._core.gguf cimport gguf_file
from pantheon._core.safetensors cimport safetensors_file
from pantheon._core.types cimport tm_tensor

ctypedef enum pn_ternary_rule:           # how the matrices of a safetensors model are stored
    PN_TERNARY_NONE = 0
    PN_TERNARY_DIVIDE = 1                # packed codes; the product is divided by weight_scale
    PN_TERNARY_MULTIPLY = 2              # packed codes; the product is multiplied by weight_scale
    PN_TERNARY_ONLINE = 3                # float weights, quantised when loaded

cdef struct pn_source:                   # exactly one container is set; both are the caller's
    const gguf_file *gguf
    const safetensors_file *safetensors
    bint tied                            # safetensors: the LM head is the embedding, whatever the file holds
    pn_ternary_rule ternary              # safetensors: of the layers' matrices
    const char *prefix                   # safetensors: what stands before "layers.0." in its names

# nogil.
cdef pn_source source_gguf(const gguf_file *f) noexcept nogil
cdef pn_source source_safetensors(const safetensors_file *f) noexcept nogil
# GIL. The tensor of that GGUF name, borrowed from the container; NULL when absent.
cdef tm_tensor *source_tensor(const pn_source *s, str name) except? NULL
# GIL. The name that the container has for it: for messages.
cdef str source_name(const pn_source *s, str name)
