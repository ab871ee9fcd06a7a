"""pn_config from the config.json of a Hugging Face model (see config_hf.pxd for the contract).

Keys, their old spellings and defaults are those of the configuration classes of transformers 5, which
tests/load/test_config.py compares with. config_validate bounds the sizes afterwards.
"""
import math

from libc.math cimport log, sqrt
from libc.string cimport memset

from pantheon._core.layers.rope cimport rope_attention_factor
from pantheon._core.load.limits cimport PN_MAX_LAYERS
from pantheon._core.types cimport (
    PN_ROPE_NEOX,
    PN_ROPE_SCALING_LINEAR,
    PN_ROPE_SCALING_LLAMA3,
    PN_ROPE_SCALING_LONGROPE,
    PN_ROPE_SCALING_NONE,
    PN_ROPE_SCALING_YARN,
    pn_arch,
    pn_config,
)

# other words for an activation
SAME_ACTIVATION = {"swish": "silu", "gelu_pytorch_tanh": "gelu_new", "gelu_fast": "gelu_new"}


cdef class HfConfig:
    """Typed access to one JSON object; null counts as absent."""

    cdef object refuse(self, str key, str expected):
        raise ValueError(f"{self.path}: key {self.prefix}{key} is {self.values.get(key)!r:.80}, not {expected}")

    cdef object get(self, str key, object default=None):
        value = self.values.get(key)
        return self.defaults.get(key, default) if value is None else value

    cdef object needed(self, str key, object default):
        value = self.get(key, default)
        if value is None:
            raise ValueError(f"{self.path}: key {self.prefix}{key} is missing")
        return value

    cdef int integer(self, str key, object default=None) except? -1:
        value = self.needed(key, default)
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not -2**31 <= value < 2**31:
            self.refuse(key, "an integer of 32 bits")
        return value

    cdef int bounded(self, str key, int low, int high, object default=None) except? -1:
        cdef int value = self.integer(key, default)
        if not low <= value <= high:
            self.refuse(key, f"in {low}..{high}")
        return value

    cdef double number(self, str key, object default=None) except? -1:
        value = self.needed(key, default)
        if type(value) not in (int, float) or abs(value) > 1e300 or not math.isfinite(value):
            self.refuse(key, "a finite number")
        return value

    cdef bint flag(self, str key, bint default) except *:
        value = self.get(key, default)
        if type(value) is not bool:
            self.refuse(key, "true or false")
        return value

    cdef str text(self, str key, str default):
        value = self.get(key, default)
        if not isinstance(value, str):
            self.refuse(key, "a string")
        return value


cdef str model_class(dict config, str path, dict classes):
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all([isinstance(name, str) for name in names]):
        raise ValueError(f"{path}: key architectures must be a list with the name of a model class")
    if not names:
        kinds = {facts.model_type: name for name, facts in classes.items() if facts.model_type}
        kind = config.get("model_type")
        if not isinstance(kind, str) or kind not in kinds:
            raise ValueError(f"{path}: key architectures names no model class, and key model_type is "
                             f"{str(kind)[:80]!r}; known: {', '.join(kinds)}")
        return kinds[kind]
    for name in names:
        if name in classes:
            return name
    raise ValueError(f"{path}: model class {names[0][:80]!r} is unknown; known: {', '.join(classes)}")


cdef HfConfig part_of(HfConfig config, dict values, str prefix):
    """An object within a configuration."""
    cdef HfConfig part = HfConfig.__new__(HfConfig)
    part.values, part.defaults, part.path, part.prefix = values, {}, config.path, prefix
    part.name, part.facts = config.name, config.facts
    return part


def read_config(config, str path not None, dict classes not None):
    """The HfConfig of a parsed config.json; classes: {model class: ModelClass}. ValueError naming path and key."""
    cdef HfConfig c = HfConfig.__new__(HfConfig)
    if not isinstance(config, dict):
        raise ValueError(f"{path}: not a JSON object")
    c.name = model_class(config, path, classes)
    c.facts = classes[c.name]
    c.values = standard_config(text_part(config, path), path, c.facts)
    c.defaults = dict(c.facts.defaults)
    c.path, c.prefix = path, ""
    return c


cdef dict text_part(dict config, str path):
    """A multimodal model's own keys say nothing about its text part, but for how it is stored."""
    text = config.get("text_config")
    if text is None:
        return config
    if not isinstance(text, dict):
        raise ValueError(f"{path}: key text_config is no object")
    own = {key: config[key] for key in ("quantization_config",) if key in config}
    tied = [values["tie_word_embeddings"] for values in (config, text) if values.get("tie_word_embeddings") is not None]
    return own | text | {"tie_word_embeddings": next((value for value in tied if value is not False), False)}


cdef dict standard_config(dict config, str path, object facts):
    """A configuration in one spelling: with one of rope_parameters and rope_scaling, and one of the names that the
    number of experts has.

    As transformers reads it: a rope_scaling that is not empty takes the place of rope_parameters, whole.
    """
    config = dict(config)
    kept, other = ("rope_scaling", "rope_parameters") if config.get("rope_scaling") else (
        "rope_parameters", "rope_scaling")
    for key in (kept, other):
        if config.get(key) is not None and not isinstance(config[key], dict):
            raise ValueError(f"{path}: key {key} is {str(config[key])[:80]}, not an object")
    config.pop(other, None)
    rope = config.get(kept)
    if rope is not None:
        for key, value in rope.items():
            if isinstance(value, dict):
                raise ValueError(f"{path}: key {kept}.{str(key)[:80]} is an object: layers with rotations of their own "
                                 "are not supported")
        # at the top it goes before the one in the rotation, by the class's default too
        original = config.get("original_max_position_embeddings")
        original = facts.defaults.get("original_max_position_embeddings") if original is None else original
        if original is not None:
            config[kept] = rope | {"original_max_position_embeddings": original}
    if facts.experts is not None and facts.experts.alias is not None:
        value = config.pop(facts.experts.alias, None)
        if config.get(facts.experts.count) is None and value is not None:
            config[facts.experts.count] = value
    return config


cdef frozenset hf_optional(HfConfig config):
    for key in config.facts.refused:
        if config.flag(key, False):
            raise ValueError(f"{config.path}: key {key} true is not supported for {config.name}")
    switched = [parts for key, (default, parts) in config.facts.switches.items() if config.flag(key, default)]
    return config.facts.parts.union(*switched)


cdef str hf_architecture(HfConfig config):
    given = config.text("hidden_act", "silu")
    act = SAME_ACTIVATION.get(given, given)
    if act in config.facts.variants:
        return config.facts.variants[act]
    if act != config.facts.activation:
        raise ValueError(f"{config.path}: key hidden_act is {given[:40]!r}, {config.facts.arch} has "
                         f"{config.facts.activation!r}")
    return config.facts.arch


cdef int read_longrope(pn_config *c, HfConfig rope) except -1:
    c.rope_scaling = PN_ROPE_SCALING_LONGROPE
    c.rope_factor = rope.number("factor", <double>c.n_ctx / max(c.rope_orig_ctx, 1))
    c.rope_attn_factor = rope.number("attention_factor",
                                     rope_attention_factor(c.rope_scaling, c.rope_factor, c.rope_orig_ctx))
    return 0


cdef HfConfig hf_rope(HfConfig config):
    cdef str key = "rope_scaling" if config.get("rope_scaling") is not None else "rope_parameters"
    return part_of(config, config.get("rope_scaling") or config.get("rope_parameters") or {}, key + ".")


cdef list hf_rope_factors(const pn_config *c, HfConfig config, str key):
    value = hf_rope(config).get(key)
    if (c.rope_dims < 2 or not isinstance(value, list) or len(value) != c.rope_dims // 2
            or not all([type(v) in (int, float) and 1e-30 < v < 1e30 for v in value])):
        raise ValueError(f"{config.path}: key {key} of the rotation is no list of {c.rope_dims // 2} numbers above 0")
    return value


cdef int read_experts(pn_config *c, HfConfig config) except -1:
    """What belongs to experts. Which layers have them, the tensors tell."""
    experts = config.facts.experts
    c.expert_scale = 1.0
    c.expert_renormalise = True
    if experts is None:
        return 0
    c.n_experts = config.integer(experts.count)
    c.n_experts_used = config.integer("num_experts_per_tok")
    c.n_ff_expert = config.integer(experts.width)
    if experts.normalise is not None:
        c.expert_renormalise = config.flag(experts.normalise, False)
    if experts.shared is not None:
        c.n_ff_shared = config.integer(experts.shared)
    return 0


cdef int read_rope(pn_config *c, HfConfig config) except -1:
    """Rope base and scaling, from rope_parameters (new) or rope_scaling (old), and rope_theta."""
    cdef HfConfig rope = hf_rope(config)
    cdef double factor, mscale, mscale_all
    c.rope_base = rope.number("rope_theta", config.number("rope_theta", 10000.0))
    part = rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    if not 0 < part <= 1:
        raise ValueError(f"{config.path}: key partial_rotary_factor is {part}, not above 0 and at most 1")
    if part != 1 and not config.facts.part_rotated:
        raise ValueError(f"{config.path}: key partial_rotary_factor must be 1 for this model class")
    c.rope_dims = <int>(c.head_dim * part)
    c.rope_factor = 1.0
    c.rope_attn_factor = 1.0
    c.rope_ext_factor = 1.0
    c.rope_beta_fast = 32.0
    c.rope_beta_slow = 1.0
    c.rope_truncate = True
    c.rope_low_freq = 1.0
    c.rope_high_freq = 4.0
    c.rope_orig_ctx = rope.integer("original_max_position_embeddings",
                                   config.integer("original_max_position_embeddings", c.n_ctx))
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind in config.facts.longrope:
        return read_longrope(c, rope)
    if kind in ("default", "dynamic", "mrope"):
        # "dynamic" changes nothing before the model's own context is exceeded, which is where it ends here; one
        # position per token makes the sections of "mrope" agree
        c.rope_scaling = PN_ROPE_SCALING_NONE
        return 0
    if kind not in ("linear", "yarn", "llama3"):
        raise ValueError(f"{config.path}: key {rope.prefix}rope_type is {kind[:40]!r}; this model class may have "
                         "default, linear, dynamic, yarn or llama3")
    factor = rope.number("factor", (<double>c.n_ctx / c.rope_orig_ctx) if kind == "yarn" and c.rope_orig_ctx > 0 else
                         None)
    c.rope_factor = factor
    if kind == "linear":
        c.rope_scaling = PN_ROPE_SCALING_LINEAR
    elif kind == "llama3":
        c.rope_scaling = PN_ROPE_SCALING_LLAMA3
        c.rope_low_freq = rope.number("low_freq_factor")
        c.rope_high_freq = rope.number("high_freq_factor")
        if not c.rope_low_freq < c.rope_high_freq:
            rope.refuse("high_freq_factor", f"above low_freq_factor {c.rope_low_freq}")
    else:
        c.rope_scaling = PN_ROPE_SCALING_YARN
        c.rope_truncate = rope.flag("truncate", True)
        c.rope_beta_fast = rope.number("beta_fast", 0) or 32.0
        c.rope_beta_slow = rope.number("beta_slow", 0) or 1.0
        mscale = rope.number("mscale", 0)
        mscale_all = rope.number("mscale_all_dim", 0)
        c.rope_attn_factor = rope_attention_factor(c.rope_scaling, factor, c.rope_orig_ctx)
        if rope.get("attention_factor") is not None:
            c.rope_attn_factor = rope.number("attention_factor")
        elif mscale != 0 and mscale_all != 0 and factor > 1:
            c.rope_attn_factor = (0.1 * mscale * log(factor) + 1.0) / (0.1 * mscale_all * log(factor) + 1.0)
    return 0


cdef int config_from_hf(pn_config *c, HfConfig config) except -1:
    cdef pn_arch arch = c.arch
    memset(c, 0, sizeof(pn_config))
    c.arch = arch
    c.rope_kind = PN_ROPE_NEOX
    c.n_vocab = config.integer("vocab_size")
    c.n_tokens = c.n_vocab               # the tokenizer, which may have fewer, is not read at load
    c.n_ctx = config.integer("max_position_embeddings")
    c.n_embd = config.integer("hidden_size")
    c.n_layer = config.bounded("num_hidden_layers", 1, PN_MAX_LAYERS)
    c.n_head = config.bounded("num_attention_heads", 1, 65536)
    # null has a meaning of its own for these two: as many as heads, and what the width leaves
    c.n_kv_head = config.integer("num_key_value_heads", c.n_head)
    if config.values.get("num_key_value_heads", 0) is None:
        c.n_kv_head = c.n_head
    c.head_dim = config.integer("head_dim", c.n_embd // c.n_head)
    if config.values.get("head_dim", 0) is None:
        c.head_dim = c.n_embd // c.n_head
    c.n_ff = config.integer("intermediate_size")
    c.norm_eps = config.number("layer_norm_eps") if config.facts.layer_norm else config.number("rms_norm_eps", 1e-6)
    c.attn_scale = 1 / sqrt(max(c.head_dim, 1))
    if config.flag("qk_layernorm", False):
        raise ValueError(f"{config.path}: key qk_layernorm true is not supported")
    read_experts(c, config)
    read_rope(c, config)
    c.sliding_window = max(hf_windows(config, c.n_layer, c.n_ctx))
    return 0


cdef list hf_windows(HfConfig config, int n_layer, int n_ctx):
    cdef int window = 0, first = 0
    cdef str rule = config.facts.window
    cdef bint by_layer = rule in ("layers", "alternate")
    kinds = config.get("layer_types")
    # null switches the window off; only an absent key has the class's default
    if config.values.get("sliding_window", 0) is not None:
        window = config.integer("sliding_window", 0)
    if by_layer or rule == "switched":
        if not config.flag("use_sliding_window", False):
            window = 0
        first = max(0, config.integer("max_window_layers", 0)) if by_layer else 0
    elif rule == "none":
        window = 0
    if not 0 <= window < n_ctx:
        if window < 0:
            config.refuse("sliding_window", "a number of positions")
        window = 0                       # a window that holds the whole context hides nothing
    if window == 0 or not by_layer:
        return [window] * n_layer
    if kinds is None and rule == "alternate":
        return [window if i % 2 == 0 and i < first else 0 for i in range(n_layer)]
    if kinds is None:
        return [window if i >= first else 0 for i in range(n_layer)]
    if not isinstance(kinds, list) or len(kinds) != n_layer:
        config.refuse("layer_types", f"a list of {n_layer} kinds")
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            config.refuse("layer_types", "a list of full_attention and sliding_attention")
    return [window if kind == "sliding_attention" else 0 for kind in kinds]


cdef bint hf_tied(HfConfig config) except *:
    return config.flag("tie_word_embeddings", False)


cdef pn_ternary_rule hf_ternary_rule(HfConfig config) except *:
    cdef HfConfig keys
    values = config.values.get("quantization_config")
    if values is None:
        return PN_TERNARY_ONLINE if config.facts.ternary == "online" else PN_TERNARY_NONE
    if not isinstance(values, dict):
        raise ValueError(f"{config.path}: key quantization_config is no object")
    if config.facts.ternary is None:
        raise ValueError(f"{config.path}: key quantization_config is not supported for {config.name}")
    keys = part_of(config, values, "quantization_config.")
    method = keys.text("quant_method", "")
    if method != "bitnet":
        raise ValueError(f"{config.path}: key quantization_config.quant_method is {method[:40]!r}; only 'bitnet' is "
                         "supported")
    if keys.flag("use_rms_norm", False):
        raise ValueError(f"{config.path}: key quantization_config.use_rms_norm true is not supported")
    modules = keys.get("modules_to_not_convert", [])
    if not isinstance(modules, list):
        keys.refuse("modules_to_not_convert", "a list")
    for name in modules:
        if name not in ("lm_head", "model.lm_head", "embed_tokens", "model.embed_tokens"):
            keys.refuse("modules_to_not_convert", "just the LM head and the embedding")
    kind = keys.text("linear_class", "bitlinear")
    mode = keys.text("quantization_mode", "offline")
    if kind not in ("bitlinear", "autobitlinear"):
        keys.refuse("linear_class", "bitlinear or autobitlinear")
    if mode not in ("offline", "online"):
        keys.refuse("quantization_mode", "offline or online")
    if kind == "bitlinear":
        return PN_TERNARY_DIVIDE
    return PN_TERNARY_ONLINE if mode == "online" else PN_TERNARY_MULTIPLY


# ---- for `pantheon convert` ------------------------------------------------------------------------------------------

MAX_LAYERS = PN_MAX_LAYERS
RULES = {PN_TERNARY_NONE: "none", PN_TERNARY_DIVIDE: "divide", PN_TERNARY_MULTIPLY: "multiply",
         PN_TERNARY_ONLINE: "online"}


def architecture(HfConfig config not None):
    """hf_architecture()."""
    return hf_architecture(config)


def optional_parts(HfConfig config not None):
    """hf_optional()."""
    return hf_optional(config)


def windows(HfConfig config not None, int n_layer, int n_ctx):
    """hf_windows()."""
    return hf_windows(config, n_layer, n_ctx)


def ternary_rule(HfConfig config not None):
    """How the matrices of the layers are stored: "none" (as floats), or the name of a ternary rule."""
    return RULES[hf_ternary_rule(config)]
