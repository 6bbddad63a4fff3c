"""GGUF's number formats against the gguf package, and what is decided about them."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from engine.errors import Unsupported, WeightsError
from engine.quant import formats
from engine.weights.choice import KEEP, choose
from engine.weights.convert import expert_of, weight_map_of
from engine.weights.gguf import GgufSource
from engine.weights.gguf_blocks import decode, kind
from engine.weights.map import DenseTensor, LayerExperts, WeightMap
from engine.weights.quantised import Matrix, Quantised, pick, pick_inputs

Q = gguf.GGMLQuantizationType
EXACT = {Q.Q4_0: "q4_0", Q.Q8_0: "q8_0", Q.MXFP4: "mxfp4", Q.NVFP4: "nvfp4"}
FLOATS = {Q.F32: torch.float32, Q.F16: torch.float16, Q.BF16: torch.bfloat16}
OTHERS = [Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.Q2_K, Q.Q3_K]


def rows(type_: gguf.GGMLQuantizationType, n: int, k: int, seed: int = 0) -> np.ndarray:
    """Valid bytes of `n` rows, in every bit pattern of the codes; scales are kept to sane numbers."""
    random = np.random.default_rng(seed)
    if type_ in FLOATS or type_ in (Q.Q4_0, Q.Q8_0, Q.Q4_1, Q.Q5_0, Q.Q5_1):
        return gguf.quants.quantize(random.standard_normal((n, k)).astype(np.float32), type_)
    block, n_bytes = gguf.GGML_QUANT_SIZES[type_]
    data = random.integers(0, 256, (n, k // block, n_bytes), dtype=np.uint8)
    half = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    halves = {Q.Q4_K: (0, 2), Q.Q5_K: (0, 2), Q.Q6_K: (208,), Q.Q2_K: (80, 82), Q.Q3_K: (108,)}
    for at in halves.get(type_, ()):
        data[..., at : at + 2] = half
    if type_ == Q.MXFP4:
        data[..., 0] = random.integers(100, 140, data.shape[:2])
    if type_ == Q.NVFP4:
        data[..., :4] &= 0x7F  # scales have no sign
    return data.reshape(n, -1)


@pytest.mark.parametrize("type_", [*EXACT, *FLOATS, *OTHERS], ids=lambda t: t.name)
def test_values_are_those_of_gguf(type_: gguf.GGMLQuantizationType) -> None:
    data = rows(type_, 24, 512)
    matrix, expected = decode(data, type_), gguf.quants.dequantize(data, type_)
    assert np.isfinite(expected).all()
    assert matrix.shape == (24, 512)
    assert np.array_equal(matrix.float().numpy(), expected)
    if type_ in EXACT:
        assert isinstance(matrix, Quantised)
        assert matrix.format == kind(type_) == EXACT[type_]
        assert np.array_equal(formats()[matrix.format].unpack(matrix.pack().numpy(), 24, 512), expected)
    elif type_ in FLOATS:
        assert isinstance(matrix, torch.Tensor)
        assert matrix.dtype == FLOATS[type_]
    else:
        assert kind(type_) == type_.name


@pytest.mark.parametrize("type_", EXACT, ids=lambda t: t.name)
def test_inputs_move_in_whole_blocks_or_become_floats(type_: gguf.GGMLQuantizationType) -> None:
    matrix = decode(rows(type_, 6, 256), type_)
    blocks = np.array([3, 0, 1, 2, 7, 6, 5, 4])
    whole = (blocks[:, None] * 32 + np.arange(32)).reshape(-1)
    moved = pick_inputs(matrix, whole)
    assert isinstance(moved, Quantised)
    assert torch.equal(moved.float(), matrix.float()[:, torch.from_numpy(whole)])
    assert torch.equal(pick(moved, np.array([5, 2])).float(), moved.float()[[5, 2]])
    odd = np.roll(np.arange(256), 3)
    torn = pick_inputs(matrix, odd)
    assert isinstance(torn, torch.Tensor)
    assert torch.equal(torn, matrix.float()[:, torch.from_numpy(odd)])


def qwen3_moe(
    path: Path, type_: gguf.GGMLQuantizationType, shards: int = 1, scales: dict[str, np.ndarray] | None = None
) -> np.ndarray:
    """One layer of eight experts, with `scales` [8] beside its stacks; returns the bytes of the gate stack."""
    writer = gguf.GGUFWriter(path, "qwen3moe", split_max_tensors=4 if shards > 1 else 0, small_first_shard=False)
    writer.add_context_length(64)
    writer.add_embedding_length(256)
    writer.add_block_count(1)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_key_length(64)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(8)
    writer.add_expert_used_count(2)
    writer.add_expert_feed_forward_length(256)
    writer.add_token_list([f"t{i}" for i in range(64)])
    random = np.random.default_rng(9)
    floats = {
        "attn_norm": (256,),
        "ffn_norm": (256,),
        "attn_q_norm": (64,),
        "attn_k_norm": (64,),
        "ffn_gate_inp": (8, 256),
    }
    for name, shape in floats.items():
        writer.add_tensor(f"blk.0.{name}.weight", random.standard_normal(shape).astype(np.float32))
    writer.add_tensor("output_norm.weight", random.standard_normal(256).astype(np.float32))
    matrices = {"token_embd": 64, "output": 64, "blk.0.attn_q": 128, "blk.0.attn_k": 64, "blk.0.attn_v": 64}
    for name, n in matrices.items():
        writer.add_tensor(f"{name}.weight", rows(Q.Q8_0, n, 256), raw_dtype=Q.Q8_0)
    writer.add_tensor("blk.0.attn_output.weight", rows(Q.Q8_0, 256, 128), raw_dtype=Q.Q8_0)
    stacks = {part: rows(type_, 8 * 256, 256, seed=i) for i, part in enumerate(("gate", "up", "down"))}
    for part, data in stacks.items():
        writer.add_tensor(f"blk.0.ffn_{part}_exps.weight", data.reshape(8, 256, -1), raw_dtype=type_)
    for part, scale in (scales or {}).items():
        writer.add_tensor(f"blk.0.ffn_{part}_exps.scale", scale)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stacks["gate"].reshape(8, 256, -1)


@pytest.mark.parametrize(
    ("type_", "at", "code", "fault"),
    [
        (Q.Q8_0, slice(2, 3), 0x80, "the code -128, which no quantiser makes"),
        (Q.Q8_0, slice(0, 2), 0x7C, "a scale that is no finite number"),
        (Q.Q4_0, slice(0, 2), 0xFF, "a scale that is no finite number"),
        (Q.MXFP4, slice(0, 1), 0xFF, "a scale that is NaN"),
    ],
)
def test_codes_that_are_no_numbers_are_refused_by_name(
    tmp_path: Path, type_: gguf.GGMLQuantizationType, at: slice, code: int, fault: str
) -> None:
    good = qwen3_moe(tmp_path / "m.gguf", type_)
    bad = good.copy()
    bad[5, 17, at] = code
    whole = (tmp_path / "m.gguf").read_bytes()
    assert whole.count(good.tobytes()) == 1
    (tmp_path / "bad.gguf").write_bytes(whole.replace(good.tobytes(), bad.tobytes()))
    name = "model.layers.0.mlp.experts.{}.gate_proj.weight"
    source = GgufSource(tmp_path / "bad.gguf")
    source.read(name.format(4))
    with pytest.raises(WeightsError) as refused:
        source.read(name.format(5))
    told = f"{tmp_path / 'bad.gguf'}: blk.0.ffn_gate_exps.weight, expert 5 ({EXACT[type_]}) holds {fault}."
    assert refused.value.message == told


def map_of(source: GgufSource) -> WeightMap:
    return weight_map_of(source.config)


@pytest.mark.parametrize("type_", [Q.MXFP4, Q.Q4_K], ids=lambda t: t.name)
def test_stacked_experts_have_a_name_each(tmp_path: Path, type_: gguf.GGMLQuantizationType) -> None:
    gate = qwen3_moe(tmp_path / "m.gguf", type_)
    source = GgufSource(tmp_path / "m.gguf")
    for expert in (0, 5):
        name = f"model.layers.0.mlp.experts.{expert}.gate_proj.weight"
        expected = gguf.quants.dequantize(gate[expert], type_)
        assert np.array_equal(source.read(name).float().numpy(), expected)


def test_every_expert_of_an_nvfp4_stack_has_its_own_scale(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    scales = {part: random.uniform(0.5, 2, 8).astype(np.float32) for part in ("gate", "up", "down")}
    qwen3_moe(tmp_path / "m.gguf", Q.NVFP4, scales=scales)
    source = GgufSource(tmp_path / "m.gguf")
    (layer,) = map_of(source).experts
    for expert in (0, 5):
        made = expert_of(source, layer, expert)
        gate, up, down = (
            torch.from_numpy(
                scales[part][expert] * gguf.quants.dequantize(rows(Q.NVFP4, 8 * 256, 256, seed=i), Q.NVFP4)
            ).view(8, 256, 256)[expert]
            for i, part in enumerate(("gate", "up", "down"))
        )
        assert isinstance(made.gate_up, Quantised)
        assert isinstance(made.down, Quantised)
        assert torch.equal(made.gate_up.float(), torch.cat([gate, up]))
        assert torch.equal(made.down.float(), down)


def test_what_is_kept_and_what_is_rounded_is_said(tmp_path: Path) -> None:
    for type_, format, note in (
        (Q.MXFP4, "mxfp4", "Experts are kept as mxfp4."),
        (Q.Q4_K, "q8_0", "Experts are Q4_K in the checkpoint and become q8_0."),
        (Q.F16, "bf16", "Experts are f16 in the checkpoint and become bf16."),
    ):
        qwen3_moe(tmp_path / "m.gguf", type_)
        source = GgufSource(tmp_path / "m.gguf")
        chosen = choose(source, map_of(source), KEEP, KEEP)
        assert (chosen.experts, chosen.notes[0]) == (format, note)
        assert chosen.notes[1] == "Other matrices are kept as q8_0."
        assert chosen.dense["layers.0.attention.qkv"] == "q8_0"
        assert chosen.dense["layers.0.moe.router"] == "f32"
        asked = choose(source, map_of(source), "nvfp4", "bf16")
        assert (asked.experts, asked.dense["embedding"]) == ("nvfp4", "bf16")
    with pytest.raises(Unsupported, match="'q9_9' is not one of keep, f32"):
        choose(source, map_of(source), "q9_9", KEEP)


class _Kinds:
    def __init__(self, kinds: dict[str, str]) -> None:
        self._kinds = kinds
        self.names = frozenset(kinds)

    def read(self, name: str) -> Matrix:
        raise AssertionError

    def read_expert(self, name: str, expert: int) -> Matrix:
        raise AssertionError

    def kind(self, name: str) -> str:
        return self._kinds[name]


def test_experts_of_several_kinds_become_one_that_loses_little(tmp_path: Path) -> None:
    qwen3_moe(tmp_path / "m.gguf", Q.Q8_0)
    geometry = map_of(GgufSource(tmp_path / "m.gguf")).geometry
    experts = LayerExperts(0, "g", "u", "d", "gu", "dn")
    for kinds, format in (
        (("mxfp4", "mxfp4"), "mxfp4"),
        (("q4_0", "Q6_K"), "q8_0"),
        (("q4_0", "q8_0"), "q8_0"),
        (("f32", "bf16"), "bf16"),
        (("f16", "bf16"), "bf16"),
    ):
        source = _Kinds({"gu": kinds[0], "dn": kinds[1], "e": "bf16"})
        weight_map = WeightMap({"embedding": DenseTensor(("e",))}, geometry, (experts,))
        assert choose(source, weight_map, KEEP, KEEP).experts == format


def test_a_split_file_is_read_whole(tmp_path: Path) -> None:
    qwen3_moe(tmp_path / "whole.gguf", Q.Q4_0)
    qwen3_moe(tmp_path / "m.gguf", Q.Q4_0, shards=2)
    parts = sorted(tmp_path.glob("m-*.gguf"))
    assert len(parts) > 2
    whole, split = GgufSource(tmp_path / "whole.gguf"), GgufSource(parts[0])
    assert whole.names == split.names
    assert whole.config == split.config
    assert all(torch.equal(whole.read(name).float(), split.read(name).float()) for name in whole.names)
    with pytest.raises(WeightsError, match="Give the first part"):
        GgufSource(parts[1])
    parts[2].unlink()
    with pytest.raises(WeightsError, match="cannot be read"):
        GgufSource(parts[0])
