# KV cache of one sequence of a transformer: for every layer and KV head a K area and a V area in the layout of
# kernels.h.
from libc.stdint cimport uint8_t

from pantheon._core.kernels.table cimport pn_kv_ops
from pantheon._core.types cimport pn_config, pn_cost, pn_kv_type

cdef struct pn_llama_kv_cache:
    const pn_kv_ops *ops
    pn_kv_type type                      # never PN_KV_DEFAULT
    int n_layer
    int n_kv_head
    int head_dim
    int n_ctx                            # a multiple of 8
    int high                             # positions ever written since the last reset
    bint stretched                       # the keys are rotated by LongRoPE's long factors
    size_t k_bytes                       # of one head
    size_t v_bytes
    size_t nbytes                        # of all
    uint8_t *data                        # (n_layer, n_kv_head, k_bytes + v_bytes), pages, zero where never written

# GIL; MemoryError. Makes a zeroed *kv a cache of n_layer layers. Quantised types need a head_dim that is a multiple of
# 32: others get f16, with a log line.
cdef int kvcache_init(pn_llama_kv_cache *kv, const pn_config *c, int n_layer, int n_ctx, pn_kv_type type) except -1
# nogil. Frees its memory, not *kv.
cdef void kvcache_release(pn_llama_kv_cache *kv) noexcept nogil
# nogil. Zeroes K and V up to the highest position used, so that untouched memory stays untouched.
cdef void kvcache_reset(pn_llama_kv_cache *kv) noexcept nogil
# nogil. Bytes of a cache without making one.
cdef size_t kvcache_bytes(const pn_config *c, int n_layer, int n_ctx, pn_kv_type type) noexcept nogil

# nogil. The type that a cache of this type really gets, never PN_KV_DEFAULT.
cdef pn_kv_type kvcache_type(const pn_config *c, pn_kv_type type) noexcept nogil
# nogil. Adds the type and the two areas per layer and head, K and V, to a cost.
cdef void kvcache_cost(const pn_config *c, int n_layer, pn_kv_type type, pn_cost *cost) noexcept nogil

cdef inline uint8_t *kvcache_k(const pn_llama_kv_cache *kv, int layer, int head) noexcept nogil:
    return kv.data + (<size_t>layer * kv.n_kv_head + head) * (kv.k_bytes + kv.v_bytes)

cdef inline uint8_t *kvcache_v(const pn_llama_kv_cache *kv, int layer, int head) noexcept nogil:
    return kvcache_k(kv, layer, head) + kv.k_bytes
