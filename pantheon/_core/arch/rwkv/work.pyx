"""Buffers of RWKV-X runs (see work.pxd for the contract)."""
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc

from pantheon._core.arch.rwkv.structs cimport (
    IN_FF,
    IN_HEADS,
    IN_LORA,
    IN_MIX,
    RX_COUNTERS,
    RX_LORAS,
    RX_MIXES,
    pn_rwkv7_block,
    pn_rwkvx_attn,
    pn_rwkvx_model,
    rx_candidate,
    rx_prompt,
    rx_state,
    rx_work,
)
from pantheon._core.arch.structs cimport IN_HEAD
from pantheon._core.arch.work cimport layout_floats, layout_input, layout_reads
from pantheon._core.base.carver cimport aligned, carve, carve_floats, carver
from pantheon._core.base.report cimport pn_set_no_memory
from pantheon._core.layers.attention cimport attention_scratch
from pantheon._core.layers.kvcache cimport kvcache_bytes, pn_llama_kv_cache
from pantheon._core.types cimport pn_config, pn_kv_type, pn_model


cdef void rx_walk(pn_layout *l, pn_work *base) noexcept nogil:
    cdef const pn_rwkvx_model *w = <const pn_rwkvx_model *>l.w
    cdef rx_work *work = <rx_work *>base
    cdef const pn_config *c = l.c
    cdef const pn_rwkv7_block *block
    cdef const pn_rwkvx_attn *attn
    cdef int b, i
    for b in range(w.n_blocks):
        block = &w.blocks[b]
        for i in range(RX_MIXES):
            layout_reads(l, IN_MIX + i, &block.down[i])
        for i in range(RX_LORAS):
            if block.up[i].n > 0:
                layout_reads(l, IN_LORA + i, &block.up[i])
        layout_reads(l, IN_HEADS, &block.out)
        layout_reads(l, IN_MIX, &block.ffn.key)
        layout_reads(l, IN_FF, &block.ffn.value)
    for b in range(w.n_attn):
        attn = &w.attn[b]
        layout_reads(l, IN_MIX, &attn.qkv)
        layout_reads(l, IN_MIX, &attn.q)
        layout_reads(l, IN_HEADS, &attn.out)
        layout_reads(l, IN_MIX, &attn.ffn.key)
        layout_reads(l, IN_FF, &attn.ffn.value)
    layout_reads(l, IN_HEAD, &w.head)
    work.r = layout_floats(l, c.n_embd)
    work.k = layout_floats(l, c.n_embd)
    work.v = layout_floats(l, c.n_embd)
    for i in range(RX_LORAS):
        work.lora[i] = layout_floats(l, w.n_lora[i])
        work.up[i] = layout_floats(l, c.n_embd)
    work.y = layout_floats(l, c.n_embd)
    work.ff = layout_floats(l, c.n_ff)
    work.v_first = layout_floats(l, c.n_embd)
    layout_input(l, IN_HEADS, work.y, work.y)
    layout_input(l, IN_FF, work.ff, work.ff)
    l.n_counters = RX_COUNTERS           # of one block after the other
    l.mixer = attention_scratch(c.n_head, c.n_head, c.head_dim) if w.n_attn > 0 else 0


# ---- a prompt as a whole ---------------------------------------------------------------------------------------------

cdef size_t layout_prompt(rx_prompt *p, float **x, float **v_first, uint8_t *base, const rx_state *st,
                          const pn_config *c, int n, bint selects) noexcept nogil:
    cdef carver m
    cdef pn_llama_kv_cache *kv = &p.kv
    m.base = base
    m.used = 0
    x[0] = carve_floats(&m, n, c.n_embd)
    v_first[0] = carve_floats(&m, n, c.n_embd)
    if not selects:
        return m.used
    p.k = carve_floats(&m, n, c.n_embd)
    p.v = carve_floats(&m, n, c.n_embd)
    p.order = <rx_candidate *>carve(&m, n * sizeof(rx_candidate))
    p.slot = <int *>carve(&m, n * sizeof(int))
    kv[0] = st.base.kv
    kv.n_layer = 1
    kv.n_ctx = (n + 7) // 8 * 8
    kv.k_bytes = aligned(kv.ops.k_bytes(kv.n_ctx, kv.head_dim))
    kv.v_bytes = aligned(kv.ops.v_bytes(kv.n_ctx, kv.head_dim))
    kv.nbytes = kv.n_kv_head * (kv.k_bytes + kv.v_bytes)
    kv.data = <uint8_t *>carve(&m, kv.nbytes)
    return m.used


cdef size_t rx_prompt_need(const pn_model *model, pn_kv_type type, int n, bint selects) noexcept nogil:
    cdef size_t floats = aligned(<size_t>n * model.config.n_embd * sizeof(float))
    if not selects:
        return 2 * floats + 64
    return (4 * floats + aligned(n * sizeof(rx_candidate)) + aligned(n * sizeof(int))
            + aligned(kvcache_bytes(&model.config, 1, n, type)) + 64)


cdef void *rx_prompt_new(rx_prompt *p, float **x, float **v_first, const rx_state *st, const pn_config *c, int n,
                         bint selects) noexcept nogil:
    cdef size_t need = layout_prompt(p, x, v_first, NULL, st, c, n, selects) + 64
    cdef void *memory = calloc(1, need)
    if memory == NULL:
        pn_set_no_memory(b"no memory for the %zu bytes of a prompt of %d tokens", need, n)
        return NULL
    layout_prompt(p, x, v_first, <uint8_t *>aligned(<size_t>memory), st, c, n, selects)
    return memory
