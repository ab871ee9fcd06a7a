# The registry: one row per architecture, made at import and never changed.
from pantheon._core.arch.ops cimport pn_arch_ops
from pantheon._core.files.gguf_file cimport gguf_file
from pantheon._core.types cimport pn_model, pn_state

# GIL. The row of a name, borrowed; NULL when there is none.
cdef const pn_arch_ops *ops_named(str name) noexcept
# GIL. The row of a GGUF file with that general.architecture, borrowed; NULL when there is none. ValueError naming the
# key.
cdef const pn_arch_ops *ops_of_gguf(const gguf_file *f, str name) except? NULL
# nogil. The row whose safetensors come without a config.json, borrowed.
cdef const pn_arch_ops *ops_without_config() noexcept nogil
# nogil. The row of a loaded model, of a state's model; borrowed.
cdef const pn_arch_ops *ops_of(const pn_model *model) noexcept nogil
cdef const pn_arch_ops *ops_of_state(const pn_state *state) noexcept nogil
# nogil. The row of an architecture, borrowed; NULL for a number that is none.
cdef const pn_arch_ops *ops_numbered(int arch) noexcept nogil
