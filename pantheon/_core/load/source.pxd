# Where a loader finds a model's tensors: a GGUF file, or the safetensors of a Hugging Face model under GGUF names.
#
# Loaders ask for tensors by their GGUF names ("blk.0.attn_q.weight"); for safetensors the name is translated. So one
# loader serves both containers. A source remembers what it was asked for: what a file holds beyond that is an error,
# since a bias or a norm that nobody read would make the model another one.
from cpython.ref cimport PyObject

from pantheon._core.files.gguf_file cimport gguf_file
from pantheon._core.files.safetensors cimport safetensors_file
from pantheon._core.types cimport tm_tensor

ctypedef enum pn_ternary_rule:           # how the matrices of a safetensors model are stored
    PN_TERNARY_NONE = 0
    PN_TERNARY_DIVIDE = 1                # packed codes; the product is divided by weight_scale
    PN_TERNARY_MULTIPLY = 2              # packed codes; the product is multiplied by weight_scale
    PN_TERNARY_ONLINE = 3                # float weights, quantised when loaded

ctypedef enum pn_hf_names:               # whose words a safetensors model has for its parts
    PN_NAMES_LLAMA = 0                   # most models
    PN_NAMES_MIXTRAL = 1
    PN_NAMES_PHI = 2                     # Phi-1 and Phi-2
    PN_NAMES_QWEN35 = 3

cdef struct pn_source:                   # exactly one container is set; both are the caller's
    const gguf_file *gguf
    const safetensors_file *safetensors
    bint tied                            # safetensors: the LM head and the embedding may be one tensor in the file
    pn_ternary_rule ternary              # safetensors: of the layers' matrices
    pn_hf_names names                    # safetensors
    const char *prefix                   # safetensors: what stands before "layers.0." in its names
    const float *rope_short              # safetensors: (rope_dims / 2,) LongRoPE's factors, the caller's, or NULL
    const float *rope_long               # the same, for long states
    PyObject *optional                   # safetensors: borrowed frozenset, what the class has of OPTIONAL; NULL: all
    PyObject *asked                      # borrowed set of the names asked for; NULL: nobody will want to know

# GIL. Shape in (out, in) order, without leading ones: for messages.
cdef str shape_text(const tm_tensor *t)
# GIL. Its type by name, whichever container it is of: for messages.
cdef str type_text(const tm_tensor *t)
# nogil.
cdef pn_source source_gguf(const gguf_file *f) noexcept nogil
cdef pn_source source_safetensors(const safetensors_file *f) noexcept nogil
# GIL. The tensor of that GGUF name, borrowed from the container; NULL when absent.
cdef tm_tensor *source_tensor(const pn_source *s, str name) except? NULL
# GIL. The name that the container has for it: for messages.
cdef str source_name(const pn_source *s, str name)
# GIL. ValueError naming the first tensor of the container that nobody asked for, and what its part of the model may
# have; drafting blocks (numbers from n_layer to n_blocks - 1) and what belongs to other parts of a multimodal model do
# not count. `asked` has been set while the model was loaded.
cdef int source_check_extra(const pn_source *s, str path, int n_layer, int n_blocks) except -1
