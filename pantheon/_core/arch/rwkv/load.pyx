"""Weights of RWKV-X and RWKV-7 from safetensors (see load.pxd for the contract).

There is no config: names say how many blocks there are, shapes say all widths. RWKV-X files put "rwkv." before the
names of the RWKV-7 part and "moba." before those of the attention blocks; plain RWKV-7 files have no prefix.

What the attention blocks remember comes from three environment variables, read here:

RWKVX_MODE          "memory" (default): a prompt leaves its worst restored tokens; "full": every token is remembered
RWKVX_KEEP_TOKENS   how many tokens a prompt leaves [128]
RWKVX_KEEP_RATIO    or which part of them, in (0, 1]; not together with RWKVX_KEEP_TOKENS
"""
import os
import re

from libc.stdlib cimport free
from libc.string cimport memset, strdup

from pantheon._core.arch.run cimport weights_free, weights_new
from pantheon._core.arch.rwkv.structs cimport (
    RX_A,
    RX_G,
    RX_K,
    RX_LORA_A,
    RX_LORA_G,
    RX_LORA_V,
    RX_LORA_W,
    RX_MIXES,
    RX_R,
    RX_V,
    RX_W,
    pn_rwkv7_block,
    pn_rwkv_ffn,
    pn_rwkvx_attn,
    pn_rwkvx_model,
)
from pantheon._core.arch.rwkv.tensors cimport rwkv_lora, rwkv_matrix, rwkv_shape, rwkv_vector
from pantheon._core.base.report cimport pn_log
from pantheon._core.files.name_index cimport name_shown
from pantheon._core.kernels.table cimport PN_RWKV_HEAD
from pantheon._core.layers.linear cimport group_add, pn_group
from pantheon._core.layers.matrix cimport owned_calloc, owned_free, pn_matrix
from pantheon._core.load.config cimport config_validate
from pantheon._core.load.limits cimport PN_MAX_LAYERS
from pantheon._core.load.source cimport Source, source_check_extra, source_names, source_tensor
from pantheon._core.types cimport PN_LOG_WARNING, PN_ROPE_NONE, PN_ROPE_SCALING_NONE, pn_config, pn_model

from pantheon.regular_file import open_regular

cdef enum:
    N_CTX = 1 << 20                      # positions that a state may have: nothing in a file bounds them
    WORLD_ROWS = 65536                   # rows of the released models' heads ...
    WORLD_TOKENS = 65530                 # ... of which the World vocabulary has this many, id 0 included
    KEEP_TOKENS = 128                    # tokens that a prompt leaves in memory, unless the environment says otherwise

# A block's names: of RWKV-7, and the attention between.
BLOCK = re.compile(r"(?:(?:rwkv\.)?blocks|moba)\.([0-9]+)\.")
MIX_NAMES = {RX_R: "x_r", RX_W: "x_w", RX_K: "x_k", RX_V: "x_v", RX_A: "x_a", RX_G: "x_g"}
LORA_NAMES = {RX_LORA_W: "w", RX_LORA_A: "a", RX_LORA_G: "g", RX_LORA_V: "v"}


cdef int count_blocks(Source f, str kind) except -1:
    """How many blocks have names that start with kind and a number; the numbers must be 0, 1, 2, ..."""
    pattern = re.compile(re.escape(kind) + r"\.([0-9]+)\.")
    numbers = set()
    for name in source_names(f):
        match = pattern.match(name)
        if match:
            if len(match[1]) > 4:
                raise ValueError(f"{f.path}: tensor {name_shown(name)} has an impossible block number")
            numbers.add(int(match[1]))
    if len(numbers) > PN_MAX_LAYERS:
        raise ValueError(f"{f.path}: {len(numbers)} blocks, more than {<int>PN_MAX_LAYERS}")
    for i in range(len(numbers)):
        if i not in numbers:
            raise ValueError(f"{f.path}: tensors of block {max(numbers)} are there, but none {kind}.{i}.")
    return len(numbers)


cdef int fill_config(pn_config *c, Source f, int n_layer) except -1:
    rows, cols = rwkv_shape(f, "emb.weight", "any size")
    if cols % PN_RWKV_HEAD != 0:
        raise ValueError(f"{f.path}: tensor {f.prefix}emb.weight has {cols} columns, not heads of {PN_RWKV_HEAD}")
    n_ff = rwkv_shape(f, "blocks.0.ffn.key.weight", f"any rows of {cols}")[0]
    if max(rows, cols, n_ff) > 1 << 24:
        raise ValueError(f"{f.path}: n_vocab {rows}, n_embd {cols} or n_ff {n_ff} is more than {1 << 24}")
    arch = c.arch
    memset(c, 0, sizeof(pn_config))
    c.arch = arch
    c.n_vocab = rows
    c.n_tokens = min(rows, WORLD_TOKENS) if rows == WORLD_ROWS else rows
    c.n_ctx = N_CTX
    c.n_embd = cols
    c.n_layer = n_layer
    c.n_head = c.n_kv_head = c.n_embd // PN_RWKV_HEAD
    c.head_dim = PN_RWKV_HEAD
    c.n_ff = n_ff
    c.norm_eps = 1e-5
    c.attn_scale = 0.125
    c.rope_kind = PN_ROPE_NONE
    c.rope_scaling = PN_ROPE_SCALING_NONE
    c.rope_base = c.rope_factor = c.rope_attn_factor = c.rope_ext_factor = c.rope_beta_fast = c.rope_beta_slow = 1
    c.rope_low_freq = c.rope_high_freq = c.expert_scale = 1
    c.rope_orig_ctx = N_CTX
    config_validate(c, f.path)
    return 0


# ---- blocks ----------------------------------------------------------------------------------------------------------

cdef int add_matrix(pn_group *g, Source f, str name, int rows, int cols) except -1:
    cdef pn_matrix m = rwkv_matrix(f, name, rows, cols, True)
    group_add(g, &m)
    return 0


cdef int load_ffn(pn_rwkv_ffn *ffn, Source f, str b, const pn_config *c) except -1:
    ffn.ln_w = rwkv_vector(f, b + "ln2.weight", c.n_embd)
    ffn.ln_b = rwkv_vector(f, b + "ln2.bias", c.n_embd)
    ffn.x_k = rwkv_vector(f, b + "ffn.x_k", c.n_embd)
    add_matrix(&ffn.key, f, b + "ffn.key.weight", c.n_ff, c.n_embd)
    add_matrix(&ffn.value, f, b + "ffn.value.weight", c.n_embd, c.n_ff)
    return 0


cdef int load_lora(pn_rwkvx_model *w, pn_group *down, pn_group *up, Source f, str att, int which,
                   int n_embd) except -1:
    """The pair of matrices of one low rank, which is the same in all blocks."""
    cdef pn_matrix m
    name = att + LORA_NAMES[which]
    m = rwkv_lora(f, name + "1", n_embd, w.n_lora[which], True)
    w.n_lora[which] = m.rows
    group_add(down, &m)
    m = rwkv_lora(f, name + "2", n_embd, w.n_lora[which], False)
    group_add(up, &m)
    return 0


cdef int load_block(pn_rwkvx_model *w, int i, Source f, const pn_config *c) except -1:
    cdef pn_rwkv7_block *block = &w.blocks[i]
    cdef int m, n = c.n_embd
    b = f"blocks.{i}."
    att = b + "att."
    block.ln_w = rwkv_vector(f, b + "ln1.weight", n)
    block.ln_b = rwkv_vector(f, b + "ln1.bias", n)
    for m in range(RX_MIXES):
        block.mix[m] = rwkv_vector(f, att + MIX_NAMES[m], n)
    block.w0 = rwkv_vector(f, att + "w0", n)
    block.a0 = rwkv_vector(f, att + "a0", n)
    block.k_k = rwkv_vector(f, att + "k_k", n)
    block.k_a = rwkv_vector(f, att + "k_a", n)
    block.r_k = rwkv_vector(f, att + "r_k", n)
    block.lnx_w = rwkv_vector(f, att + "ln_x.weight", n)
    block.lnx_b = rwkv_vector(f, att + "ln_x.bias", n)
    add_matrix(&block.down[RX_R], f, att + "receptance.weight", n, n)
    add_matrix(&block.down[RX_K], f, att + "key.weight", n, n)
    add_matrix(&block.down[RX_V], f, att + "value.weight", n, n)
    add_matrix(&block.out, f, att + "output.weight", n, n)
    load_lora(w, &block.down[RX_W], &block.up[RX_LORA_W], f, att, RX_LORA_W, n)
    load_lora(w, &block.down[RX_A], &block.up[RX_LORA_A], f, att, RX_LORA_A, n)
    load_lora(w, &block.down[RX_G], &block.up[RX_LORA_G], f, att, RX_LORA_G, n)
    if i > 0:
        block.v0 = rwkv_vector(f, att + "v0", n)
        load_lora(w, &block.down[RX_V], &block.up[RX_LORA_V], f, att, RX_LORA_V, n)
    return load_ffn(&block.ffn, f, b, c)


cdef int load_attention(pn_rwkvx_attn *block, Source f, int i, const pn_config *c) except -1:
    cdef pn_matrix m
    cdef int n = c.n_embd
    b = f"{i}."
    block.ln_w = rwkv_vector(f, b + "ln1.weight", n)
    block.ln_b = rwkv_vector(f, b + "ln1.bias", n)
    m = rwkv_matrix(f, b + "att.receptance.weight", n, n, True)
    group_add(&block.qkv, &m)
    group_add(&block.q, &m)
    add_matrix(&block.qkv, f, b + "att.key.weight", n, n)
    add_matrix(&block.qkv, f, b + "att.value.weight", n, n)
    add_matrix(&block.out, f, b + "att.output.weight", n, n)
    return load_ffn(&block.ffn, f, b, c)


cdef int load_weights(pn_rwkvx_model *w, pn_config *c, Source f) except -1:
    cdef int i
    cdef int n_attn = count_blocks(f, "moba"), n_layer
    names = source_names(f)
    f.prefix = "rwkv." if "rwkv.emb.weight" in names else ""
    n_layer = count_blocks(f, f.prefix + "blocks")
    if f.prefix + "emb.weight" not in names:
        raise ValueError(f"{f.path}: holds no RWKV model: there is neither rwkv.emb.weight nor emb.weight. "
                         "Other safetensors models need their config.json as config_path")
    if n_layer == 0:
        raise ValueError(f"{f.path}: there are no tensors {f.prefix}blocks.0....")
    if n_layer < n_attn:
        raise ValueError(f"{f.path}: {n_attn} attention blocks for {n_layer} RWKV blocks")
    fill_config(c, f, n_layer)
    w.n_attn = n_attn
    w.interval = n_layer // max(n_attn, 1)
    w.n_blocks = w.interval * max(n_attn, 1)
    if w.n_blocks < n_layer:
        pn_log(PN_LOG_WARNING, b"the last %d RWKV blocks are never run: they are no multiple of the %d attention "
               b"blocks", n_layer - w.n_blocks, n_attn)
    w.embd = rwkv_matrix(f, "emb.weight", c.n_vocab, c.n_embd, False)
    w.ln0_w = rwkv_vector(f, "blocks.0.ln0.weight", c.n_embd)
    w.ln0_b = rwkv_vector(f, "blocks.0.ln0.bias", c.n_embd)
    w.ln_out_w = rwkv_vector(f, "ln_out.weight", c.n_embd)
    w.ln_out_b = rwkv_vector(f, "ln_out.bias", c.n_embd)
    add_matrix(&w.head, f, "head.weight", c.n_vocab, c.n_embd)
    w.blocks = <pn_rwkv7_block *>owned_calloc(&w.owned, w.n_blocks * sizeof(pn_rwkv7_block))
    for i in range(w.n_blocks):
        load_block(w, i, f, c)
    w.attn = <pn_rwkvx_attn *>owned_calloc(&w.owned, w.n_attn * sizeof(pn_rwkvx_attn))
    for i in range(3):                   # the value residual of block 0, which has no block before it, is left alone
        source_tensor(f, f"{f.prefix}blocks.0.att.v{i}")
    f.prefix = "moba."
    for i in range(w.n_attn):
        load_attention(&w.attn[i], f, i, c)
    return 0


# ---- settings --------------------------------------------------------------------------------------------------------

cdef int memory_settings(pn_rwkvx_model *w) except -1:
    mode = os.environ.get("RWKVX_MODE", "memory")
    tokens = os.environ.get("RWKVX_KEEP_TOKENS")
    ratio = os.environ.get("RWKVX_KEEP_RATIO")
    if mode not in ("memory", "full"):
        raise ValueError(f"RWKVX_MODE is {mode!r}, not 'memory' or 'full'")
    w.full = mode == "full"
    w.keep_tokens = KEEP_TOKENS
    if tokens is not None and ratio is not None:
        raise ValueError("RWKVX_KEEP_TOKENS and RWKVX_KEEP_RATIO are both set: one of them decides")
    if tokens is not None:
        if not (tokens.isascii() and tokens.isdigit() and len(tokens) < 10 and int(tokens) > 0):
            raise ValueError(f"RWKVX_KEEP_TOKENS is {tokens!r}, not a whole number above 0")
        w.keep_tokens = int(tokens)
    if ratio is not None:
        try:
            value = float(ratio)
        except ValueError:
            value = -1.0
        if not 0 < value <= 1:
            raise ValueError(f"RWKVX_KEEP_RATIO is {ratio!r}, not a number above 0, up to 1")
        w.keep_tokens = 0
        w.keep_ratio = value
    return 0


cdef int keep_vocab_path(pn_rwkvx_model *w, const char *vocab_path) except -1:
    os.close(open_regular(<bytes>vocab_path))    # cannot be read: an error now, not when text is first needed
    w.vocab_path = strdup(vocab_path)
    if w.vocab_path == NULL:
        raise MemoryError("no memory for the path of the vocabulary")
    return 0


cdef int rwkvx_load(pn_model *model, const pn_arch_ops *self, Source f) except -1:
    cdef pn_rwkvx_model *w = <pn_rwkvx_model *>weights_new(self, sizeof(pn_rwkvx_model))
    model.weights = w
    f.owned = &w.owned
    f.block = BLOCK
    f.layers = "blocks"
    try:
        memory_settings(w)
        if f.opts != NULL and f.opts.vocab_path != NULL:
            keep_vocab_path(w, f.opts.vocab_path)
        load_weights(w, &model.config, f)
        source_check_extra(f, w.n_blocks, model.config.n_layer)      # blocks that are never run may be there
    except BaseException:
        rwkvx_unload(model)
        raise
    return 0


cdef void rwkvx_unload(pn_model *model) noexcept nogil:
    cdef pn_rwkvx_model *w = <pn_rwkvx_model *>model.weights
    if w != NULL:
        owned_free(&w.owned)
        free(w.vocab_path)
        weights_free(w)
    model.weights = NULL
