"""Whether the numbers of a model's configuration can be those of a model, before anything is built from them. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.errors import WeightsError
from engine.weights.config import architecture, rope_parameters, text_config

File = Path | str
Spell = Callable[[str], str]  # a key of config.json -> what the file calls it
HINT = "Get the file again from its source."

_WIDTH, _HEADS, _TOKENS = 1 << 20, 1 << 14, (1 << 31) - 1
_COUNTS = {
    "hidden_size": _WIDTH,
    "intermediate_size": _WIDTH,
    "moe_intermediate_size": _WIDTH,
    "shared_expert_intermediate_size": _WIDTH,
    "num_hidden_layers": 1 << 12,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": _HEADS,
    "head_dim": _HEADS,
    "linear_num_key_heads": _HEADS,
    "linear_num_value_heads": _HEADS,
    "linear_key_head_dim": _HEADS,
    "linear_value_head_dim": _HEADS,
    "linear_conv_kernel_dim": 1 << 10,
    "num_experts": 1 << 14,
    "num_local_experts": 1 << 14,
    "num_experts_per_tok": 1 << 14,
    "full_attention_interval": 1 << 12,
    "decoder_sparse_step": 1 << 12,
    "vocab_size": 1 << 26,
    "max_position_embeddings": _TOKENS,
    "sliding_window": _TOKENS,
}
_ROPE = (
    "rope_theta",
    "factor",
    "partial_rotary_factor",
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "low_freq_factor",
    "high_freq_factor",
)
_POSITIVE = ("rms_norm_eps", *_ROPE)
_LISTS: dict[str, type] = {"layer_types": str, "mlp_only_layers": int}
_COMMON = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "max_position_embeddings")
_ROUTED = ("num_experts_per_tok",)
_LINEAR = tuple(key for key in _COUNTS if key.startswith("linear_"))
_NEEDED = {
    "llama": ("intermediate_size",),
    "mixtral": (*_ROUTED, "intermediate_size"),
    "gpt_oss": (*_ROUTED, "intermediate_size"),
    "qwen3_moe": (*_ROUTED, "moe_intermediate_size"),
    "qwen3_5_moe": (*_ROUTED, "moe_intermediate_size", "shared_expert_intermediate_size", *_LINEAR),
}


def check_value(file: File, key: str, value: Any, name: str = "") -> None:
    """Raises WeightsError when `value`, called `name` in `file`, cannot be what config.json means by `key`."""
    if (most := _COUNTS.get(key)) is not None and not (type(value) is int and 0 < value <= most):
        raise _wrong(file, name or key, value, f"a whole number from 1 to {most}")
    if key in _POSITIVE and not (type(value) in (int, float) and 0 < value < math.inf):
        raise _wrong(file, name or key, value, "a number above 0")


def check_config(config: dict[str, Any], file: File = "config.json", spell: Spell = str) -> None:
    """Raises WeightsError naming `file`, the key and the value when one is missing, of the wrong type, out of all bounds, or
    contradicts another."""
    text = text_config(config)
    for key in (*_COMMON, *_NEEDED.get(architecture(config), ())):
        if text.get(key) is None:
            raise WeightsError(f"{file} lacks {spell(key)}.", HINT)
    routed = "num_experts_per_tok" in _NEEDED.get(architecture(config), ())
    usual, other = ("num_experts", "num_local_experts")[:: 1 if architecture(config).startswith("qwen") else -1]
    experts = other if text.get(usual) is None and text.get(other) is not None else usual
    if routed and text.get(experts) is None:
        raise WeightsError(f"{file} lacks {spell(experts)}.", HINT)
    for key in (*_COUNTS, *_POSITIVE):
        # A dense model may say that it has no experts.
        if (value := text.get(key)) is not None and (routed or "expert" not in key):
            check_value(file, key, value, spell(key))
    for key in ("rope_parameters", "rope_scaling"):
        if not isinstance(text.get(key) or {}, dict):
            raise _wrong(file, spell(key), text[key], "an object")
    rope = rope_parameters(text)
    for key in _ROPE:
        if (value := rope.get(key)) is not None:
            check_value(file, key, value, spell(key))
    if rope["partial_rotary_factor"] > 1:
        raise _wrong(file, spell("partial_rotary_factor"), rope["partial_rotary_factor"], "a share of a head")
    for key, kind in _LISTS.items():
        value = text.get(key) or []
        if not isinstance(value, list) or any(type(item) is not kind for item in value):
            raise _wrong(file, spell(key), value, f"a list of {kind.__name__}")
    if (kinds := text.get("layer_types")) and len(kinds) != text["num_hidden_layers"]:
        raise _against(file, spell, "num_hidden_layers", text, f"layer_types has {len(kinds)}")
    _relations(text, file, spell, experts if routed else "")


def _relations(text: dict[str, Any], file: File, spell: Spell, experts: str) -> None:
    heads, hidden = text["num_attention_heads"], text["hidden_size"]
    if text.get("num_key_value_heads") and heads % text["num_key_value_heads"]:
        raise _against(file, spell, "num_key_value_heads", text, f"{spell('num_attention_heads')} is {heads}")
    if not text.get("head_dim") and hidden % heads:
        raise _against(file, spell, "num_attention_heads", text, f"{spell('hidden_size')} is {hidden}")
    if experts and text["num_experts_per_tok"] > text[experts]:
        raise _against(file, spell, "num_experts_per_tok", text, f"{spell(experts)} is {text[experts]}")
    keys, values = text.get("linear_num_key_heads"), text.get("linear_num_value_heads")
    if keys and values and values % keys:
        raise _against(file, spell, "linear_num_value_heads", text, f"{spell('linear_num_key_heads')} is {keys}")


def _against(file: File, spell: Spell, key: str, text: dict[str, Any], other: str) -> WeightsError:
    return WeightsError(f"{file}: {spell(key)} is {text[key]}, but {other}.", HINT)


def _wrong(file: File, name: str, value: Any, expected: str) -> WeightsError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
    return WeightsError(f"{file}: {name} is {shown}, which is not {expected}.", HINT)
