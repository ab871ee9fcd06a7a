"""Makes the tiny Hugging Face models of the tests: tests/fixtures/hf/<name>/ and its golden.npz.

    python -m venv /tmp/tiny && /tmp/tiny/bin/pip install torch==2.13.0 transformers==5.24.0 gguf==0.19.0 .
    /tmp/tiny/bin/python tools/make_hf_models.py [NAME ...]

Models that the engine runs only when they are converted are in tests/fixtures/convert.

Each folder is what transformers saves: config.json, safetensors, sharded or not, and for one a tokenizer. golden.npz
holds `tokens` (n,) int32 and `logits` (n, n_vocab) float32 of the stored weights, computed in float32. The ternary
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
from tiny import reference
from tiny.hf_tokenizer import save_tokenizer
from tiny.recipes import RECIPES
from transformers import BitNetConfig, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

torch._dynamo.config.disable = True

OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
BORDER = 2e-5  # distance to the border between two codes: several times the error of float32
N_TOKENS = 24


def _sizes(**changes) -> dict:
    sizes = {
        "vocab_size": 64, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
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
    group: str = "hf"


MODELS = [
    Model("llama-sharded", LlamaConfig(**_sizes(vocab_size=288, tie_word_embeddings=False, eos_token_id=[2, 0],
                                                rope_parameters=LLAMA3)), 31, torch.bfloat16, "24KB", tokenizer=True),
    Model("mistral-old-keys", MistralConfig(**_sizes(sliding_window=8, head_dim=12)), 32, torch.float16,
          changes={"rope_parameters": None, "rope_theta": 10000.0, "rope_scaling": None}),
    Model("qwen2-yarn", Qwen2Config(**_sizes(hidden_size=16, num_attention_heads=2, num_key_value_heads=1,
                                             rope_parameters=YARN)), 33,
          changes={"rope_parameters": None, "rope_theta": 1e6,
                   "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}),
    Model("qwen3-windows", Qwen3Config(**_sizes(num_hidden_layers=3, head_dim=16, use_sliding_window=True,
                                                sliding_window=8, max_window_layers=1)), 34, torch.bfloat16),
    Model("ternary-llama", LlamaConfig(**_sizes(hidden_size=64, intermediate_size=92)), 35, ternary={}),
    Model("bitnet-offline", BitNetConfig(**_sizes(hidden_size=64, intermediate_size=92, hidden_act="relu2")), 36,
          ternary={"linear_class": "autobitlinear", "quantization_mode": "offline"}),
    Model("bitnet-online", BitNetConfig(**_sizes(intermediate_size=36, hidden_act="relu2")), 37,
          torch.bfloat16, ternary={"linear_class": "autobitlinear", "quantization_mode": "online"}),
]
CONVERTED = ("mixtral", "qwen2moe", "qwen3moe", "phi2", "phi3-longrope", "qwen35", "qwen35moe")
MODELS += [Model(recipe.name, recipe.config, recipe.seed, torch.bfloat16, tokenizer=True, group="convert")
           for recipe in RECIPES if recipe.name in CONVERTED]


def prompt(model: Model) -> np.ndarray:
    return np.random.default_rng(1000 + model.seed).integers(3, model.config.vocab_size, size=N_TOKENS, dtype=np.int32)


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


def make(model: Model) -> None:
    folder = OUT / model.group / model.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if model.ternary is None:
        net = reference.build(model.config)
        reference.draw_weights(net, model.seed)
        stored = {key: value.to(model.dtype) for key, value in net.state_dict().items()}
        net.load_state_dict({key: value.float() for key, value in stored.items()})
        net.save_pretrained(folder, state_dict=stored, max_shard_size=model.shard)
        (folder / "generation_config.json").unlink(missing_ok=True)
        tokens = prompt(model)
    else:
        for _ in range(200):
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
    np.savez_compressed(folder / "golden.npz", tokens=tokens, logits=reference.logits(net, tokens))
    print(f"{model.name}: seed {model.seed}, {sum(f.stat().st_size for f in folder.iterdir())} bytes")


if __name__ == "__main__":
    for each in MODELS:
        if len(sys.argv) == 1 or each.name in sys.argv[1:]:
            make(each)
