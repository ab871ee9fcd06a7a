"""Where a loader finds a model's tensors (see source.pxd for the contract).

The names of Hugging Face models: section 2 of the transformer notes.
"""
from libc.string cimport memset

from pantheon._core.gguf cimport gguf_file, gguf_tensor
from pantheon._core.safetensors cimport safetensors_file, safetensors_tensor
from pantheon._core.types cimport tm_tensor

# GGUF part of "blk.N.PART.suffix" -> part of "layers.N.PART.suffix"
LAYER_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_sub_norm": "self_attn.attn_sub_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_gate_up": "mlp.gate_up_proj",
    "ffn_sub_norm": "mlp.ffn_sub_norm",
    "ffn_down": "mlp.down_proj",
}
# spellings of older code
OLD_PARTS = {"attn_sub_norm": "self_attn.inner_attn_ln", "ffn_sub_norm": "mlp.ffn_layernorm"}
TOP_PARTS = {"token_embd": "embed_tokens", "output_norm": "norm"}

# What may stand before the names of a text model: the usual, inside multimodal models (new and old), saved without
# its head.
cdef const char *PREFIXES[4]
PREFIXES[0] = b"model."
PREFIXES[1] = b"model.language_model."
PREFIXES[2] = b"language_model.model."
PREFIXES[3] = b""


cdef pn_source source_gguf(const gguf_file *f) noexcept nogil:
    cdef pn_source s
    memset(&s, 0, sizeof(s))
    s.gguf = f
    return s


cdef pn_source source_safetensors(const safetensors_file *f) noexcept nogil:
    cdef pn_source s
    memset(&s, 0, sizeof(s))
    s.safetensors = f
    s.prefix = PREFIXES[0]
    if safetensors_tensor(f, b"model.embed_tokens.weight") == NULL:
        if safetensors_tensor(f, b"model.language_model.embed_tokens.weight") != NULL:
            s.prefix = PREFIXES[1]
        elif safetensors_tensor(f, b"language_model.model.embed_tokens.weight") != NULL:
            s.prefix = PREFIXES[2]
        elif safetensors_tensor(f, b"embed_tokens.weight") != NULL:
            s.prefix = PREFIXES[3]
    return s


cdef str hf_name(const pn_source *s, str name, dict parts):
    """Hugging Face's spelling of a GGUF name; None when it has none."""
    prefix = (<bytes>s.prefix).decode()
    stem, _, suffix = name.rpartition(".")
    if stem.startswith("blk."):
        _, layer, part = stem.split(".", 2)
        return f"{prefix}layers.{layer}.{parts[part]}.{suffix}" if part in parts else None
    if stem == "output":
        return (prefix[:len(prefix) - len("model.")] if prefix == "language_model.model." else "") + f"lm_head.{suffix}"
    return f"{prefix}{TOP_PARTS[stem]}.{suffix}" if stem in TOP_PARTS else None


cdef tm_tensor *source_tensor(const pn_source *s, str name) except? NULL:
    cdef tm_tensor *t = NULL
    if s.gguf != NULL:
        return gguf_tensor(s.gguf, name.encode())
    if s.tied and name.startswith("output."):
        return NULL
    for parts in (LAYER_PARTS, OLD_PARTS):
        theirs = hf_name(s, name, parts)
        if theirs is not None:
            t = safetensors_tensor(s.safetensors, theirs.encode())
            if t != NULL:
                return t
    return NULL


cdef str source_name(const pn_source *s, str name):
    return name if s.gguf != NULL else hf_name(s, name, LAYER_PARTS) or name
