"""KV cache of one sequence of a transformer (see kvcache.pxd for the contract)."""
from libc.stdint cimport uint8_t
from libc.string cimport memset

from pantheon._core.base.carver cimport aligned
from pantheon._core.base.pages cimport pn_pages_free, pn_pages_new
from pantheon._core.base.report cimport pn_log
from pantheon._core.kernels.table cimport pn_kernels_active, pn_kv_ops
from pantheon._core.types cimport (
    PN_KV_DEFAULT,
    PN_KV_F16,
    PN_KV_Q4_0,
    PN_KV_Q8_0,
    PN_LOG_WARNING,
    pn_config,
    pn_cost,
    pn_kv_type,
)


cdef pn_kv_type kvcache_type(const pn_config *c, pn_kv_type type) noexcept nogil:
    if type == PN_KV_DEFAULT or (c.head_dim % 32 != 0 and (type == PN_KV_Q8_0 or type == PN_KV_Q4_0)):
        return PN_KV_F16
    return type


cdef inline const pn_kv_ops *ops_of(pn_kv_type type) noexcept nogil:
    """Of a type that is not the default: the kernels count the others in the same order."""
    return &pn_kernels_active().kv[<int>type - <int>PN_KV_F16]


cdef size_t kvcache_bytes(const pn_config *c, int n_layer, int n_ctx, pn_kv_type type) noexcept nogil:
    cdef const pn_kv_ops *ops = ops_of(kvcache_type(c, type))
    n_ctx = (n_ctx + 7) // 8 * 8
    return <size_t>n_layer * c.n_kv_head * (aligned(ops.k_bytes(n_ctx, c.head_dim))
                                            + aligned(ops.v_bytes(n_ctx, c.head_dim)))


cdef void kvcache_cost(const pn_config *c, int n_layer, pn_kv_type type, pn_cost *cost) noexcept nogil:
    cdef const pn_kv_ops *ops = ops_of(kvcache_type(c, type))
    cost.kv_type = kvcache_type(c, type)
    cost.areas[cost.n_areas].n = cost.areas[cost.n_areas + 1].n = <size_t>n_layer * c.n_kv_head
    cost.areas[cost.n_areas].group_bytes = ops.k_bytes(8, c.head_dim)
    cost.areas[cost.n_areas + 1].group_bytes = ops.v_bytes(8, c.head_dim)
    cost.n_areas += 2


cdef int kvcache_init(pn_llama_kv_cache *kv, const pn_config *c, int n_layer, int n_ctx, pn_kv_type type) except -1:
    kv.type = kvcache_type(c, type)
    if type != PN_KV_DEFAULT and kv.type != type:
        pn_log(PN_LOG_WARNING, b"KV cache: head_dim %d is no multiple of 32, f16 is used instead of a quantised type",
               c.head_dim)
    kv.ops = ops_of(kv.type)
    kv.n_layer = n_layer
    kv.n_kv_head = c.n_kv_head
    kv.head_dim = c.head_dim
    kv.n_ctx = (n_ctx + 7) // 8 * 8
    kv.k_bytes = aligned(kv.ops.k_bytes(kv.n_ctx, kv.head_dim))
    kv.v_bytes = aligned(kv.ops.v_bytes(kv.n_ctx, kv.head_dim))
    kv.nbytes = kvcache_bytes(c, n_layer, n_ctx, type)
    kv.data = <uint8_t *>pn_pages_new(kv.nbytes)
    if kv.data == NULL:
        raise MemoryError(f"KV cache of {n_ctx} positions: {(<object>kv.nbytes):,} bytes")
    return 0


cdef void kvcache_release(pn_llama_kv_cache *kv) noexcept nogil:
    pn_pages_free(kv.data, kv.nbytes)
    kv.data = NULL


cdef void kvcache_reset(pn_llama_kv_cache *kv) noexcept nogil:
    cdef int layer, head
    cdef int used = (kv.high + 7) // 8 * 8
    if used == 0:
        return
    for layer in range(kv.n_layer):
        for head in range(kv.n_kv_head):
            memset(kvcache_k(kv, layer, head), 0, kv.ops.k_bytes(used, kv.head_dim))
            memset(kvcache_v(kv, layer, head), 0, kv.ops.v_bytes(used, kv.head_dim))
    kv.high = 0
