"""A Hugging Face model in memory -> a GGUF file, by the rules of `pantheon convert`, in the types of a recipe."""
from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch

from pantheon.convert import Layout, lay_out
from pantheon.convert.hyper import Hyper, read_hyper
from pantheon.convert.keys import add_keys, hyper_keys
from pantheon.convert.pieces import Output, SourceTensor

from . import vocabulary
from .blocks import encode, input_block
from .recipes import Recipe

Q = gguf.GGMLQuantizationType


def laid_out(model: torch.nn.Module, recipe: Recipe) -> tuple[Layout, Hyper]:
    """The tensors of the model's file, F32 views of its parameters."""
    h = read_hyper(model.config.to_dict() | {"architectures": [type(model).__name__]}, recipe.name)
    source = {}
    for name, parameter in model.state_dict().items():
        array = np.ascontiguousarray(parameter.numpy(), np.float32)
        source[name] = SourceTensor(name, "F32", array.shape, array.reshape(-1).view(np.uint8))
    return lay_out(source, h, recipe.name)[0], h


def gguf_names(layout: Layout) -> dict[str, str]:
    """Module of a matrix -> name in the file, both without suffix."""
    return {output.pieces[0].source.removesuffix(".weight"): output.name.removesuffix(".weight")
            for output in layout.outputs if output.name != "output.weight" or not layout.h.tied}


def _type_of(recipe: Recipe, name: str) -> Q:
    return recipe.types.get(name, recipe.types.get(name.rsplit(".", 1)[-1], Q.F32))


def _set(parameter: torch.nn.Parameter, values: np.ndarray) -> None:
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(values))


def expert_tensors(experts: torch.nn.Module) -> dict[str, np.ndarray]:
    """Stacked matrices of a layer's experts, (n_experts, out, in) each."""
    gate, up = np.split(experts.gate_up_proj.detach().numpy(), 2, axis=1)
    return {"gate": gate, "up": up, "down": experts.down_proj.detach().numpy()}


def _quantise_experts(experts: torch.nn.Module, layer: str, recipe: Recipe,
                      rng: np.random.Generator) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """The same as `quantise` for the experts of one layer ("blk.0"); blocks by "gate", "up" and "down"."""
    tensors, data, blocks = expert_tensors(experts), {}, {}
    for part, weight in tensors.items():
        name = f"{layer}.ffn_{part}_exps"
        kind = _type_of(recipe, name)
        blocks[part] = input_block(kind)
        if kind != Q.F32:
            encoded, values = encode(weight.reshape(-1, weight.shape[2]), kind, rng)
            data[name] = encoded.reshape(*weight.shape[:2], -1)
            tensors[part] = values.reshape(weight.shape)
    _set(experts.gate_up_proj, np.concatenate([tensors["gate"], tensors["up"]], axis=1))
    _set(experts.down_proj, tensors["down"])
    return data, blocks


def quantise(model: torch.nn.Module, recipe: Recipe) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Replaces the model's matrices by what their file types can hold.

    Returns the file bytes of those matrices by GGUF name, before any change of row order, and the int8 input block of
    each module.
    """
    rng = np.random.default_rng(2000 + recipe.seed)
    names = gguf_names(laid_out(model, recipe)[0])
    data, blocks = {}, {}
    for module_name, module in model.named_modules():
        if module_name.endswith(".experts"):
            layer = f"blk.{module_name.split('.')[2]}"
            expert_data, expert_blocks = _quantise_experts(module, layer, recipe, rng)
            data |= expert_data
            blocks |= {f"{module_name}.{part}": block for part, block in expert_blocks.items()}
        if not isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            continue
        name = names.get(module_name, "token_embd")  # a tied head has no tensor of its own
        kind = _type_of(recipe, name)
        if name not in data and kind != Q.F32:
            data[name], values = encode(module.weight.detach().numpy(), kind, rng)
            _set(module.weight, values)
        if isinstance(module, torch.nn.Linear):
            blocks[module_name] = input_block(kind)
    return data, blocks


def _entry(output: Output, recipe: Recipe, data: dict[str, np.ndarray]) -> tuple[np.ndarray, Q]:
    name = output.name.removesuffix(".weight")
    if output.kind == "float" or name not in data:
        return output.values(), Q.F32
    order = output.pieces[0].rows if len(output.shape) == 2 else None
    return data[name] if order is None else data[name][order], _type_of(recipe, name)


def _respell(tensors: dict[str, tuple[np.ndarray, Q]], h: Hyper, recipe: Recipe) -> None:
    """Other spellings that readers accept: one tensor per expert, gate and up in one, q, k and v in one."""
    for layer in range(h.n_layer):
        b = f"blk.{layer}."
        if recipe.experts == "split":
            for part in ("gate", "up", "down"):
                stack, kind = tensors.pop(f"{b}ffn_{part}_exps.weight")
                tensors |= {f"{b}ffn_{part}.{e}.weight": (weight, kind) for e, weight in enumerate(stack)}
        if recipe.experts == "fused" and f"{b}ffn_gate_exps.weight" in tensors:
            gate, kind = tensors.pop(f"{b}ffn_gate_exps.weight")
            up, _ = tensors.pop(f"{b}ffn_up_exps.weight")
            tensors[f"{b}ffn_gate_up_exps.weight"] = (np.concatenate([gate, up], axis=1), kind)
        if recipe.fused_qkv:
            for suffix in ("weight", "bias"):
                parts = [tensors.pop(f"{b}attn_{x}.{suffix}", None) for x in "qkv"]
                if parts[0] is not None:
                    tensors[f"{b}attn_qkv.{suffix}"] = (np.concatenate([array for array, _ in parts]), parts[0][1])


def write(model: torch.nn.Module, recipe: Recipe, data: dict[str, np.ndarray], path: Path,
          more: dict[str, np.ndarray] | None = None) -> None:
    """Writes the file. `data` is what `quantise` returned; every other tensor is F32; `more`: blocks that draft."""
    layout, h = laid_out(model, recipe)
    outputs = [output for output in layout.outputs if output.name != "output.weight" or not h.tied]
    tensors = {output.name: _entry(output, recipe, data) for output in outputs}
    _respell(tensors, h, recipe)
    tensors |= {name: (array, Q.F32) for name, array in (more or {}).items()}
    writer = gguf.GGUFWriter(path, recipe.arch)
    writer.add_name(recipe.name)
    writer.add_description(recipe.why)
    keys = hyper_keys(h, recipe.n_mtp)
    add_keys(writer, {key: value for key, value in keys.items() if key not in recipe.omit}, recipe.arch)
    vocabulary.write(writer, recipe.pre)
    for name, (array, kind) in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(array), raw_dtype=None if kind in (Q.F32, Q.F16) else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
