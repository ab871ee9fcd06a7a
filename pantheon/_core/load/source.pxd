# Where a loader finds a model's tensors: a GGUF file, or the safetensors of a Hugging Face model under GGUF names.
#
# Loaders ask for tensors by their GGUF names ("blk.0.attn_q.weight"); for safetensors the name is translated. So one
# loader serves both containers. A source remembers what it was asked for: what a file holds beyond that is an error,
# since a bias or a norm that nobody read would make the model another one. It also knows what every reading of a
# tensor needs: the file's name for messages, and whose memory takes what has to be converted.
from pantheon._core.files.gguf_file cimport gguf_file
from pantheon._core.files.safetensors cimport safetensors_file
from pantheon._core.layers.matrix cimport pn_owned
from pantheon._core.load.config_hf cimport HfConfig, pn_ternary_rule
from pantheon._core.types cimport pn_load_opts, tm_tensor

cdef class Source:
    cdef const gguf_file *gguf           # exactly one container is set; both are the caller's
    cdef const safetensors_file *safetensors
    cdef str path                        # of the container: for messages
    cdef pn_owned *owned                 # the loading model's: takes what has to be converted
    cdef const pn_load_opts *opts        # the caller's, or NULL
    cdef set asked                       # the names asked for
    cdef object block                    # pattern of the names of a layer's tensors, its group 1 the number
    cdef str layers                      # what layers are called: for messages
    # safetensors alone:
    cdef HfConfig config                 # None: there is none, and the names are the file's own
    cdef bint tied                       # the LM head and the embedding may be one tensor in the file
    cdef pn_ternary_rule ternary         # of the layers' matrices
    cdef tuple names                     # as facts.NAMES: the model class's words for its parts, then older ones
    cdef str prefix                      # what stands before "layers.0." in its names
    cdef frozenset optional              # what the class has of OPTIONAL; None: all

# GIL. Shape in (out, in) order, without leading ones: for messages.
cdef str shape_text(const tm_tensor *t)
# GIL. Its type by name, whichever container it is of: for messages.
cdef str type_text(const tm_tensor *t)
# GIL. The file of that path; config: of a Hugging Face model, or None.
cdef Source source_gguf(const gguf_file *f, str path)
cdef Source source_safetensors(const safetensors_file *f, str path, HfConfig config)
# GIL. The names of all tensors of the container.
cdef list source_names(Source s)
# GIL. The tensor of that GGUF name, borrowed from the container; NULL when absent.
cdef tm_tensor *source_tensor(Source s, str name) except? NULL
# GIL. The name that the container has for it: for messages.
cdef str source_name(Source s, str name)
# GIL. ValueError naming the first tensor of the container that nobody asked for, and what its part of the model may
# have; drafting blocks (numbers from n_layer to n_blocks - 1) and what belongs to other parts of a multimodal model do
# not count.
cdef int source_check_extra(Source s, int n_layer, int n_blocks) except -1
