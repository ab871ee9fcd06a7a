# Layers of the Llama family and their parts, by all ranks of a run together. phi.pyx builds its layer from the parts.
from pantheon._core.arch.llama.structs cimport llama_job, pn_llama_stream
from pantheon._core.layers.linear cimport pn_team

# nogil. What every rank of a run does; arg: the llama_job.
cdef void llama_task(void *arg, int rank, int n) noexcept nogil
# Parts of a layer, nogil, by all ranks of a run together.
cdef void llama_layer(llama_job *job, pn_team *team, pn_llama_stream *s, int l, int t0, int t1) noexcept nogil
# q, k and v of the layer, then attention; heads is whole after the next barrier.
cdef void llama_attention(llama_job *job, pn_team *team, pn_llama_stream *s, int l, int t0, int t1) noexcept nogil
# Residual stream += delta (n_tok, n_embd) + bias (n_embd,) or NULL, for tokens [t0, t1).
cdef void llama_add(llama_job *job, pn_llama_stream *s, const float *delta, const float *bias, int t0,
                    int t1) noexcept nogil
# Norm of tokens [t0, t1) for the layer after l, prepared for its qkv; nothing after the last layer.
cdef void llama_next(llama_job *job, const pn_team *team, pn_llama_stream *s, int l, int t0, int t1) noexcept nogil
