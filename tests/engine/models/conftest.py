"""Tiny random checkpoints of every architecture, as transformers writes them and as the engine loads them."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig

from engine import models
from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.runner.load import Loaded, load
from engine.weights.convert import ModelFacts, convert
from engine.weights.safetensors import SafetensorsSource

_CONFIGS = Path(__file__).parent / "configs"


def _cases() -> dict[str, PreTrainedConfig]:
    """arch/variant -> config. Every file of engine/models needs a file of the same name in configs/."""
    cases = {}
    for name in models.names():
        for variant, config in runpy.run_path(str(_CONFIGS / f"{name}.py"))["CONFIGS"].items():
            cases[f"{name}/{variant}"] = config
    return cases


CASES = _cases()


@dataclass
class Checkpoint:
    """A random model in transformers, and its weights as FTW directories: "exact" (all fp32), and "small" (experts in
    q8_0, the rest in bf16, as models are served)."""

    oracle: Any
    directories: dict[str, Path]
    vocab: int

    def load(self, kind: str = "exact", kernels: str = "cpu", **settings: Any) -> Loaded:
        """The engine's model; four sequences of 256 tokens fit."""
        kv_dtype = "f32" if kind == "exact" else "bf16"
        asked = Settings(kv_tokens=1024, kv_dtype=kv_dtype, chunk_tokens=64, checkpoint_bytes=1 << 20, **settings)
        directory = self.directories[kind]
        return load(directory, plan_model(directory, asked), threads=2, kernels=kernels)

    def tokens(self, n: int, seed: int) -> list[int]:
        return torch.randint(0, self.vocab, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.fixture(scope="module", autouse=True)
def one_torch_thread() -> Iterator[None]:
    """The oracle's matrices are too small to share among threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", params=sorted(CASES))
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    config = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param.replace("/", "-"))
    text = getattr(config, "text_config", config)
    maker = AutoModelForCausalLM if text is config else AutoModelForImageTextToText
    torch.manual_seed(7)  # decays keep the values they are born with
    oracle = maker.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    _randomise(oracle)
    oracle.save_pretrained(folder / "hf")
    config_json = (folder / "hf" / "config.json").read_text()
    facts = ModelFacts(config.to_dict(), config_json, "{}", "", eos_token_ids=(0,), kv_dtype="f32")
    source = SafetensorsSource(folder / "hf")
    directories = {
        "exact": convert(source, facts, folder / "models", "exact", "f32", "f32"),
        "small": convert(source, facts, folder / "models", "small", "q8_0", "bf16"),
    }
    return Checkpoint(oracle, directories, text.vocab_size)


def _randomise(oracle: torch.nn.Module) -> None:
    """Weights large enough that every part of the model matters to the logits; no norm weight or bias at its default."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in oracle.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise * 0.8 / parameter.shape[-1] ** 0.5)
            else:
                parameter.add_(noise * 0.2)
