"""llama.cpp's tensor names and rearrangements, undone: where each Hugging Face tensor lies in a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from engine.errors import Unsupported
from engine.weights.quantised import Matrix, Quantised, pick, pick_inputs

Fix = Callable[[Matrix], Matrix]
Config = Mapping[str, Any]

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LINEAR = {
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
}
_SHARED = {
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
_QWEN_EXPERTS = {"gate": "mlp.experts.{}.gate_proj", "up": "mlp.experts.{}.up_proj", "down": "mlp.experts.{}.down_proj"}
_MIXTRAL_EXPERTS = {
    part: f"block_sparse_moe.experts.{{}}.{w}" for part, w in (("gate", "w1"), ("up", "w3"), ("down", "w2"))
}
ROPE_FACTORS = "rope_freqs.weight"
_SCALES = (".scale", ".input_scale")  # beside NVFP4 matrices, the second of activations


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor of the file, or one expert of a stack, and what to do with it."""

    tensor: str
    expert: int = -1
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """How one of llama.cpp's architectures names things: `parts` besides the common ones, the router, the experts, and the
    rearrangements of tensors by the ends of their Hugging Face names."""

    parts: Mapping[str, str]
    router: str = ""
    experts: Mapping[str, str] | None = None
    fixes: Callable[[Config], Mapping[str, Fix]] = lambda config: {}


def places(names: Iterable[str], layout: Layout, config: Config) -> dict[str, Place]:
    """Hugging Face name -> place. Raises Unsupported for a tensor of an unknown kind."""
    found: dict[str, Place] = {}
    fixes = layout.fixes(config)
    for name in names:
        if name == ROPE_FACTORS or name.endswith(_SCALES):
            continue
        for hf_name, place in _places(name, layout, config):
            fix = next((fix for end, fix in fixes.items() if hf_name.endswith(end)), place.fix)
            found[hf_name] = Place(place.tensor, place.expert, fix)
    return found


def _places(name: str, layout: Layout, config: Config) -> Iterable[tuple[str, Place]]:
    part, _, suffix = name.removeprefix("blk.").rpartition(".")
    if part in _TOP:
        return [(f"{_TOP[part]}.{suffix}", Place(name))]
    block, _, part = part.partition(".") if name.startswith("blk.") else ("", "", part)
    source = f"model.layers.{block}"
    if block.isdecimal() and int(block) >= config["num_hidden_layers"]:
        return [(f"mtp.{block}.{part}.{suffix}", Place(name))]  # a draft layer behind the model
    if not part and suffix == "ssm_a":
        return [(f"{source}.linear_attn.A_log", Place(name))]
    stack = part.removeprefix("ffn_").removesuffix("_exps")
    if layout.experts and part.endswith("_exps"):
        count = config["num_experts"] if "num_experts" in config else config["num_local_experts"]
        halves: dict[str, Fix | None] = (
            {"gate": _first_half, "up": _second_half} if stack == "gate_up" else {stack: None}
        )
        return [
            (f"{source}.{layout.experts[each].format(e)}.{suffix}", Place(name, e, fix))
            for each, fix in halves.items()
            for e in range(count)
        ]
    if part == "ffn_gate_inp" and layout.router:
        return [(f"{source}.{layout.router}.{suffix}", Place(name))]
    if (known := {**_LAYER, **layout.parts}.get(part)) is None:
        raise Unsupported(f"The GGUF tensor {name!r} is of no known kind.", "Import the safetensors directory instead.")
    if known.endswith(("sinks", "dt_bias")):
        return [(f"{source}.{known}", Place(name))]
    if part == "ssm_ba":
        return [(f"{source}.linear_attn.in_proj_{half}.weight", Place(name)) for half in "ba"]
    return [(f"{source}.{known}.{suffix}", Place(name))]


def unpermute(weight: Matrix, heads: int) -> Matrix:
    """Undo llama.cpp's reordering of q and k rows [heads * head_dim, hidden]: it interleaves the two halves of each head,
    because its rotation pairs neighbours; ours, like the original, pairs halves."""
    return pick(weight, np.arange(weight.shape[0]).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1))


def _llama(config: Config) -> dict[str, Fix]:
    fixes: dict[str, Fix] = {}
    for part, heads in (("q", config["num_attention_heads"]), ("k", config["num_key_value_heads"])):
        for suffix in ("weight", "bias"):
            fixes[f"self_attn.{part}_proj.{suffix}"] = partial(unpermute, heads=heads)
    return fixes


def _hybrid(config: Config, tiled: bool) -> dict[str, Fix]:
    """Norms hold 1 + w, decays -exp(A_log), convolutions lack a dimension; and where value heads outnumber key heads they may be
    `tiled`: all first ones of the key heads, then all second ones, instead of all of the first key head."""
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    size, first = config["linear_value_head_dim"], 2 * keys * config["linear_key_head_dim"]
    order = np.arange(values)
    if tiled:
        order = order.reshape(values // keys, keys).T.reshape(-1)
    wide = (order[:, None] * size + np.arange(size)).reshape(-1)
    channels = np.concatenate([np.arange(first), first + wide])
    pairs = np.arange(2 * values).reshape(keys, 2, values // keys)
    fixes: dict[str, Fix] = {
        "linear_attn.in_proj_qkv.weight": lambda m: pick(m, channels),
        "linear_attn.in_proj_z.weight": lambda m: pick(m, wide),
        "linear_attn.in_proj_b.weight": lambda m: pick(m, order if tiled else pairs[:, 0].reshape(-1)),
        "linear_attn.in_proj_a.weight": lambda m: pick(m, order if tiled else pairs[:, 1].reshape(-1)),
        "linear_attn.out_proj.weight": lambda m: pick_inputs(m, wide),
        "linear_attn.conv1d.weight": lambda m: pick(m.float(), channels).float()[:, None],
        "linear_attn.A_log": lambda m: pick(m.float().neg().log(), order),
        "linear_attn.dt_bias": lambda m: pick(m, order),
        "linear_attn.norm.weight": lambda m: m,
        "norm.weight": _minus_one,
        "shared_expert_gate.weight": _one_row,
    }
    return fixes


def _first_half(matrix: Matrix) -> Matrix:
    return pick(matrix, np.arange(matrix.shape[0] // 2))


def _second_half(matrix: Matrix) -> Matrix:
    return pick(matrix, np.arange(matrix.shape[0] // 2, matrix.shape[0]))


def _minus_one(matrix: Matrix) -> Matrix:
    return matrix.float() - 1.0


def _one_row(matrix: Matrix) -> Matrix:
    return matrix if isinstance(matrix, Quantised) or matrix.ndim == 2 else matrix[None]


_HYBRID_PARTS = {**_LINEAR, **_SHARED, "ssm_dt": "linear_attn.dt_bias"}
LAYOUTS = {
    "llama": Layout({}, fixes=_llama),
    "mixtral": Layout({}, "block_sparse_moe.gate", _MIXTRAL_EXPERTS, _llama),
    "qwen3moe": Layout({}, "mlp.gate", _QWEN_EXPERTS),
    "gpt-oss": Layout({"attn_sinks": "self_attn.sinks"}, "mlp.router", _QWEN_EXPERTS),
    "qwen35moe": Layout(_HYBRID_PARTS, "mlp.gate", _QWEN_EXPERTS, lambda config: _hybrid(config, tiled=True)),
    "qwen3next": Layout(
        {**_HYBRID_PARTS, "ssm_ba": "linear_attn.in_proj_ba"},
        "mlp.gate",
        _QWEN_EXPERTS,
        lambda config: _hybrid(config, tiled=False),
    ),
}
