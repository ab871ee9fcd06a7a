"""Where a loader finds a model's tensors (see source.pxd for the contract).

The names of Hugging Face models are in the tables of facts.py and arch/*/hf.py.
"""
import re

from libc.stdint cimport int64_t

from pantheon._core.base.report cimport pn_log
from pantheon._core.files.ggml_types cimport ggml_type, ggml_type_info
from pantheon._core.files.gguf cimport gguf_tensor
from pantheon._core.files.gguf_file cimport gguf_file
from pantheon._core.files.name_index cimport name_bytes, name_shown, name_text
from pantheon._core.files.safetensors cimport safetensors_file, safetensors_tensor
from pantheon._core.load.config_hf cimport HfConfig, hf_optional, hf_ternary_rule, hf_tied
from pantheon._core.types cimport PN_LOG_WARNING, tm_tensor

from pantheon._core.files.safetensors import DTYPE_NAMES
from pantheon._core.load.facts import OPTIONAL

# Tensors that no reader needs: rotation tables, and ranges of activations for quantisers that keep them fixed.
LEFT_OVER = re.compile(r"(.*\.)?(attn_rot_embd|rope\.freqs|rotary_emb\.inv_freq)(\.weight)?|.*\.input_scale")
BLOCK = re.compile(r"(?:blk|(?:.*\.)?layers)\.([0-9]+)\.")

# What may stand before the names of a text model: the usual, inside multimodal models (new and old), saved without
# its head.
PREFIXES = ("model.", "model.language_model.", "language_model.model.", "")


cdef Source source_gguf(const gguf_file *f, str path):
    cdef Source s = Source.__new__(Source)
    s.gguf = f
    s.path = path
    s.asked = set()
    s.block = BLOCK
    s.layers = "layers"
    return s


cdef Source source_safetensors(const safetensors_file *f, str path, HfConfig config):
    cdef Source s = source_gguf(NULL, path)
    s.safetensors = f
    if config is None:
        return s
    s.config = config
    s.names = config.facts.names
    s.optional = hf_optional(config)
    s.tied = hf_tied(config)
    s.ternary = hf_ternary_rule(config)
    s.prefix = PREFIXES[0]
    for prefix in PREFIXES:
        if safetensors_tensor(f, f"{prefix}embed_tokens.weight".encode()) != NULL:
            s.prefix = prefix
            break
    return s


cdef list source_names(Source s):
    cdef int64_t i
    if s.gguf != NULL:
        return [name_text(s.gguf.tensors[i].name) for i in range(s.gguf.n_tensors)]
    return [name_text(s.safetensors.names[i]) for i in range(s.safetensors.n_tensors)]


cdef str hf_name(Source s, str name, object parts):
    """Hugging Face's spelling of a GGUF name; None when it has none."""
    cdef str layer = "", part = name, stem, suffix, expert
    if name.startswith("output."):
        return ("language_model." if s.prefix == "language_model.model." else "") + f"lm_head.{name[7:]}"
    if name.startswith("blk."):
        _, number, part = name.split(".", 2)
        layer = f"layers.{number}."
    theirs = parts.get(part)
    if theirs is None:
        part, _, suffix = part.rpartition(".")
        stem, _, expert = part.partition(".")
        theirs = parts.get(f"{stem}.*" if expert else stem)
        if theirs is None:
            return None
        theirs = f"{theirs.replace('*', expert)}.{suffix}"
    return s.prefix + layer + theirs


cdef bint has_part(Source s, str name) except -1:
    part = name.split(".", 2)[2] if name.startswith("blk.") else name
    return part not in OPTIONAL or part in s.optional


cdef tm_tensor *source_tensor(Source s, str name) except? NULL:
    cdef tm_tensor *t = NULL
    s.asked.add(name)
    if s.gguf != NULL:
        return gguf_tensor(s.gguf, name_bytes(name))
    if s.config is None:
        return safetensors_tensor(s.safetensors, name_bytes(name))
    if not has_part(s, name):
        return NULL
    for parts in s.names:
        theirs = hf_name(s, name, parts)
        if theirs is not None:
            t = safetensors_tensor(s.safetensors, name_bytes(theirs))
            if t != NULL:
                return t
    if s.tied and name == "token_embd.weight":
        return source_tensor(s, "output.weight")
    return NULL


cdef str source_name(Source s, str name):
    return name if s.config is None else hf_name(s, name, s.names[0]) or name


cdef str shape_text(const tm_tensor *t):
    dims = [t.ne[3], t.ne[2], t.ne[1], t.ne[0]]
    while len(dims) > 1 and dims[0] == 1:
        dims.pop(0)
    return f"({', '.join(str(d) for d in dims)})"


cdef str type_text(const tm_tensor *t):
    cdef const ggml_type_info *info = ggml_type(t.type)
    return (<bytes>info.name).decode() if info != NULL else DTYPE_NAMES[t.type]


# ---- what nobody asked for -------------------------------------------------------------------------------------------

cdef set expected_names(Source s):
    """Every name that the container might have had for what was asked for."""
    if s.config is None:
        return set(s.asked)
    return {hf_name(s, name, parts) for name in s.asked for parts in s.names} - {None}


cdef set unused_names(Source s):
    """The names of what the class has only under another configuration, or not at all: OPTIONAL, and any bias."""
    cdef set names
    if s.config is None:
        return set()
    names = set(OPTIONAL - s.optional)
    blocks = {name[:name.index(".", 4) + 1] for name in s.asked if name.startswith("blk.")}
    unused = {hf_name(s, name if name.startswith("output.") else block + name, parts) for name in names
              for block in blocks for parts in s.names}
    return unused | ({name[:-6] + "bias" for name in expected_names(s) if name.endswith("_proj.weight")}
                     - expected_names(s))


cdef bint elsewhere(Source s, str name):
    """Whether a safetensors tensor is no part of the text model: another part of a multimodal one, or a draft."""
    if s.config is None or name.startswith("lm_head."):
        return False
    return name.startswith("mtp.") or (s.prefix not in ("", "model.") and not name.startswith(s.prefix))


cdef str expected_text(Source s, str name, set expected, int n_layer):
    """What a file may have in the place of a tensor that it should not have."""
    match = s.block.match(name)
    if match is not None and int(match[1]) >= n_layer:
        return f"the model has {s.layers} 0 to {n_layer - 1}"
    part = match[0] if match is not None else ""
    where = f"in {part.rstrip('.')}" if part else f"outside of the {s.layers}"
    found = {re.sub(r"\.\d+\.", ".N.", other[len(part):]) for other in expected
             if (other.startswith(part) if part else s.block.match(other) is None)}
    return f"expected {where}: {', '.join(sorted(found))}"


cdef int source_check_extra(Source s, int n_layer, int n_blocks) except -1:
    cdef int n_unused = 0, i
    cdef const tm_tensor *t
    expected, unused = expected_names(s), unused_names(s)
    for i, name in enumerate(source_names(s)):
        if name in unused:
            n_unused += 1
            continue
        if name in expected or LEFT_OVER.fullmatch(name) or elsewhere(s, name):
            continue
        match = s.block.match(name)
        if match is not None and len(match[1]) < 6 and n_layer <= int(match[1]) < n_blocks:
            continue
        t = &s.gguf.tensors[i] if s.gguf != NULL else &s.safetensors.tensors[i]
        raise ValueError(f"{s.path}: tensor {name_shown(name)} of shape {shape_text(t)} is in the file, but not in the "
                         f"model; {expected_text(s, name, expected, n_layer)}")
    if n_unused:
        pn_log(PN_LOG_WARNING, b"%d biases or norms of the file stay unused: its config.json says that the model has "
               b"none", n_unused)
    return 0
