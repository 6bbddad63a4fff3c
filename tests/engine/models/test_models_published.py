"""Checkpoints in published quantised forms, served as they are: the same logits as transformers has on the values they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GptOssConfig, Qwen3MoeConfig

from engine.kernels.contract import packed_bytes
from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.quant import formats
from engine.runner.load import load
from engine.weights.convert import ModelFacts, convert
from engine.weights.ftw import expert_shape, read_weights
from engine.weights.safetensors import SafetensorsSource
from tests.engine.models.conftest import _randomise
from tests.engine.models.test_models_contract import alone

_SIZES: dict[str, Any] = {
    "vocab_size": 193,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 512,
}
GPT_OSS = GptOssConfig(
    **_SIZES,
    intermediate_size=96,
    num_local_experts=6,
    sliding_window=16,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)
QWEN = Qwen3MoeConfig(**_SIZES, moe_intermediate_size=96, num_experts=6, norm_topk_prob=True)
Tensors = dict[str, torch.Tensor]


def bytes_of(codes: np.ndarray) -> torch.Tensor:
    """Pairs of 4-bit codes along the last dimension, the earlier one in the lower half."""
    return torch.from_numpy(codes[..., 0::2] | codes[..., 1::2] << 4)


def mxfp4(name: str, weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
    """A stack [experts, inputs, outputs] as gpt-oss keeps it, and the values that stay."""
    experts, inputs, outputs = weight.shape
    scales, codes = formats()["mxfp4"].quantise(weight.mT.reshape(-1, inputs).numpy())
    values = torch.from_numpy(formats()["mxfp4"].dequantise((scales, codes)))
    blocks = bytes_of(codes).view(experts, outputs, inputs // 32, 16)
    parts = {f"{name}_blocks": blocks, f"{name}_scales": torch.from_numpy(scales).view(experts, outputs, -1)}
    return parts, values.view(experts, outputs, inputs).mT


def nvfp4(name: str, weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
    """A matrix as modelopt keeps it, with one scale for all of it."""
    scale_2 = weight.abs().max() / 2688
    blocks = weight.view(len(weight), -1, 16)
    scales = (blocks.abs().amax(-1) / 6 / scale_2).to(torch.float8_e4m3fn)
    _, _, codes = formats()["nvfp4"].quantise((blocks / (scales.float() * scale_2)[..., None] * 448).flatten(1).numpy())
    row = np.full(len(weight), float(scale_2), np.float32)
    values = formats()["nvfp4"].dequantise((row, scales.view(torch.uint8).numpy(), codes))
    packed = bytes_of(codes.reshape(len(weight), -1))
    parts = {
        name: packed,
        f"{name}_scale": scales,
        f"{name}_scale_2": scale_2,
        name.replace("weight", "input_scale"): torch.tensor(1.0),
    }
    return parts, torch.from_numpy(values)


def fp8(name: str, weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
    """A matrix of at most 128 inputs as DeepSeek keeps it."""
    scale = torch.stack([rows.abs().max() / 448 for rows in weight.split(128)])[:, None]
    spread = scale.repeat_interleave(128, 0)[: len(weight)]
    codes = (weight / spread).to(torch.float8_e4m3fn)
    return {name: codes, f"{name}_scale_inv": scale}, codes.float() * spread


def gpt_oss(folder: Path) -> Any:
    """A published gpt-oss in `folder`; returns transformers' model on its values."""
    oracle, state = made(GPT_OSS, folder)
    for name in [name for name in state if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        parts, values = mxfp4(name, state.pop(name))
        oracle.get_parameter(name).data = values.contiguous()
        state |= parts
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / "model.safetensors")
    return oracle


def qwen3_moe(folder: Path, quantise: Any) -> Any:
    """A Qwen3 MoE with quantised experts and attention projections, and transformers' model on its values."""
    oracle, state = made(QWEN, folder)
    for name in [n for n in state if n.endswith("_proj.weight")]:
        parts, values = quantise(name, state.pop(name))
        state |= parts
        place(oracle, name, values)
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / "model.safetensors")
    return oracle


def place(oracle: Any, name: str, values: torch.Tensor) -> None:
    """Put a published matrix into transformers' model, which keeps experts fused."""
    if ".experts." not in name:
        oracle.get_parameter(name).data = values
        return
    prefix, _, rest = name.partition(".experts.")
    expert, part = int(rest.split(".")[0]), rest.split(".")[1]
    fused = oracle.get_parameter(f"{prefix}.experts.{'down_proj' if part == 'down_proj' else 'gate_up_proj'}").data[
        expert
    ]
    half = len(fused) // 2
    {"down_proj": fused, "gate_proj": fused[:half], "up_proj": fused[half:]}[part].copy_(values)


def made(config: Any, folder: Path) -> tuple[Any, Tensors]:
    oracle = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    _randomise(oracle)
    oracle.save_pretrained(folder)
    return oracle, load_file(folder / "model.safetensors")


@pytest.mark.parametrize("format", ["mxfp4", "nvfp4", "fp8"])
def test_a_published_checkpoint_keeps_its_values(tmp_path: Path, format: str) -> None:
    hf = tmp_path / "hf"
    oracle = gpt_oss(hf) if format == "mxfp4" else qwen3_moe(hf, {"nvfp4": nvfp4, "fp8": fp8}[format])
    facts = ModelFacts(
        oracle.config.to_dict(), (hf / "config.json").read_text(), "{}", "", eos_token_ids=(0,), kv_dtype="f32"
    )
    source = SafetensorsSource(hf)
    directory = convert(source, facts, tmp_path / "models", "m", "keep", "keep")
    plan = plan_model(directory, Settings(kv_tokens=256, kv_dtype="f32", chunk_tokens=64))
    loaded = load(directory, plan, threads=2)
    assert {bank.format for bank in loaded.manifest.banks} == {format}
    down = oracle.get_parameter("model.layers.1.mlp.experts.down_proj")[4].detach()
    down = down.mT if format == "mxfp4" else down
    expert = read_weights(loaded.manifest).banks[1][4]
    stored = expert[expert_shape(loaded.manifest, loaded.manifest.banks[1]).down_offset :][
        : packed_bytes(64, 96, format)
    ]
    assert np.array_equal(formats()[format].unpack(stored.numpy(), 64, 96), down.numpy())
    tokens = torch.randint(0, 193, (70,), generator=torch.Generator().manual_seed(3)).tolist()
    with torch.inference_mode():
        expected = oracle(input_ids=torch.tensor([tokens])).logits[0]
    whole = alone(loaded, tokens, [70])
    torch.testing.assert_close(whole, expected, atol=1e-4, rtol=0)
    assert torch.equal(alone(loaded, tokens, [1, 7, 62]), whole)
