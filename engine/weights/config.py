"""A model's config.json, read the same way whichever version of `transformers` wrote it. Torch-free."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.errors import WeightsError


def read_config(path: Path, fix: str = "Copy the model directory again from its source.") -> dict[str, Any]:
    """The parsed config.json. Raises WeightsError with `fix` when it is missing or not a JSON object."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise WeightsError(f"{path} is missing.", "A model directory needs its config.json.") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is not JSON ({error}).", fix) from error
    if not isinstance(data, dict):
        raise WeightsError(f"{path} is not a JSON object.", fix)
    return data


def is_plain(name: str) -> bool:
    """Whether `name` is that of a file in the folder itself, and leads nowhere else."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The text model's part of a multimodal config, or the config itself."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def architecture(config: dict[str, Any]) -> str:
    """Name of the file in engine/models that knows this model: `model_type` without a `_text` suffix."""
    model_type = text_config(config).get("model_type") or config.get("model_type") or ""
    return str(model_type).removesuffix("_text")


def rope_parameters(config: dict[str, Any]) -> dict[str, Any]:
    """{rope_type, rope_theta, partial_rotary_factor, …}: newer configs keep all of it in `rope_parameters`, older ones spread
    it over `rope_theta`, `partial_rotary_factor` and `rope_scaling` (whose kind may be called `type`)."""
    found = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    if "type" in found:
        found.setdefault("rope_type", found.pop("type"))
    found.setdefault("rope_type", "default")
    found.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    found.setdefault("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    return found


def head_dim(config: dict[str, Any]) -> int:
    """Values per attention head: `head_dim`, else hidden_size / heads."""
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
