"""Small models for the weight tests: written in a moment, damaged at will."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.memory.geometry import Geometry
from engine.weights.writer import Expert, FtwWriter, staged

HIDDEN, WIDTH, EXPERTS = 64, 32, 3


def small_tensors() -> dict[str, tuple[torch.Tensor, str]]:
    random = torch.Generator().manual_seed(1)
    return {
        "embedding": (torch.randn(50, HIDDEN, generator=random), "bf16"),
        "norm": (torch.randn(HIDDEN, generator=random), ""),
        "router": (torch.randn(EXPERTS, HIDDEN, generator=random), "f32"),
        "out": (torch.randn(HIDDEN, 40, generator=random), "q8_0"),  # neither side a multiple of its group
        "conv": (torch.randn(5, 4, generator=random), ""),
    }


def small_experts(layer: int) -> list[Expert]:
    random = torch.Generator().manual_seed(100 + layer)
    return [
        Expert(torch.randn(2 * WIDTH, HIDDEN, generator=random), torch.randn(HIDDEN, WIDTH, generator=random))
        for _ in range(EXPERTS)
    ]


def write_small(models_dir: Path, name: str = "small", format: str = "q8_0") -> Path:
    from engine.weights.convert import packing_ops

    geometry = Geometry(
        vocab_size=50,
        hidden_size=HIDDEN,
        layers=3,
        attention_layers=3,
        kv_heads=1,
        head_dim=16,
        state_layer_bytes=(),
        moe_layers=2,
        experts=EXPERTS,
        top_k=2,
        expert_width=WIDTH,
        expert_bytes=0,
        bank_bytes=0,
        dense_bytes=0,
        max_window_tokens=128,
    )
    facts: dict[str, Any] = {"arch": "mixtral", "created_by": "test", "kv_dtype": "f32", "eos_token_ids": (2,)}
    facts |= {"dialect": "hermes", "thinking": False, "quality": "", "window_tokens": 128}
    with staged(models_dir, name) as folder, FtwWriter(folder, packing_ops()) as writer:
        for tensor_name, (tensor, tensor_format) in small_tensors().items():
            writer.dense(tensor_name, tensor, tensor_format)
        for layer in (1, 2):
            writer.bank(layer, small_experts(layer), format)
        for file, text in (("config.json", "{}"), ("tokenizer.json", "{}"), ("chat_template.jinja", "")):
            writer.text(file, text)
        writer.finish(geometry, name=name, **facts)
    return models_dir / name


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_small(tmp_path)


@pytest.fixture(scope="session")
def toy() -> SimpleNamespace:
    """What `small` is made of, and how to write another one."""
    return SimpleNamespace(
        hidden=HIDDEN, width=WIDTH, experts=EXPERTS, tensors=small_tensors, layer=small_experts, write=write_small
    )
