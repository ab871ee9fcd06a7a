"""Makes tests/fixtures/config: what config.json means, as transformers reads it.

    python -m venv /tmp/tiny && /tmp/tiny/bin/pip install torch==2.13.0 transformers==5.24.0 gguf==0.19.0 .
    /tmp/tiny/bin/python tools/make_config_goldens.py

<class>.safetensors holds a tiny seeded model of the class in F16 and, beside its own tensors, such as a file may hold
too: biases, norms of heads, an LM head. cases.json says for every case which class's weights, without which of the
tensors, and which config.json make the folder; logits.npz holds what transformers' from_pretrained makes of that folder
in float32: (n_tokens / STEP, n_vocab), of every STEP-th of the tokens 0, 1, 2, ... A case stands there when its
logits differ from those of the same weights read in another way, or when an error would be the mistake.
"""
from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny import manifest, reference

torch._dynamo.config.disable = True

OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "config"
N_TOKENS, STEP = 24, 3
SEED = 600  # of the first class, the next ones follow
SIZES = {"vocab_size": 24, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
# class -> its config.json, without anything that may be left out
CLASSES = {
    "LlamaForCausalLM": {"model_type": "llama", **SIZES},
    "MistralForCausalLM": {"model_type": "mistral", **SIZES},
    "MixtralForCausalLM": {"model_type": "mixtral", **SIZES, "num_local_experts": 4},
    "Qwen2ForCausalLM": {"model_type": "qwen2", **SIZES},
    "Qwen3ForCausalLM": {"model_type": "qwen3", **SIZES, "head_dim": 8},
    "Qwen2MoeForCausalLM": {"model_type": "qwen2_moe", **SIZES, **MOE, "shared_expert_intermediate_size": 12},
    "Qwen3MoeForCausalLM": {"model_type": "qwen3_moe", **SIZES, **MOE, "head_dim": 8},
    "PhiForCausalLM": {"model_type": "phi", **SIZES, "hidden_size": 32},
    "Phi3ForCausalLM": {"model_type": "phi3", **SIZES, "hidden_size": 32, "pad_token_id": 0},
    "BitNetForCausalLM": {"model_type": "bitnet", **SIZES},
    "Qwen3_5ForCausalLM": {"model_type": "qwen3_5_text", **SIZES, "num_hidden_layers": 4, "head_dim": 16,
                           "linear_conv_kernel_dim": 3, "linear_key_head_dim": 8, "linear_value_head_dim": 4,
                           "linear_num_key_heads": 2, "linear_num_value_heads": 4},
    "Qwen3_5MoeForCausalLM": {"model_type": "qwen3_5_moe_text", **SIZES, **MOE, "num_hidden_layers": 4, "head_dim": 16,
                              "shared_expert_intermediate_size": 12,
                              "linear_conv_kernel_dim": 3, "linear_key_head_dim": 8, "linear_value_head_dim": 4,
                              "linear_num_key_heads": 2, "linear_num_value_heads": 4},
}
HEAD, BIAS, NORM = r"lm_head\.weight", r".*_proj\.bias|.*\.dense\.bias", r".*\.[qk]_norm\.weight"
EMBEDDING = r".*embed_tokens\.weight"
ABSENT = "absent"  # of a key
VISION = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "out_hidden_size": 16,
          "num_position_embeddings": 4}


@dataclass
class Case:
    name: str
    model: str  # class whose weights are taken
    changes: dict = field(default_factory=dict)  # of its config.json; ABSENT takes a key out
    other: str = ""  # pattern of the tensors that are no part of the class by itself, but are in the file
    without: str = ""  # pattern of the tensors that are not in the file
    outer: dict = field(default_factory=dict)  # not empty: the text part of a multimodal model, which has these keys


def rope(**fields) -> dict:
    return {"rope_type": "default", **fields}


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
SHORT, LONG = [1.0, 1.1, 1.2, 1.3], [1.5, 3.0, 6.0, 12.0]


def cases() -> list[Case]:
    found = [Case("plain", name) for name in CLASSES]
    # ---- the class
    for name in CLASSES:
        found += [Case(f"architectures {json.dumps(value)}", name, {"architectures": value})
                  for value in (None, ABSENT)]
    found.append(Case("architectures []", "LlamaForCausalLM", {"architectures": []}))
    # ---- tensors that the class has only when the configuration says so
    for name in CLASSES:
        if name != "PhiForCausalLM":
            found.append(Case("biases that are not asked for", name, {}, BIAS))
            found.append(Case("attention_bias false", name, {"attention_bias": False}, BIAS))
            if not name.startswith("Qwen3_5"):  # which the engine refuses
                found.append(Case("attention_bias true", name, {"attention_bias": True}, BIAS))
    found += [
        Case("mlp_bias true", "LlamaForCausalLM", {"mlp_bias": True}, BIAS),
        Case("attention_bias and mlp_bias true", "LlamaForCausalLM", {"mlp_bias": True, "attention_bias": True}, BIAS),
        Case("qkv_bias false", "Qwen2MoeForCausalLM", {"qkv_bias": False}),
        Case("qkv_bias true", "Qwen2MoeForCausalLM", {"qkv_bias": True}),
    ]
    found += [Case("norms of heads", name, {}, NORM) for name in CLASSES
              if name in ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen2MoeForCausalLM",
                          "MixtralForCausalLM", "PhiForCausalLM")]
    # ---- the LM head
    for name in CLASSES:
        found.append(Case("tied", name, {"tie_word_embeddings": True}, "", HEAD))
        found.append(Case("tied, with another head", name, {"tie_word_embeddings": True}))
        found.append(Case("tied, with a head only", name, {"tie_word_embeddings": True}, "", EMBEDDING))
    # ---- rotation
    for name in CLASSES:
        if name == "Phi3ForCausalLM":
            continue
        found += [
            Case("rope_scaling in place of rope_parameters", name,
                 {"rope_parameters": rope(rope_theta=77.0), "rope_scaling": {"type": "linear", "factor": 3.0}}),
            Case("rope_scaling and rope_theta in place of rope_parameters", name,
                 {"rope_parameters": rope(rope_theta=77.0), "rope_scaling": {"type": "linear", "factor": 3.0},
                  "rope_theta": 99.0}),
            Case("rope_scaling with rope_theta", name,
                 {"rope_scaling": {"rope_type": "linear", "factor": 3.0, "rope_theta": 55.0}, "rope_theta": 99.0}),
            Case("rope_scaling {}", name, {"rope_parameters": rope(rope_theta=77.0), "rope_scaling": {}}),
            Case("rope_parameters and rope_theta", name, {"rope_parameters": rope(rope_theta=77.0), "rope_theta": 9.0}),
            Case("rope_parameters without rope_theta", name, {"rope_parameters": rope(), "rope_theta": 9.0}),
            Case("rope_theta", name, {"rope_theta": 9.0}),
        ]
    for name in ("LlamaForCausalLM", "Qwen2ForCausalLM", "MixtralForCausalLM", "Qwen3_5ForCausalLM"):
        found += [
            Case("yarn", name, {"rope_theta": 100.0, "rope_scaling": YARN}),
            Case("yarn, truncate false", name, {"rope_theta": 100.0, "rope_scaling": {**YARN, "truncate": False}}),
            Case("yarn, old length at the top", name,
                 {"rope_theta": 100.0, "rope_scaling": YARN, "original_max_position_embeddings": 32}),
            Case("yarn, no old length", name,
                 {"rope_theta": 100.0, "rope_scaling": {"type": "yarn", "factor": 4.0}}),
            Case("yarn, mscale", name,
                 {"rope_theta": 100.0, "rope_scaling": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.3}}),
            Case("yarn, one mscale", name, {"rope_theta": 100.0, "rope_scaling": {**YARN, "mscale": 0.7}}),
            Case("yarn, attention_factor", name,
                 {"rope_theta": 100.0, "rope_scaling": {**YARN, "attention_factor": 1.5, "mscale": 2.0,
                                                        "mscale_all_dim": 1.0}}),
            Case("yarn, betas", name,
                 {"rope_theta": 100.0, "rope_scaling": {**YARN, "beta_fast": 4, "beta_slow": 0.5}}),
            Case("yarn, factor null", name, {"rope_theta": 100.0, "rope_scaling": {**YARN, "factor": None}}),
            Case("llama3", name, {"rope_theta": 100.0, "rope_scaling": LLAMA3}),
            Case("llama3, old length at the top", name,
                 {"rope_theta": 100.0, "rope_scaling": LLAMA3, "original_max_position_embeddings": 32}),
            Case("dynamic", name, {"rope_theta": 100.0, "rope_scaling": {"type": "dynamic", "factor": 4.0}}),
            Case("linear", name, {"rope_theta": 100.0, "rope_scaling": {"type": "linear", "factor": 4.0,
                                                                        "attention_factor": 2.0}}),
            Case("type beside rope_type", name,
                 {"rope_scaling": {"type": "linear", "rope_type": "default", "factor": 4.0}}),
        ]
    longrope = {"type": "longrope", "short_factor": SHORT, "long_factor": LONG}
    found += [
        Case(f"longrope, {what}", "Phi3ForCausalLM", {"rope_theta": 100.0, "rope_scaling": longrope | fields, **top})
        for what, fields, top in (
            ("old length by default", {}, {}),
            ("old length at the top", {}, {"original_max_position_embeddings": 16}),
            ("old length in the rotation", {"original_max_position_embeddings": 16}, {}),
            ("old length in both", {"original_max_position_embeddings": 16}, {"original_max_position_embeddings": 32}),
            ("factor", {"factor": 9.0}, {"original_max_position_embeddings": 16}),
            ("attention_factor", {"attention_factor": 1.7}, {"original_max_position_embeddings": 16}),
            ("su", {"type": "su"}, {"original_max_position_embeddings": 16}),
            ("yarn", {"type": "yarn"}, {"original_max_position_embeddings": 16}),
            ("rope_parameters", {}, {"original_max_position_embeddings": 16, "rope_scaling": None,
                                     "rope_parameters": longrope | {"rope_theta": 50.0}}),
            ("both", {}, {"original_max_position_embeddings": 16, "rope_parameters": rope(rope_theta=50.0)}),
        )]
    found += [
        Case("rope_theta", "Phi3ForCausalLM", {"rope_theta": 9.0}),
        Case("rope_parameters and rope_theta", "Phi3ForCausalLM",
             {"rope_parameters": rope(rope_theta=77.0), "rope_theta": 9.0}),
        Case("partial_rotary_factor", "Phi3ForCausalLM", {"partial_rotary_factor": 0.5}),
        Case("partial_rotary_factor in both", "Phi3ForCausalLM",
             {"partial_rotary_factor": 0.5, "rope_parameters": rope(rope_theta=77.0, partial_rotary_factor=0.75)}),
    ]
    found += [
        Case(f"partial_rotary_factor {what}", name, top)
        for name in ("PhiForCausalLM", "Qwen3_5ForCausalLM") for what, top in (
            ("at the top", {"partial_rotary_factor": 0.75}),
            ("in the rotation", {"rope_parameters": rope(rope_theta=77.0, partial_rotary_factor=0.75)}),
            ("in both", {"partial_rotary_factor": 1.0,
                         "rope_parameters": rope(rope_theta=77.0, partial_rotary_factor=0.75)}),
            ("lost with rope_parameters", {
                "rope_parameters": rope(rope_theta=77.0, partial_rotary_factor=0.75),
                "rope_scaling": {"type": "linear", "factor": 3.0}}))]
    # ---- sizes, null and left out
    found += [
        Case("head_dim null", "LlamaForCausalLM", {"head_dim": None}),
        Case("head_dim null", "MistralForCausalLM", {"head_dim": None}),
        Case("eps", "LlamaForCausalLM", {"rms_norm_eps": 0.5}),
        Case("eps", "PhiForCausalLM", {"layer_norm_eps": 0.5}),
        Case("eps", "Phi3ForCausalLM", {"rms_norm_eps": 0.5}),
        Case("eps", "Qwen3_5ForCausalLM", {"rms_norm_eps": 0.5}),
    ]
    # ---- experts
    found += [
        Case("num_experts", "MixtralForCausalLM", {"num_local_experts": ABSENT, "num_experts": 4}),
        Case("num_local_experts", "Qwen3MoeForCausalLM", {"num_experts": ABSENT, "num_local_experts": 4}),
        Case("num_local_experts as well", "Qwen2MoeForCausalLM", {"num_local_experts": 3}),
        Case("norm_topk_prob", "Qwen2MoeForCausalLM", {"norm_topk_prob": True}),
        Case("norm_topk_prob", "Qwen3MoeForCausalLM", {"norm_topk_prob": True}),
        Case("norm_topk_prob", "MixtralForCausalLM", {"norm_topk_prob": False}),
        Case("norm_topk_prob", "Qwen3_5MoeForCausalLM", {"norm_topk_prob": False}),
        Case("num_experts_per_tok", "MixtralForCausalLM", {"num_experts_per_tok": 1}),
    ]
    # ---- windows
    window = {"sliding_window": 5}
    use = window | {"use_sliding_window": True}
    found += [Case("sliding_window", name, window) for name in CLASSES]
    found += [Case("use_sliding_window", name, use) for name in CLASSES]
    found += [
        Case("max_window_layers", name, use | {"max_window_layers": 1})
        for name in ("Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM")]
    found += [
        Case("layer_types", name, use | {"layer_types": ["sliding_attention", "full_attention"]})
        for name in ("Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM")]
    found += [
        Case("sliding_window null", "MistralForCausalLM", {"sliding_window": None}),
        Case("layer_types", "Qwen3_5ForCausalLM", {"layer_types": ["linear_attention"] * 3 + ["full_attention"]}),
        Case("full_attention_interval", "Qwen3_5ForCausalLM", {"full_attention_interval": 4}),
    ]
    # ---- the text part of a multimodal model
    for name in ("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"):
        for tied in (True, False):
            for outer in (True, False, None):
                changes = {"tie_word_embeddings": tied}
                top = {"torch_dtype": "float32"} | ({} if outer is None else {"tie_word_embeddings": outer})
                found.append(Case(f"multimodal, text {tied}, all {outer}", name, changes, "", "", top))
        found += [
            Case("multimodal, tied in all", name, {}, "", HEAD, {"tie_word_embeddings": True}),
            Case("multimodal, rotation of all", name, {}, "", "", {"rope_theta": 9.0, "partial_rotary_factor": 1.0}),
            Case("multimodal, rope_scaling of all", name, {"rope_theta": 100.0}, "", "",
                 {"rope_scaling": {"type": "linear", "factor": 3.0}, "rms_norm_eps": 0.5}),
            Case("multimodal, biases of all", name, {}, BIAS, "", {"attention_bias": True}),
            Case("multimodal, architectures null", name, {}, "", "", {"architectures": None}),
            Case("multimodal, rope_scaling", name,
                 {"rope_parameters": rope(rope_theta=77.0), "rope_scaling": {"type": "linear", "factor": 3.0}}, "", "",
                 {"torch_dtype": "float32"}),
        ]
    return found


def config_of(case: Case) -> dict:
    values = {"architectures": [case.model], **CLASSES[case.model]}
    values = {key: value for key, value in (values | case.changes).items() if value != ABSENT}
    if not case.outer:
        return values
    inner = {key: value for key, value in values.items() if key != "architectures"}
    kind = inner["model_type"].removesuffix("_text")
    return {"model_type": kind, "architectures": [case.model.replace("CausalLM", "ConditionalGeneration")],
            "text_config": inner, "vision_config": VISION, **case.outer}


def weights(name: str, seed: int) -> dict[str, torch.Tensor]:
    """The class's own tensors and those that others of its kind have, as files name them, in F16."""
    values = {"architectures": [name], **CLASSES[name]}
    config = transformers.AutoConfig.for_model(**values)
    net = reference.build(config)
    reference.draw_weights(net, seed)
    with tempfile.TemporaryDirectory() as folder:
        net.half().save_pretrained(folder)
        stored = load_file(Path(folder) / "model.safetensors")
    rng = np.random.default_rng(seed + 500)

    def draw(*shape: int, scale: float = 1.0, middle: float = 0.0) -> torch.Tensor:
        return torch.from_numpy(middle + scale * rng.standard_normal(shape)).half()

    for key in sorted(stored):
        stem, _, last = key.rpartition(".")
        if (last == "weight" and re.search(r"_proj$", stem) and "experts" not in stem and "linear_attn" not in stem
                and f"{stem}.bias" not in stored):
            stored[f"{stem}.bias"] = draw(stored[key].shape[0], scale=0.5)
        if stem.endswith("self_attn.q_proj"):
            for part in ("q_norm", "k_norm"):
                if f"{stem[:-6]}{part}.weight" not in stored:
                    head_dim = stored[key].shape[0] // config.num_attention_heads
                    stored[f"{stem[:-6]}{part}.weight"] = draw(head_dim, scale=0.2, middle=1.0)
    return {key: value.contiguous() for key, value in stored.items()}


def own(name: str) -> set[str]:
    """What the class has whatever the configuration says, as files name it."""
    config = transformers.AutoConfig.for_model(**{"architectures": [name], **CLASSES[name]})
    with tempfile.TemporaryDirectory() as folder:
        reference.build(config).half().save_pretrained(folder)
        return set(load_file(Path(folder) / "model.safetensors"))


def run(case: Case, stored: dict[str, torch.Tensor], names: list[str]) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config_of(case)))
        prefix = "model.language_model." if case.outer else "model."
        save_file({re.sub(r"^model\.", prefix, key): stored[key] for key in names}, Path(folder) / "model.safetensors",
                  metadata={"format": "pt"})
        kind = transformers.AutoModelForImageTextToText if case.outer else transformers.AutoModelForCausalLM
        net = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                   experts_implementation="eager").eval()
        return reference.logits(net, np.arange(N_TOKENS))[STEP - 1::STEP]


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    OUT.mkdir(parents=True, exist_ok=True)
    all_weights, all_own = {}, {}
    for number, name in enumerate(CLASSES):
        all_weights[name], all_own[name] = weights(name, SEED + number), own(name)
        save_file(all_weights[name], OUT / f"{name}.safetensors")
    described: list[dict] = []
    arrays: dict[str, np.ndarray] = {}
    for case in cases():
        names = [key for key in all_weights[case.model]
                 if (key in all_own[case.model] or (case.other and re.fullmatch(case.other, key)))
                 and not (case.without and re.fullmatch(case.without, key))]
        try:
            logits = run(case, all_weights[case.model], names)
        except Exception as error:
            print(f"{case.model}, {case.name}: {type(error).__name__}: {str(error)[:200]}")
            continue
        arrays[str(len(described))] = logits
        described.append({"name": f"{case.model}: {case.name}", "weights": case.model, "config": config_of(case),
                          "without": sorted(set(all_weights[case.model]) - set(names))})
    (OUT / "cases.json").write_text('{"cases": [\n' + ",\n".join(map(json.dumps, described)) + "\n]}\n")
    np.savez_compressed(OUT / "logits.npz", **arrays)
    made = manifest.provenance(__file__, SEED, ("torch", "transformers", "safetensors", "numpy"))
    manifest.update(OUT, {"logits": made}, ["logits"])
    print(f"{len(described)} cases")
