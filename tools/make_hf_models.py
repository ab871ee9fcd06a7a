"""Makes the tiny Hugging Face models of the tests: tests/fixtures/hf/<name>/ and its golden.npz.

    python -m venv /tmp/tiny && /tmp/tiny/bin/pip install torch==2.13.0 transformers==5.24.0 gguf==0.19.0 .
    /tmp/tiny/bin/python tools/make_hf_models.py [NAME ...]

manifest.json beside them says what made each. One folder has a tokenizer, whose vocabulary is that of all of them.

Each folder is what transformers saves: config.json, safetensors, sharded or not, and for one a tokenizer; or, for
`multimodal`, the way that the published Qwen3.5 files are: stacked experts, the text model inside of another one.
golden.npz holds `tokens` (96,) int32 and `logits` (96, n_vocab) float32 of the stored weights,
computed in float32; for LongRoPE also `short_logits`, of a prompt that is no longer than the short factors. The ternary
models run transformers' own BitLinear and AutoBitLinear. Their int8 rounding turns a last-bit difference into a step
where an input lies on the border between two codes, so a seed is taken for which none comes near one.
"""
from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import transformers.integrations.bitnet as bitnet
from safetensors.torch import save_file
from tiny import manifest, reference
from tiny.hf_tokenizer import save_tokenizer
from tiny.qwen35 import config as qwen35_config
from tiny.recipes import RECIPES
from transformers import BitNetConfig, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

torch._dynamo.config.disable = True

OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "hf"
N_TOKENS = 96
BORDER = 2e-5  # distance to the border between two codes: several times the error of float32


def _sizes(**changes) -> dict:
    sizes = {
        "vocab_size": 288, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    return sizes | changes


LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32}


@dataclass
class Model:
    name: str
    config: object
    seed: int
    dtype: torch.dtype = torch.float32
    shard: str = "1GB"
    tokenizer: bool = False
    ternary: dict | None = None
    changes: dict = field(default_factory=dict)  # of config.json after saving: other spellings of the same
    short: int = 0  # LongRoPE: positions of the short factors
    multimodal: bool = False


TINY = {recipe.name: recipe.config for recipe in RECIPES}  # the same models as in GGUF, with other weights

MODELS = [
    Model("llama-sharded", LlamaConfig(**_sizes(tie_word_embeddings=False, eos_token_id=[2, 0],
                                                rope_parameters=LLAMA3)), 31, torch.bfloat16, "24KB", tokenizer=True),
    Model("mistral-old-keys", MistralConfig(**_sizes(sliding_window=8, head_dim=12)), 32, torch.float16,
          changes={"rope_parameters": None, "rope_theta": 10000.0, "rope_scaling": None}),
    Model("qwen2-yarn", Qwen2Config(**_sizes(hidden_size=16, num_attention_heads=2, num_key_value_heads=1,
                                             rope_parameters=YARN)), 33,
          changes={"rope_parameters": None, "rope_theta": 1e6,
                   "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}),
    Model("qwen3-windows", Qwen3Config(**_sizes(num_hidden_layers=3, head_dim=16, use_sliding_window=True,
                                                sliding_window=8, max_window_layers=1)), 34, torch.bfloat16),
    Model("mixtral", TINY["mixtral"], 41, torch.bfloat16),
    Model("qwen2-moe", TINY["qwen2moe"], 42, torch.float16),
    Model("qwen3-moe", TINY["qwen3moe"], 43),
    Model("phi2", TINY["phi2"], 44, torch.float16),
    Model("phi3-longrope", TINY["phi3-longrope"], 45, torch.bfloat16, short=48),
    Model("qwen35", qwen35_config(tie_word_embeddings=True, num_hidden_layers=5), 49),
    Model("qwen35-moe", TINY["qwen35moe"], 47, torch.bfloat16, multimodal=True),
    Model("ternary-llama", LlamaConfig(**_sizes(hidden_size=64, intermediate_size=92)), 35, ternary={}),
    Model("bitnet-offline", BitNetConfig(**_sizes(hidden_size=64, intermediate_size=92, hidden_act="relu2")), 36,
          ternary={"linear_class": "autobitlinear", "quantization_mode": "offline"}),
    Model("bitnet-online", BitNetConfig(**_sizes(intermediate_size=36, hidden_act="relu2")), 37,
          torch.bfloat16, ternary={"linear_class": "autobitlinear", "quantization_mode": "online"}),
]


def prompt(model: Model) -> np.ndarray:
    rng = np.random.default_rng(1000 + model.seed)
    return rng.integers(3, model.config.vocab_size, size=N_TOKENS, dtype=np.int32)


def save_ternary(model: Model, net: torch.nn.Module, folder: Path) -> None:
    """Replaces the layers' matrices by what `model.ternary` says, in the net and in the file."""
    settings = model.ternary
    divide, online = "linear_class" not in settings, settings.get("quantization_mode") == "online"
    stored, codes = {}, {}
    net.load_state_dict({key: value.to(model.dtype).float() for key, value in net.state_dict().items()})
    for key, value in net.state_dict().items():
        if key.endswith("_proj.weight") and not online:
            scale = value.abs().mean().clamp(min=1e-5)
            codes[key] = (value / scale).round().clamp(-1, 1)
            stored[key] = bitnet.pack_weights(codes[key].clone())
            stored[key + "_scale"] = (1 / scale if divide else scale).reshape(1)
        elif not (key == "lm_head.weight" and model.config.tie_word_embeddings):
            stored[key] = value.to(model.dtype).contiguous()

    class Settings:
        linear_class = settings.get("linear_class", "bitlinear")
        quantization_mode = settings.get("quantization_mode", "offline")
        use_rms_norm = False
        rms_norm_eps = 1e-6

    masters = {key: value for key, value in net.state_dict().items() if key.endswith("_proj.weight")}
    bitnet.replace_with_bitnet_linear(net, ["lm_head"], Settings())
    for name, module in net.named_modules():
        key = f"{name}.weight"
        if online and key in masters:
            module.weight = torch.nn.Parameter(masters[key])
        elif key in codes:
            module.weight_scale = torch.nn.Buffer(stored[key + "_scale"])
            module.weight = torch.nn.Buffer(stored[key]) if divide else torch.nn.Parameter(codes[key])
            module.dtype = torch.float32
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    config = net.config.to_dict() | {"architectures": [type(net).__name__],
                                     "quantization_config": {"quant_method": "bitnet", **settings}}
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def save_multimodal(net: torch.nn.Module, stored: dict[str, torch.Tensor], folder: Path) -> None:
    """A model that also has a picture side (one tensor here), which no text needs."""
    data = {key.replace("model.", "model.language_model.", 1): value.contiguous() for key, value in stored.items()}
    data["model.visual.pos_embed.weight"] = torch.ones(4, 8)
    save_file(data, folder / "model.safetensors", metadata={"format": "pt"})
    text = net.config.to_dict() | {"tie_word_embeddings": net.config.tie_word_embeddings}
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "text_config": text,
        "tie_word_embeddings": net.config.tie_word_embeddings, "vision_config": {"depth": 1}}, indent=1))


def border_distance(net: torch.nn.Module, tokens: np.ndarray) -> float:
    """How near any input of a ternary matrix comes to the middle between two int8 codes."""
    nearest = [1.0]

    def look(_, inputs):
        x = inputs[0].double()
        codes = x * 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
        nearest[0] = min(nearest[0], float((codes - codes.floor() - 0.5).abs().min()))

    handles = [module.register_forward_pre_hook(look) for name, module in net.named_modules()
               if name.endswith("_proj")]
    reference.logits(net, tokens)
    for handle in handles:
        handle.remove()
    return nearest[0]


def make(model: Model) -> dict:
    """Writes the folder of one model and returns its entry of the manifest."""
    folder = OUT / model.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if model.ternary is None:
        net = reference.build(model.config)
        reference.draw_weights(net, model.seed)
        stored = {key: value.to(model.dtype) for key, value in net.state_dict().items()}
        net.load_state_dict({key: value.float() for key, value in stored.items()})
        if model.multimodal:
            save_multimodal(net, stored, folder)
        else:
            net.save_pretrained(folder, state_dict=stored, max_shard_size=model.shard)
        (folder / "generation_config.json").unlink(missing_ok=True)
        tokens = prompt(model)
    else:
        for _ in range(500):
            net = reference.build(model.config)
            reference.draw_weights(net, model.seed)
            save_ternary(model, net, folder)
            tokens = prompt(model)
            if border_distance(net, tokens) > BORDER:
                break
            model.seed += 100
        else:
            raise ValueError(f"{model.name}: every seed has an input on the border of two codes")
    if model.changes:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | model.changes, indent=1))
    if model.tokenizer:
        save_tokenizer(folder)
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    arrays = {"tokens": tokens, "logits": reference.logits(net, tokens)}
    if model.short:
        arrays["short_logits"] = reference.logits(net, tokens[:model.short])
    np.savez_compressed(folder / "golden.npz", **arrays)
    print(f"{model.name}: seed {model.seed}, {sum(f.stat().st_size for f in folder.iterdir())} bytes")
    return manifest.provenance(__file__, model.seed, ("torch", "transformers", "safetensors", "numpy"))


if __name__ == "__main__":
    made = {model.name: make(model) for model in MODELS if len(sys.argv) == 1 or model.name in sys.argv[1:]}
    manifest.update(OUT, made, [model.name for model in MODELS])
