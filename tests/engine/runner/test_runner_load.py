"""Loading a model directory: progress, the forward that makes it ready, and what is left behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine.errors import Unsupported, WeightsError
from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.runner.load import load

SETTINGS = Settings(kv_tokens=2048, checkpoint_bytes=4 << 20, chunk_tokens=128)


@pytest.fixture
def copied(models_dir: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(models_dir / "tiny-hybrid", tmp_path / "tiny-hybrid"))


def test_progress_is_told_and_warming_up_leaves_every_page_free(models_dir):
    directory = models_dir / "tiny-hybrid"
    told: list[tuple[str, int, int]] = []
    loaded = load(directory, plan_model(directory, SETTINGS), 2, lambda *step: told.append(step))
    total = loaded.manifest.total_bytes
    weights = [done for phase, done, all_of_it in told if phase == "weights" and all_of_it == total]
    assert weights == sorted(weights)
    assert weights[-1] == total
    assert told[-1] == ("warm-up", 1, 1)
    loaded.pools.check()
    assert loaded.pools.pages.used == 0
    assert loaded.pools.states is not None
    assert loaded.pools.states.used == 0


def test_warming_up_is_one_forward_at_full_chunk_size(models_dir):
    directory = models_dir / "tiny-hybrid"
    loaded = load(directory, plan_model(directory, SETTINGS), 2)
    routed = sum(loaded.experts.hits)
    layers, top_k = loaded.manifest.geometry.moe_layers, loaded.manifest.geometry.top_k
    assert routed > layers * top_k, "more than one token was routed"


def test_corrupt_weights_are_named(copied):
    bank = copied / json.loads((copied / "ftw.json").read_text())["banks"][0]["file"]
    data = bytearray(bank.read_bytes())
    data[100] ^= 1
    bank.write_bytes(data)
    with pytest.raises(WeightsError, match=bank.name):
        load(copied, plan_model(copied, SETTINGS), 2)


def test_an_unknown_architecture_is_refused(copied):
    config = json.loads((copied / "config.json").read_text())
    config["model_type"] = "someone_elses"
    config.get("text_config", {})["model_type"] = "someone_elses"
    (copied / "config.json").write_text(json.dumps(config))
    with pytest.raises(Unsupported, match="someone_elses"):
        load(copied, plan_model(copied, SETTINGS), 2)
