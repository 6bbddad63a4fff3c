"""The Hugging Face configuration that a GGUF file's metadata stands for."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from engine.errors import WeightsError
from engine.weights.plausible import File, check_value


def layout_of(metadata: dict[str, Any]) -> str:
    """llama.cpp's name of the architecture; Mixtral, which it calls llama, by its own."""
    kind = str(metadata.get("general.architecture"))
    return "mixtral" if kind == "llama" and metadata.get("llama.expert_count") else kind


def config_of(
    metadata: dict[str, Any], names: Collection[str], rope_factors: list[float] | None, file: File
) -> dict[str, Any]:
    """`names` are the tensors of `file`, `rope_factors` the divisors of the rotary frequencies if it has some. Raises WeightsError
    for metadata that is missing or out of all bounds."""
    kind = layout_of(metadata)
    read = _Reader(metadata, str(metadata["general.architecture"]), file)
    config = {**_common(read, names), **_OWN[kind](read, names)}
    if "full_attention_interval" in config:
        full = [f"blk.{layer}.attn_q.weight" in names for layer in range(config["num_hidden_layers"])]
        config["layer_types"] = ["full_attention" if is_full else "linear_attention" for is_full in full]
    config["rope_parameters"] = {**_rope(read), **config.get("rope_parameters", {})}
    if rope_factors is not None:
        config["rope_parameters"] |= {"rope_type": "divided", "factors": rope_factors}
    return config


class _Reader:
    """Values under an architecture's prefix; floats as the decimals that were meant, because metadata floats are 32 bits wide and
    1e-5 reads as 9.999999747378752e-06."""

    def __init__(self, metadata: dict[str, Any], prefix: str, file: File) -> None:
        self.metadata, self._prefix, self.file = metadata, prefix, file

    def __call__(self, key: str, *default: Any) -> Any:
        name = f"{self._prefix}.{key}"
        if name not in self.metadata:
            if default:
                return default[0]
            raise WeightsError(f"{self.file} lacks the metadata key {name!r}.", "Get the file again.")
        value = self.metadata[name]
        if isinstance(value, float):
            value = float(str(np.float32(value)))
        if meaning := _MEANINGS.get(key):
            # Lists have a number for every layer, zero where there is no such thing.
            for number in [max(value, default=0)] if _is_counts(value) else [value]:
                check_value(self.file, meaning, number, name)
        elif key in _NUMBERS and type(value) not in (int, float):
            raise WeightsError(f"{self.file}: {name} is {value!r}, which is not a number.", "Get the file again.")
        return value


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int for number in value)


def _common(read: _Reader, names: Collection[str]) -> dict[str, Any]:
    heads, hidden, meta = read("attention.head_count"), read("embedding_length"), read.metadata
    kv_heads = read("attention.head_count_kv", heads)
    return {
        "hidden_act": "silu",
        "hidden_size": hidden,
        "num_hidden_layers": read("block_count") - read("nextn_predict_layers", 0),
        "num_attention_heads": heads,
        "num_key_value_heads": max(kv_heads) if isinstance(kv_heads, list) else kv_heads,  # zeros for linear layers
        "head_dim": read("attention.key_length", hidden // heads),
        "attention_bias": any(name.endswith(".attn_q.bias") for name in names),
        "max_position_embeddings": read("context_length"),
        "rms_norm_eps": read("attention.layer_norm_rms_epsilon"),
        "vocab_size": len(_tokens(read)),
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": meta.get("tokenizer.ggml.eos_token_id"),
        "tie_word_embeddings": "output.weight" not in names,
    }


def _tokens(read: _Reader) -> list[Any]:
    tokens = read.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list):
        raise WeightsError(f"{read.file} lacks the metadata key 'tokenizer.ggml.tokens'.", "Get the file again.")
    return tokens


def _rope(read: _Reader) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": read("rope.freq_base", 10000.0)}
    if read("rope.scaling.type", "none") == "yarn":
        rope |= {
            "rope_type": "yarn",
            "factor": read("rope.scaling.factor"),
            "original_max_position_embeddings": read("rope.scaling.original_context_length"),
            "beta_fast": read("rope.scaling.yarn_beta_fast", 32.0),
            "beta_slow": read("rope.scaling.yarn_beta_slow", 1.0),
        }
    return rope


def _llama(read: _Reader, names: Collection[str]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "intermediate_size": read("feed_forward_length"),
        "mlp_bias": "blk.0.ffn_gate.bias" in names,
    }


def _mixtral(read: _Reader, names: Collection[str]) -> dict[str, Any]:
    return {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "intermediate_size": read("expert_feed_forward_length", read("feed_forward_length", 0)),
        "num_local_experts": read("expert_count"),
        "num_experts_per_tok": read("expert_used_count"),
        "sliding_window": read("attention.sliding_window", None),
    }


def _qwen3_moe(read: _Reader, names: Collection[str]) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "moe_intermediate_size": read("expert_feed_forward_length"),
        "num_experts": read("expert_count"),
        "num_experts_per_tok": read("expert_used_count"),
        "norm_topk_prob": read("expert_weights_norm", True),
    }


def _gpt_oss(read: _Reader, names: Collection[str]) -> dict[str, Any]:
    return {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "intermediate_size": read("expert_feed_forward_length"),
        "num_local_experts": read("expert_count"),
        "num_experts_per_tok": read("expert_used_count"),
        "sliding_window": read("attention.sliding_window"),
        "rope_parameters": {"truncate": False},  # the file does not say that the ramp keeps its fractional ends
    }


def _hybrid(read: _Reader, names: Collection[str]) -> dict[str, Any]:
    value_heads, head_dim = read("ssm.time_step_rank"), read("attention.key_length")
    return {
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_moe_text",
        "full_attention_interval": read("full_attention_interval", 4),
        "linear_conv_kernel_dim": read("ssm.conv_kernel"),
        "linear_key_head_dim": read("ssm.state_size"),
        "linear_num_key_heads": read("ssm.group_count"),
        "linear_num_value_heads": value_heads,
        "linear_value_head_dim": read("ssm.inner_size") // value_heads,
        "moe_intermediate_size": read("expert_feed_forward_length"),
        "shared_expert_intermediate_size": read("expert_shared_feed_forward_length"),
        "num_experts": read("expert_count"),
        "num_experts_per_tok": read("expert_used_count"),
        "rope_parameters": {"partial_rotary_factor": read("rope.dimension_count") / head_dim},
    }


_MEANINGS = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "context_length": "max_position_embeddings",
    "feed_forward_length": "intermediate_size",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "full_attention_interval": "full_attention_interval",
    "ssm.conv_kernel": "linear_conv_kernel_dim",
    "ssm.state_size": "linear_key_head_dim",
    "ssm.group_count": "linear_num_key_heads",
    "ssm.time_step_rank": "linear_num_value_heads",
    "ssm.inner_size": "hidden_size",
    "rope.dimension_count": "head_dim",
    "rope.scaling.original_context_length": "max_position_embeddings",
}
_NUMBERS = ("nextn_predict_layers", "rope.scaling.factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow")
_SPELLED = {meaning: key for key, meaning in reversed(_MEANINGS.items())} | {
    "num_local_experts": "expert_count",
    "linear_value_head_dim": "ssm.inner_size",
}


def spelled(metadata: dict[str, Any], key: str) -> str:
    """What the file calls a key of config.json."""
    prefix = metadata["general.architecture"]
    if key == "intermediate_size" and f"{prefix}.expert_feed_forward_length" in metadata:
        return f"{prefix}.expert_feed_forward_length"
    if key == "vocab_size":
        return "the length of tokenizer.ggml.tokens"
    return f"{prefix}.{_SPELLED[key]}" if key in _SPELLED else key


_OWN = {
    "llama": _llama,
    "mixtral": _mixtral,
    "qwen3moe": _qwen3_moe,
    "gpt-oss": _gpt_oss,
    "qwen35moe": _hybrid,
    "qwen3next": _hybrid,  # the same computation under older names
}
