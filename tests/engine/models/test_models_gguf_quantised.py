"""Whole models from quantised GGUF files: what the kernels make of the codes is what the values compute that the gguf package reads
from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from engine.memory.options import Options
from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.runner.load import Loaded, load
from engine.weights import gguf_blocks
from engine.weights.checkpoint import open_checkpoint
from engine.weights.convert import convert
from tests.engine.models.test_models_contract import alone

BENCH = Path(__file__).parents[3] / "bench"
FLOATS = (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.BF16)


def values(data: Any, type_: Any, scale: float = 1.0) -> torch.Tensor:
    assert scale == 1.0
    return torch.from_numpy(np.array(data if type_ == FLOATS[0] else gguf.quants.dequantize(data, type_)))


def served(path: Path, models_dir: Path, name: str, format: str, dense_format: str) -> Loaded:
    source, facts = open_checkpoint(path, "f32")
    directory = convert(source, facts, models_dir, name, format, dense_format)
    plan = plan_model(directory, Settings(kv_tokens=256, chunk_tokens=64))
    return load(directory, plan, threads=2, options=Options("f32"))


@pytest.mark.parametrize(
    ("shape", "format"), [("tiny-a", "nvfp4"), ("tiny-b", "q4_0"), ("tiny-b", "mxfp4"), ("tiny-b", "nvfp4")]
)
def test_logits_are_those_of_the_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str, format: str
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import peer_models

    path = tmp_path / "m.gguf"
    peer_models.write(path, peer_models.SHAPES[shape], format)
    tokens = torch.randint(0, 1024, (48,), generator=torch.Generator().manual_seed(6)).tolist()
    found = alone(served(path, tmp_path, "codes", "keep", "keep"), tokens, [48])
    with monkeypatch.context() as patched:
        patched.setattr(gguf_blocks, "decode", values)
        expected = alone(served(path, tmp_path, "values", "f32", "f32"), tokens, [48])
    assert expected.std() > 0.3
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
