"""pn_config from the config.json of a Hugging Face model (see config_hf.pxd for the contract).

Keys, defaults and their old spellings: sections 3, 4, 6 and 7 of the transformer notes and section 2 of the ternary
notes. Defaults are those of the model classes. config_validate bounds the sizes afterwards.
"""
import math

from libc.math cimport log, sqrt
from libc.string cimport memset

from pantheon._core.layers.rope cimport rope_attention_factor
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

QWEN35 = {"max_position_embeddings": 32768, "head_dim": 256, "partial_rotary_factor": 0.25,
          "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
          "linear_num_key_heads": 16, "linear_num_value_heads": 32, "num_key_value_heads": 4}
QWEN35_MOE = QWEN35 | {"num_key_value_heads": 2, "num_experts": 256, "num_experts_per_tok": 8,
                       "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512}
# class -> registry name, and its own defaults of keys that a file may leave out
CLASSES = {
    "LlamaForCausalLM": ("llama", {"max_position_embeddings": 2048}),
    "MistralForCausalLM": ("mistral", {"max_position_embeddings": 131072, "sliding_window": 4096,
                                       "num_key_value_heads": 8}),
    "Qwen2ForCausalLM": ("qwen2", {"max_position_embeddings": 32768, "num_key_value_heads": 32,
                                   "sliding_window": 4096, "max_window_layers": 28}),
    "Qwen3ForCausalLM": ("qwen3", {"max_position_embeddings": 32768, "num_key_value_heads": 32, "head_dim": 128,
                                   "sliding_window": 4096, "max_window_layers": 28}),
    "MixtralForCausalLM": ("mixtral", {"max_position_embeddings": 131072, "num_key_value_heads": 8,
                                       "rms_norm_eps": 1e-5, "num_local_experts": 8, "num_experts_per_tok": 2,
                                       "rope_theta": 1e6}),
    "Qwen2MoeForCausalLM": ("qwen2moe", {"max_position_embeddings": 32768, "num_key_value_heads": 16,
                                         "sliding_window": 4096, "max_window_layers": 28, "num_experts": 60,
                                         "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
                                         "shared_expert_intermediate_size": 5632}),
    "Qwen3MoeForCausalLM": ("qwen3moe", {"max_position_embeddings": 32768, "num_key_value_heads": 4,
                                         "sliding_window": 4096, "num_experts": 128, "num_experts_per_tok": 8,
                                         "moe_intermediate_size": 768}),
    "PhiForCausalLM": ("phi2", {"max_position_embeddings": 2048, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5,
                                "partial_rotary_factor": 0.5}),
    "Phi3ForCausalLM": ("phi3", {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
                                 "original_max_position_embeddings": 4096}),
    "Qwen3_5ForCausalLM": ("qwen35", QWEN35),
    "Qwen3_5ForConditionalGeneration": ("qwen35", QWEN35),
    "Qwen3_5MoeForCausalLM": ("qwen35moe", QWEN35_MOE),
    "Qwen3_5MoeForConditionalGeneration": ("qwen35moe", QWEN35_MOE),
    "BitNetForCausalLM": ("bitnet-b1.58", {"max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
                                           "num_key_value_heads": 5, "hidden_act": "relu2", "rope_theta": 500000.0}),
    "BitnetForCausalLM": ("bitnet", {"max_position_embeddings": 2048}),
}
# model_type -> class, for files that name no class
MODEL_TYPES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "mixtral": "MixtralForCausalLM",
               "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM",
               "qwen3_moe": "Qwen3MoeForCausalLM", "phi": "PhiForCausalLM", "phi3": "Phi3ForCausalLM",
               "bitnet": "BitNetForCausalLM", "qwen3_5_text": "Qwen3_5ForCausalLM",
               "qwen3_5": "Qwen3_5ForConditionalGeneration", "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
               "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration"}
# registry name -> the activation that its forward has, and other words for the same
ACTIVATIONS = {"bitnet-b1.58": "relu2", "phi2": "gelu_new"}
SAME_ACTIVATION = {"swish": "silu", "gelu_pytorch_tanh": "gelu_new", "gelu_fast": "gelu_new"}
EXPERTS = ("mixtral", "qwen2moe", "qwen3moe", "qwen35moe")
ROTATED_IN_PART = ("phi2", "phi3", "qwen35", "qwen35moe")


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


cdef str model_class(dict config, str path):
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all([isinstance(name, str) for name in names]):
        raise ValueError(f"{path}: key architectures must be a list with the name of a model class")
    if not names:
        kind = config.get("model_type")
        if not isinstance(kind, str) or kind not in MODEL_TYPES:
            raise ValueError(f"{path}: key architectures names no model class, and key model_type is "
                             f"{str(kind)[:80]!r}; known: {', '.join(MODEL_TYPES)}")
        return MODEL_TYPES[kind]
    for name in names:
        if name in CLASSES:
            return name
    raise ValueError(f"{path}: model class {names[0][:80]!r} is unknown; known: {', '.join(CLASSES)}")


cdef HfConfig object_of(dict values, HfConfig owner, str prefix):
    """An object within a configuration."""
    cdef HfConfig c = HfConfig.__new__(HfConfig)
    c.values, c.defaults, c.path, c.prefix = values, {}, owner.path, prefix
    c.arch, c.name = owner.arch, owner.name
    return c


cdef HfConfig hf_config(object values, str path):
    cdef HfConfig c = HfConfig.__new__(HfConfig)
    c.values = standard_config(values, path)
    c.path, c.prefix = path, ""
    c.name = c.values["architectures"][0]
    c.arch, c.defaults = CLASSES[c.name]
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


def standard_config(config, path):
    """A parsed config.json in one spelling: of the text part alone, with one known model class in architectures, one of
    rope_parameters and rope_scaling, and one of the names that the number of experts has.

    As transformers reads it: a rope_scaling that is not empty takes the place of rope_parameters, whole. ValueError
    naming path and key.
    """
    if not isinstance(config, dict):
        raise ValueError(f"{path}: not a JSON object")
    name = model_class(config, path)
    config = text_part(config, path) | {"architectures": [name]}
    arch, defaults = CLASSES[name]
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
        original = defaults.get("original_max_position_embeddings") if original is None else original
        if original is not None:
            config[kept] = rope | {"original_max_position_embeddings": original}
    if arch in ("mixtral", "qwen3moe"):
        count, alias = ("num_local_experts", "num_experts")[::1 if arch == "mixtral" else -1]
        if config.get(count) is None and config.get(alias) is not None:
            config[count] = config[alias]
        config.pop(alias, None)
    return config


cdef frozenset hf_optional(HfConfig config):
    cdef str arch = config.arch
    cdef set parts = set()
    if arch in ("qwen35", "qwen35moe") and config.flag("attention_bias", False):
        raise ValueError(f"{config.path}: key attention_bias true is not supported for {config.name}")
    if (arch in ("qwen2", "phi2") or (arch == "qwen2moe" and config.flag("qkv_bias", True))
            or (arch in ("llama", "qwen3", "qwen3moe", "bitnet", "bitnet-b1.58")
                and config.flag("attention_bias", False))):
        parts |= {"attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias"}
        if arch not in ("qwen2", "qwen2moe"):
            parts.add("attn_output.bias")
    if arch == "phi2" or (arch == "llama" and config.flag("mlp_bias", False)):
        parts |= {"ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"}
    if arch in ("qwen3", "qwen3moe", "qwen35", "qwen35moe"):
        parts |= {"attn_q_norm.weight", "attn_k_norm.weight"}
    if arch in ("bitnet", "bitnet-b1.58"):
        parts |= {"attn_sub_norm.weight", "ffn_sub_norm.weight"}
    if arch == "phi2":
        parts.add("output.bias")
    return frozenset(parts)


cdef str hf_architecture(HfConfig config):
    arch = config.arch
    act = config.text("hidden_act", "silu")
    if arch == "bitnet-b1.58" and act == "silu":
        arch = "bitnet"
    expected = ACTIVATIONS.get(arch, "silu")
    if SAME_ACTIVATION.get(act, act) != expected:
        raise ValueError(f"{config.path}: key hidden_act is {act[:40]!r}, {arch} has {expected!r}")
    return arch


cdef int read_longrope(pn_config *c, HfConfig rope) except -1:
    c.rope_scaling = PN_ROPE_SCALING_LONGROPE
    c.rope_factor = rope.number("factor", <double>c.n_ctx / max(c.rope_orig_ctx, 1))
    c.rope_attn_factor = rope.number("attention_factor",
                                     rope_attention_factor(c.rope_scaling, c.rope_factor, c.rope_orig_ctx))
    return 0


cdef HfConfig hf_rope(HfConfig config):
    cdef str key = "rope_scaling" if config.get("rope_scaling") is not None else "rope_parameters"
    return object_of(config.get("rope_scaling") or config.get("rope_parameters") or {}, config, key + ".")


cdef list hf_rope_factors(const pn_config *c, HfConfig config, str key):
    value = hf_rope(config).get(key)
    if (c.rope_dims < 2 or not isinstance(value, list) or len(value) != c.rope_dims // 2
            or not all([type(v) in (int, float) and 1e-30 < v < 1e30 for v in value])):
        raise ValueError(f"{config.path}: key {key} of the rotation is no list of {c.rope_dims // 2} numbers above 0")
    return value


cdef int read_experts(pn_config *c, HfConfig keys) except -1:
    """What belongs to experts. Which layers have them, the tensors tell."""
    cdef str arch = keys.arch
    c.expert_scale = 1.0
    c.expert_renormalise = True
    if arch not in EXPERTS:
        return 0
    c.n_experts = keys.integer("num_local_experts" if arch == "mixtral" else "num_experts")
    c.n_experts_used = keys.integer("num_experts_per_tok")
    c.n_ff_expert = c.n_ff if arch == "mixtral" else keys.integer("moe_intermediate_size")
    if arch in ("qwen2moe", "qwen3moe"):
        c.expert_renormalise = keys.flag("norm_topk_prob", False)
    if arch in ("qwen2moe", "qwen35moe"):
        c.n_ff_shared = keys.integer("shared_expert_intermediate_size")
    return 0


cdef int read_rope(pn_config *c, HfConfig keys) except -1:
    """Rope base and scaling, from rope_parameters (new) or rope_scaling (old), and rope_theta."""
    cdef HfConfig rope = hf_rope(keys)
    cdef double factor, mscale, mscale_all
    c.rope_base = rope.number("rope_theta", keys.number("rope_theta", 10000.0))
    part = rope.number("partial_rotary_factor", keys.number("partial_rotary_factor", 1.0))
    if not 0 < part <= 1:
        raise ValueError(f"{keys.path}: key partial_rotary_factor is {part}, not above 0 and at most 1")
    if part != 1 and keys.arch not in ROTATED_IN_PART:
        raise ValueError(f"{keys.path}: key partial_rotary_factor must be 1 for this model class")
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
                                   keys.integer("original_max_position_embeddings", c.n_ctx))
    kind = rope.text("rope_type", rope.text("type", "default"))
    if keys.arch == "phi3" and kind in ("su", "yarn", "longrope"):   # its first files had other words for it
        return read_longrope(c, rope)
    if kind in ("default", "dynamic", "mrope"):
        # "dynamic" changes nothing before the model's own context is exceeded, which is where it ends here; one
        # position per token makes the sections of "mrope" agree
        c.rope_scaling = PN_ROPE_SCALING_NONE
        return 0
    if kind not in ("linear", "yarn", "llama3"):
        raise ValueError(f"{keys.path}: key {rope.prefix}rope_type is {kind[:40]!r}; this model class may have "
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
    c.n_layer = config.bounded("num_hidden_layers", 1, 1024)
    c.n_head = config.bounded("num_attention_heads", 1, 65536)
    # null has a meaning of its own for these two: as many as heads, and what the width leaves
    c.n_kv_head = config.integer("num_key_value_heads", c.n_head)
    if config.values.get("num_key_value_heads", 0) is None:
        c.n_kv_head = c.n_head
    c.head_dim = config.integer("head_dim", c.n_embd // c.n_head)
    if config.values.get("head_dim", 0) is None:
        c.head_dim = c.n_embd // c.n_head
    c.n_ff = config.integer("intermediate_size", 0 if config.arch == "qwen35moe" else None)
    c.norm_eps = config.number("layer_norm_eps") if config.arch == "phi2" else config.number("rms_norm_eps", 1e-6)
    c.attn_scale = 1 / sqrt(max(c.head_dim, 1))
    if config.flag("qk_layernorm", False):
        raise ValueError(f"{config.path}: key qk_layernorm true is not supported")
    read_experts(c, config)
    read_rope(c, config)
    c.sliding_window = max(hf_windows(c, config))
    return 0


cdef list hf_windows(const pn_config *c, HfConfig config):
    cdef str arch = config.arch
    cdef int window = 0, first = 0
    cdef bint by_layer = arch in ("qwen2", "qwen3", "qwen2moe")
    kinds = config.get("layer_types")
    # null switches the window off; only an absent key has the class's default
    if config.values.get("sliding_window", 0) is not None:
        window = config.integer("sliding_window", 0)
    if arch in ("qwen2", "qwen3", "qwen2moe", "qwen3moe"):
        if not config.flag("use_sliding_window", False):
            window = 0
        first = max(0, config.integer("max_window_layers", 0)) if by_layer else 0
    elif arch not in ("mistral", "mixtral", "phi3"):
        window = 0
    if not 0 <= window < c.n_ctx:
        if window < 0:
            config.refuse("sliding_window", "a number of positions")
        window = 0                       # a window that holds the whole context hides nothing
    if window == 0 or not by_layer:
        return [window] * c.n_layer
    if kinds is None and arch == "qwen2moe":         # this class has it in every other one of the first layers
        return [window if i % 2 == 0 and i < first else 0 for i in range(c.n_layer)]
    if kinds is None:
        return [window if i >= first else 0 for i in range(c.n_layer)]
    if not isinstance(kinds, list) or len(kinds) != c.n_layer:
        config.refuse("layer_types", f"a list of {c.n_layer} kinds")
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
        return PN_TERNARY_ONLINE if config.name == "BitnetForCausalLM" else PN_TERNARY_NONE
    if not isinstance(values, dict):
        raise ValueError(f"{config.path}: key quantization_config is no object")
    if config.arch in (*EXPERTS, *ROTATED_IN_PART):
        raise ValueError(f"{config.path}: key quantization_config is not supported for {config.name}")
    keys = object_of(values, config, "quantization_config.")
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


def optional_parts(dict config not None, str path not None):
    """hf_optional, for who reads the folder from Python."""
    return hf_optional(hf_config(config, path))


RULES = {PN_TERNARY_NONE: "none", PN_TERNARY_DIVIDE: "divide", PN_TERNARY_MULTIPLY: "multiply",
         PN_TERNARY_ONLINE: "online"}


def ternary_rule(dict config not None, str path not None):
    """How the matrices of the layers are stored: "none" (as floats), or the name of a ternary rule."""
    return RULES[hf_ternary_rule(hf_config(config, path))]
