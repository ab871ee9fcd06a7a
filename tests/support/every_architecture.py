"""A model of every architecture in the registry, for tests of what holds for all of them."""
import gguf
import numpy as np

from support import rwkv_models
from support.fixture_paths import HF_MODELS, TINY, TINY_MODELS
from support.wide_heads import widened

GGUFS = {name: TINY / f"{name}.gguf" for name in TINY_MODELS}
FOLDERS = {f"hf-{path.name}": path for path in HF_MODELS}
BITNETS = ("bitnet-25",)                     # its other names are among the files
NAMES = (*GGUFS, *FOLDERS, *BITNETS, *sorted(rwkv_models.RECIPES))


def kv_types(name):
    """Cache types that the model called so can have: RWKV-7 has none, a folder's heads are too narrow for some."""
    if name == "rwkv7":
        return ("f16",)
    return ("f32", "f16") if name in FOLDERS else ("f32", "f16", "q8_0", "q4_0")


def model_path(name, folder, monkeypatch):
    """Path of the model called so, made in folder where it is no fixture; RWKV-X reads the environment."""
    if name in GGUFS:
        return widened(GGUFS[name], folder / f"{name}.gguf")
    if name in FOLDERS:
        return FOLDERS[name]
    if name in BITNETS:
        return _bitnet(folder / f"{name}.gguf", name)
    recipe = rwkv_models.RECIPES[name]
    for key, value in (("RWKVX_KEEP_TOKENS", recipe.keep_tokens), ("RWKVX_KEEP_RATIO", recipe.keep_ratio)):
        monkeypatch.delenv(key, raising=False)
        if value is not None:
            monkeypatch.setenv(key, str(value))
    rwkv_models.write(recipe, folder / f"{name}.safetensors", None)
    return folder / f"{name}.safetensors"


def _bitnet(path, arch):
    """Two layers of F32 weights, heads of 64: wide enough for quantised caches."""
    n_embd, n_ff, n_head, n_kv_head, head_dim, n_vocab = 128, 256, 2, 1, 64, 40
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(2)
    writer.add_context_length(256)
    writer.add_embedding_length(n_embd)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(n_head)
    writer.add_head_count_kv(n_kv_head)
    writer.add_layer_norm_rms_eps(1e-5)
    rng = np.random.default_rng(6)
    shapes = {"token_embd": (n_vocab, n_embd), "output_norm": (n_embd,)}
    for i in range(2):
        q, kv = n_head * head_dim, n_kv_head * head_dim
        shapes |= {f"blk.{i}.{name}": shape for name, shape in {
            "attn_norm": (n_embd,), "ffn_norm": (n_embd,), "attn_sub_norm": (q,), "ffn_sub_norm": (n_ff,),
            "attn_q": (q, n_embd), "attn_k": (kv, n_embd), "attn_v": (kv, n_embd), "attn_output": (n_embd, q),
            "ffn_gate": (n_ff, n_embd), "ffn_up": (n_ff, n_embd), "ffn_down": (n_embd, n_ff)}.items()}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.standard_normal(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
