"""pn_config: reading it from GGUF metadata and refusing what no model can be.

Keys and defaults are those that llama.cpp gives them. Nothing downstream re-checks these numbers, so
every size that later becomes an allocation, a divisor or an index is bounded here.
"""
import math

from libc.math cimport sqrt
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

from pantheon._core.files.gguf cimport (
    gguf_find,
    gguf_get_bool,
    gguf_get_float,
    gguf_get_int,
    gguf_get_str,
    gguf_tensor,
    gguf_value,
)
from pantheon._core.files.gguf_file cimport gguf_file
from pantheon._core.files.gguf_vocab cimport most_tokens
from pantheon._core.layers.rope cimport rope_attention_factor
from pantheon._core.load.limits cimport PN_MAX_LAYERS
from pantheon._core.load.source cimport Source
from pantheon._core.types cimport (
    PN_ROPE_NEOX,
    PN_ROPE_NONE,
    PN_ROPE_NORM,
    PN_ROPE_SCALING_LINEAR,
    PN_ROPE_SCALING_LLAMA3,
    PN_ROPE_SCALING_LONGROPE,
    PN_ROPE_SCALING_NONE,
    PN_ROPE_SCALING_YARN,
    pn_arch,
    pn_config,
    tm_tensor,
)

ROPE_SCALINGS = {
    "none": PN_ROPE_SCALING_NONE,
    "linear": PN_ROPE_SCALING_LINEAR,
    "yarn": PN_ROPE_SCALING_YARN,
    "longrope": PN_ROPE_SCALING_LONGROPE,
    "su": PN_ROPE_SCALING_LONGROPE,
    "llama3": PN_ROPE_SCALING_LLAMA3,
}
ROPE_KINDS = {PN_ROPE_NONE: "none", PN_ROPE_NORM: "norm", PN_ROPE_NEOX: "neox"}


cdef class GgufKeys:
    """Typed access to the keys of one architecture prefix."""

    cdef object value(self, str key):
        return gguf_value(self.f, gguf_find(self.f, f"{self.arch}.{key}".encode()))

    cdef int64_t integer(self, str key, object default=None, int64_t layer=0) except? -1:
        cdef int64_t value
        cdef bytes name = f"{self.arch}.{key}".encode()
        if gguf_get_int(self.f, name, layer, &value):
            return value
        if default is None:
            raise ValueError(f"{self.path}: key {self.arch}.{key} is missing")
        return default

    cdef int64_t bounded(self, str key, int64_t low, int64_t high, object default=None) except? -1:
        cdef int64_t value
        if not gguf_get_int(self.f, f"{self.arch}.{key}".encode(), 0, &value):
            return self.integer(key, default)
        if not low <= value <= high:
            raise ValueError(f"{self.path}: key {self.arch}.{key} is {value}, not in {low}..{high}")
        return value

    cdef double number(self, str key, object default=None) except? -1:
        cdef double value
        cdef bytes name = f"{self.arch}.{key}".encode()
        if gguf_get_float(self.f, name, 0, &value):
            return value
        if default is None:
            raise ValueError(f"{self.path}: key {self.arch}.{key} is missing")
        return default

    cdef int int32(self, str key, object default=None) except? -1:
        cdef int64_t value = self.integer(key, default)
        if not -2**31 <= value < 2**31:
            raise ValueError(f"{self.path}: key {self.arch}.{key} is {value}, more than 31 bits")
        return <int>value


cdef int check_per_layer(GgufKeys keys, str key, int64_t value, int n_layer) except -1:
    """Per-layer lists are accepted where all layers agree: no architecture here mixes widths."""
    cdef int i
    cdef const void *kv = gguf_find(keys.f, f"{keys.arch}.{key}".encode())
    if kv == NULL:
        return 0
    for i in range(n_layer):
        if keys.integer(key, None, i) != value:
            raise ValueError(f"{keys.path}: key {keys.arch}.{key} differs between layers, "
                             f"which {keys.arch} does not support")
    return 0


cdef int expert_config(pn_config *c, GgufKeys keys, const pn_gguf_rules *rules) except -1:
    """What belongs to experts; n_ff, n_experts and n_experts_used are there. The widths of old files, which
    have no key for them, follow from n_ff."""
    cdef double scale = keys.number("expert_weights_scale", 1.0)
    cdef bytes name = f"{keys.arch}.expert_weights_norm".encode()
    c.expert_scale = scale if scale != 0 else 1.0
    c.expert_renormalise = not rules.experts_raw
    gguf_get_bool(keys.f, name, &c.expert_renormalise)
    if c.n_experts == 0:
        return 0
    c.n_ff_expert = keys.int32("expert_feed_forward_length",
                               c.n_ff // max(c.n_experts_used, 1) if rules.experts_split_ff else c.n_ff)
    c.n_ff_shared = keys.int32("expert_shared_feed_forward_length", c.n_ff if rules.expert_shared else 0)
    return 0


cdef GgufKeys gguf_keys(Source f):
    cdef GgufKeys keys = GgufKeys.__new__(GgufKeys)
    keys.f = f.gguf
    keys.arch = gguf_get_str(f.gguf, b"general.architecture")
    keys.path = f.path
    return keys


cdef int config_from_gguf(pn_config *c, GgufKeys keys, const pn_gguf_rules *rules) except -1:
    cdef const gguf_file *f = keys.f
    cdef str arch = keys.arch, path = keys.path
    cdef tm_tensor *embd = gguf_tensor(f, b"token_embd.weight")
    cdef pn_arch saved_arch = c.arch
    cdef double factor, scale
    cdef const void *kv
    cdef uint64_t count
    if embd == NULL:
        raise ValueError(f"{path}: tensor token_embd.weight is missing")
    memset(c, 0, sizeof(pn_config))
    c.arch = saved_arch
    c.rope_kind = rules.rope_kind
    c.n_vocab = <int>min(embd.ne[1], 2**31 - 1)
    c.n_tokens = c.n_vocab
    kv = gguf_find(f, b"tokenizer.ggml.tokens")
    if kv != NULL:
        count = f.kv[(<char *>kv - <char *>f.kv) // sizeof(f.kv[0])].count
        if count > <uint64_t>most_tokens(c.n_vocab):
            raise ValueError(f"{path}: key tokenizer.ggml.tokens has {count} elements for {c.n_vocab} logits")
        c.n_tokens = <int>min(count, <unsigned>c.n_vocab)
    c.n_layer = keys.int32("block_count")
    if not 1 <= c.n_layer <= PN_MAX_LAYERS:
        raise ValueError(f"{path}: key {arch}.block_count is {c.n_layer}, not in 1..{<int>PN_MAX_LAYERS}")
    c.n_ctx = keys.int32("context_length")
    c.n_embd = keys.int32("embedding_length")
    c.n_head = keys.int32("attention.head_count")
    c.n_kv_head = keys.int32("attention.head_count_kv", c.n_head)
    c.n_experts = keys.int32("expert_count", 0)
    c.n_experts_used = keys.int32("expert_used_count", 0)
    c.n_ff = keys.int32("feed_forward_length", 0 if c.n_experts else None)
    expert_config(c, keys, rules)
    check_per_layer(keys, "attention.head_count", c.n_head, c.n_layer)
    check_per_layer(keys, "attention.head_count_kv", c.n_kv_head, c.n_layer)
    check_per_layer(keys, "feed_forward_length", c.n_ff, c.n_layer)
    if c.n_head < 1:
        raise ValueError(f"{path}: key {arch}.attention.head_count is {c.n_head}, not in 1..65536")
    c.head_dim = keys.int32("attention.key_length", c.n_embd // c.n_head)
    if keys.int32("attention.value_length", c.head_dim) != c.head_dim:
        raise ValueError(f"{path}: key {arch}.attention.value_length differs from the key length {c.head_dim}")
    c.norm_eps = keys.number("attention.layer_norm_rms_epsilon", keys.number("attention.layer_norm_epsilon", -1.0))
    if c.norm_eps == -1.0:
        name = "layer_norm_epsilon" if rules.layer_norm else "layer_norm_rms_epsilon"
        raise ValueError(f"{path}: key {arch}.attention.{name} is missing")
    scale = keys.number("attention.scale", 0.0)
    c.attn_scale = scale if scale != 0 else 1 / sqrt(max(c.head_dim, 1))
    c.rope_dims = keys.int32("rope.dimension_count", c.head_dim)
    c.rope_base = keys.number("rope.freq_base", 10000.0)
    name = gguf_get_str(f, f"{arch}.rope.scaling.type".encode())
    if name is not None and name not in ROPE_SCALINGS:
        raise ValueError(f"{path}: key {arch}.rope.scaling.type is {name[:64]!r}; known: {', '.join(ROPE_SCALINGS)}")
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 0.0))
    c.rope_factor = factor if factor != 0 else 1.0
    c.rope_scaling = ROPE_SCALINGS[name] if name is not None else (
        PN_ROPE_SCALING_LONGROPE if gguf_tensor(f, b"rope_factors_long.weight") != NULL else
        PN_ROPE_SCALING_LINEAR if c.rope_factor != 1.0 else PN_ROPE_SCALING_NONE)
    c.rope_orig_ctx = keys.int32("rope.scaling.original_context_length", c.n_ctx)
    if c.rope_scaling == PN_ROPE_SCALING_LONGROPE and c.rope_orig_ctx > 0:
        c.rope_factor = <float>(<double>c.n_ctx / c.rope_orig_ctx)
    # what the scaling implies; YaRN's is multiplied by factors in the file, LongRoPE's is replaced by the one in the
    # file
    c.rope_attn_factor = rope_attention_factor(c.rope_scaling, c.rope_factor, c.rope_orig_ctx)
    if c.rope_scaling == PN_ROPE_SCALING_YARN:
        c.rope_attn_factor *= <float>(keys.number("rope.scaling.attn_factor", 1.0)
                                      * keys.number("rope.scaling.yarn_attn_factor", 1.0))
    else:
        c.rope_attn_factor = keys.number("rope.scaling.attn_factor", c.rope_attn_factor)
    c.rope_ext_factor = keys.number("rope.scaling.yarn_ext_factor", 1.0)
    c.rope_beta_fast = keys.number("rope.scaling.yarn_beta_fast", 32.0)
    c.rope_beta_slow = keys.number("rope.scaling.yarn_beta_slow", 1.0)
    c.rope_truncate = True
    c.rope_low_freq = 1.0
    c.rope_high_freq = 4.0
    c.sliding_window = keys.int32("attention.sliding_window", 0)
    if c.sliding_window >= c.n_ctx:
        c.sliding_window = 0             # a window that holds the whole context hides nothing
    return 0


# Accepted range of every integer field; bounds are generous for models and small enough that no product of two
# overflows.
RANGES = {
    "n_vocab": (1, 1 << 24), "n_ctx": (1, 1 << 30), "n_embd": (1, 1 << 20), "n_layer": (1, PN_MAX_LAYERS),
    "n_head": (1, 1 << 16), "n_kv_head": (1, 1 << 16), "head_dim": (1, 1 << 12), "n_ff": (0, 1 << 24),
    "rope_dims": (0, 1 << 12), "rope_orig_ctx": (1, 1 << 30), "sliding_window": (0, 1 << 30),
    "n_experts": (0, 1 << 14), "n_experts_used": (0, 1 << 14), "n_ff_expert": (0, 1 << 24),
    "n_ff_shared": (0, 1 << 24),
}
POSITIVE = ("norm_eps", "attn_scale", "rope_base", "rope_factor", "rope_attn_factor", "rope_beta_fast",
            "rope_beta_slow", "rope_low_freq", "rope_high_freq", "expert_scale")


cdef int config_validate(const pn_config *c, str path) except -1:
    fields = config_dict(c)

    def refuse(text):
        raise ValueError(f"{path}: {text}")

    for name, (low, high) in RANGES.items():
        if not low <= fields[name] <= high:
            refuse(f"{name} is {fields[name]}, not in {low}..{high}")
    for name in POSITIVE:
        if not (math.isfinite(fields[name]) and fields[name] > 0):
            refuse(f"{name} is {fields[name]}, not a finite number above 0")
    if not math.isfinite(fields["rope_ext_factor"]):
        refuse(f"rope_ext_factor is {fields['rope_ext_factor']}")
    if c.norm_eps >= 1:
        refuse(f"norm_eps is {fields['norm_eps']}, not below 1")
    if c.n_head % c.n_kv_head != 0:
        refuse(f"n_head {c.n_head} is no multiple of n_kv_head {c.n_kv_head}")
    if c.n_head * c.head_dim > 1 << 20:
        refuse(f"n_head {c.n_head} times head_dim {c.head_dim} is more than {1 << 20}")
    if c.rope_dims % 2 != 0 or c.rope_dims > c.head_dim:
        refuse(f"rope_dims is {c.rope_dims}, not an even number up to head_dim {c.head_dim}")
    if c.n_ff < 1 and c.n_experts == 0:
        refuse(f"n_ff is {c.n_ff}, not in 1..{1 << 24}")
    if c.n_experts > 0 and not (1 <= c.n_experts_used <= c.n_experts and c.n_ff_expert >= 1):
        refuse(f"n_experts_used is {c.n_experts_used} and n_ff_expert {c.n_ff_expert}, with n_experts {c.n_experts}")
    if c.n_experts == 0 and c.n_experts_used != 0:
        refuse(f"n_experts_used is {c.n_experts_used} without experts")
    return 0


cdef dict config_dict(const pn_config *c):
    return {
        "n_vocab": c.n_vocab, "n_tokens": c.n_tokens, "n_ctx": c.n_ctx, "n_embd": c.n_embd, "n_layer": c.n_layer,
        "n_head": c.n_head, "n_kv_head": c.n_kv_head, "head_dim": c.head_dim, "n_ff": c.n_ff, "norm_eps": c.norm_eps,
        "attn_scale": c.attn_scale, "rope_kind": ROPE_KINDS.get(c.rope_kind, str(<int>c.rope_kind)),
        "rope_dims": c.rope_dims, "rope_base": c.rope_base,
        "rope_scaling": next(k for k, v in ROPE_SCALINGS.items() if v == c.rope_scaling),
        "rope_factor": c.rope_factor, "rope_orig_ctx": c.rope_orig_ctx, "rope_attn_factor": c.rope_attn_factor,
        "rope_ext_factor": c.rope_ext_factor, "rope_beta_fast": c.rope_beta_fast, "rope_beta_slow": c.rope_beta_slow,
        "rope_truncate": bool(c.rope_truncate),
        "rope_low_freq": c.rope_low_freq, "rope_high_freq": c.rope_high_freq, "sliding_window": c.sliding_window,
        "n_experts": c.n_experts, "n_experts_used": c.n_experts_used,
        "n_ff_expert": c.n_ff_expert, "n_ff_shared": c.n_ff_shared, "expert_renormalise": bool(c.expert_renormalise),
        "expert_scale": c.expert_scale,
    }
