"""Checkpoints that transformers saves, imported by the real command: every value arrives where the map says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models
from torch.nn.functional import linear

from engine.errors import Unsupported, WeightsError
from engine.kernels.contract import ExpertShape, Packed, packed_bytes
from engine.weights.commands import main
from engine.weights.convert import build_dense, check_coverage, packing_ops, weight_map_of
from engine.weights.ftw import read_weights
from engine.weights.manifest import load_manifest
from engine.weights.rounding import RoundedSource
from engine.weights.safetensors import SafetensorsSource
from engine.weights.seeded import SeededHybrid, hybrid_shapes, tiny_hybrid_config

SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def _config(kind: str) -> Any:
    from transformers import LlamaConfig, MixtralConfig
    from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig

    if kind == "llama":
        return LlamaConfig(**SIZES, intermediate_size=96, max_position_embeddings=256, tie_word_embeddings=False)
    if kind == "mixtral":
        return MixtralConfig(
            **SIZES, intermediate_size=32, max_position_embeddings=256, num_local_experts=4, num_experts_per_tok=2
        )
    hybrid = tiny_hybrid_config(96, 2) | SIZES | {"layer_types": None}
    return Qwen3_5MoeTextConfig(**hybrid)


def _save(kind: str, directory: Path, dtype: torch.dtype = torch.float32, **save: Any) -> dict[str, torch.Tensor]:
    """A random checkpoint of the architecture, with a tokenizer and template. Returns transformers' own state."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(_config(kind)).to(dtype)
    model.save_pretrained(directory, **save)
    Tokenizer(models.WordLevel({f"w{i}": i for i in range(96)}, unk_token="w0")).save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}<think>"}))
    generation = {"eos_token_id": [2, 5], "do_sample": True, "temperature": 0.6, "top_k": 20}
    (directory / "generation_config.json").write_text(json.dumps(generation))
    return {name: tensor.float() for name, tensor in model.state_dict().items()}


def _fused(state: dict[str, torch.Tensor], layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    prefix = f"model.layers.{layer}.mlp.experts."
    return state[prefix + "gate_up_proj"], state[prefix + "down_proj"]


@pytest.mark.parametrize(
    ("kind", "save"),
    [("llama", {}), ("mixtral", {"max_shard_size": "100KB"}), ("qwen3_5_moe", {"max_shard_size": "200KB"})],
)
def test_imported_weights_are_the_saved_ones(tmp_path: Path, kind: str, save: dict[str, Any]) -> None:
    state = _save(kind, tmp_path / "hf", **save)
    models_dir = tmp_path / "models"
    command = ["import", str(tmp_path / "hf"), "--name", kind, "--models-dir", str(models_dir)]
    assert main([*command, "--format", "f32", "--dense-format", "f32"]) == 0
    manifest = load_manifest(models_dir / kind)
    assert (manifest.arch, manifest.eos_token_ids, manifest.thinking) == (kind, (2, 5), True)
    assert manifest.sampling_defaults == {"temperature": 0.6, "top_k": 20}
    weights, ops = read_weights(manifest), packing_ops()

    embedding = weights.dense["embedding"]
    assert isinstance(embedding, Packed)
    assert torch.equal(ops.unpack(embedding), state["model.embed_tokens.weight"])
    # every number of the checkpoint is somewhere in the model, and nothing else: the sums of magnitudes agree
    stored = sum(_plain(ops, tensor).abs().double().sum() for tensor in weights.dense.values())
    experts = 0.0
    for layer, bank in weights.banks.items():
        gate_up, down = _fused(state, layer)
        hidden, width = down.shape[1:]
        down_at = ExpertShape(hidden, width, "f32").down_offset
        for e, block in enumerate(bank):
            found = Packed(block[: packed_bytes(2 * width, hidden, "f32")], "f32", 2 * width, hidden)
            assert torch.equal(ops.unpack(found), gate_up[e])
            found = Packed(block[down_at : down_at + packed_bytes(hidden, width, "f32")], "f32", hidden, width)
            assert torch.equal(ops.unpack(found), down[e])
        experts += float(gate_up.abs().double().sum() + down.abs().double().sum())
    assert (len(weights.banks) == 0) == (kind == "llama")
    if kind != "qwen3_5_moe":  # its map transforms norms and decays
        total = sum(float(tensor.abs().double().sum()) for tensor in state.values())
        assert float(stored) + experts == pytest.approx(total, rel=1e-9)


def _plain(ops: Any, tensor: Packed | torch.Tensor) -> torch.Tensor:
    return ops.unpack(tensor) if isinstance(tensor, Packed) else tensor


def test_bf16_checkpoints_and_formats(tmp_path: Path) -> None:
    state = _save("mixtral", tmp_path / "hf", torch.bfloat16)
    command = ["import", str(tmp_path / "hf"), "--name", "m", "--models-dir", str(tmp_path)]
    assert main([*command, "--format", "q8_0", "--dense-format", "bf16"]) == 0
    manifest = load_manifest(tmp_path / "m")
    weights, ops = read_weights(manifest), packing_ops()
    embedding = weights.dense["embedding"]
    assert isinstance(embedding, Packed)
    assert torch.equal(ops.unpack(embedding), state["model.embed_tokens.weight"])
    source = SafetensorsSource(tmp_path / "hf")
    rounded = RoundedSource(source, weight_map_of(_config("mixtral").to_dict()), "q8_0", "bf16")
    w2 = rounded.read("model.layers.3.block_sparse_moe.experts.2.w2.weight")
    down_at = ExpertShape(64, 32, "q8_0").down_offset
    found = Packed(weights.banks[3][2][down_at : down_at + packed_bytes(64, 32, "q8_0")], "q8_0", 64, 32)
    assert torch.equal(ops.unpack(found), w2)
    error = (w2 - _fused(state, 3)[1][2]).abs().max() / w2.abs().max()
    assert 0 < error < 1 / 127
    router = "model.layers.0.block_sparse_moe.gate.weight"
    assert torch.equal(rounded.read(router), source.read(router).float())


def test_a_multimodal_checkpoint_is_read_as_its_text_model() -> None:
    inner = tiny_hybrid_config(96, 2)
    outer = {"model_type": "qwen3_5_moe", "text_config": inner, "vision_config": {}}
    assert weight_map_of(outer).geometry == weight_map_of(inner).geometry
    assert weight_map_of(outer).experts == weight_map_of(inner).experts
    assert set(weight_map_of(outer).dense) == set(weight_map_of(inner).dense)


def test_nothing_is_dropped_or_missed_in_silence(tmp_path: Path) -> None:
    config = tiny_hybrid_config(96, 2)
    weight_map = weight_map_of(config)
    source = SeededHybrid(config)
    check_coverage(source, weight_map)

    class Changed(SeededHybrid):
        def __init__(self, add: str, remove: str) -> None:
            super().__init__(config)
            self._shapes = {k: v for k, v in [*hybrid_shapes(config).items(), (add, (1,))] if k != remove}

    with pytest.raises(WeightsError, match=r"lacks model\.layers\.3\.self_attn\.k_proj\.weight"):
        check_coverage(Changed("mtp.x", "model.layers.3.self_attn.k_proj.weight"), weight_map)
    with pytest.raises(WeightsError, match=r"does not use: model\.layers\.3\.self_attn\.sinks"):
        check_coverage(Changed("model.layers.3.self_attn.sinks", ""), weight_map)
    with pytest.raises(WeightsError, match=r"lacks model\.layers\.0\.mlp\.experts\.0\.down_proj\.weight"):
        check_coverage(Changed("mtp.x", "model.layers.0.mlp.experts.gate_up_proj"), weight_map)


def test_unknown_architectures_are_named() -> None:
    for kind in ("gemma9", "", "..", "common", "spec"):
        with pytest.raises(Unsupported, match="is not offered"):
            weight_map_of({"model_type": kind})


def test_seeded_hybrid_has_the_shapes_transformers_gives_it() -> None:
    from transformers import AutoModelForCausalLM

    config = _config("qwen3_5_moe")
    with torch.device("meta"):
        state = AutoModelForCausalLM.from_config(config).state_dict()
    assert hybrid_shapes(config.to_dict()) == {name: tuple(tensor.shape) for name, tensor in state.items()}
    source = SeededHybrid(config.to_dict())
    assert all(tuple(source.read(name).shape) == tuple(state[name].shape) for name in source.names)


def test_combined_matrices_keep_their_order() -> None:
    """q, k and v as one matrix give what the three give."""
    config = tiny_hybrid_config(96, 2)
    source, weight_map = SeededHybrid(config), weight_map_of(config)
    (entry,) = [t for n, t in weight_map.dense.items() if n == "layers.3.attention.qkv"]
    assert len(entry.sources) == 3
    whole = build_dense(source, entry)
    x = torch.randn(2, 64, generator=torch.Generator().manual_seed(1))
    k = linear(x, source.read("model.layers.3.self_attn.k_proj.weight"))
    v = linear(x, source.read("model.layers.3.self_attn.v_proj.weight"))
    torch.testing.assert_close(linear(x, whole)[:, -128:], torch.cat([k, v], -1))
