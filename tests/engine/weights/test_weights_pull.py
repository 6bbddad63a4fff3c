"""Pulling from a hub: what arrives is what importing the downloaded folder gives, byte for byte, whatever happens on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import save_file

from engine.errors import NotFound, Unsupported, WeightsError
from engine.weights import hub as hub_room
from engine.weights.checkpoint import open_checkpoint
from engine.weights.convert import convert
from engine.weights.manifest import load_manifest, verify
from engine.weights.pull import pull
from engine.weights.seeded import SeededHybrid, tiny_hybrid_config
from engine.weights.shapes import dense_shapes
from engine.weights.synth import CONTROL_TOKENS, plain_tokenizer
from tests.engine.weights.hub_server import Hub, serving

VOCAB = 300
QWEN3: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "intermediate_size": 64,
    "norm_topk_prob": True,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "max_position_embeddings": 1024,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": False,
    "eos_token_id": VOCAB - len(CONTROL_TOKENS),
}


def separate(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """A checkpoint with a tensor per expert matrix."""
    random = torch.Generator().manual_seed(0)
    shapes = dense_shapes(config)
    sizes = {"gate_proj": (32, 64), "up_proj": (32, 64), "down_proj": (64, 32)}
    for layer in range(config["num_hidden_layers"]):
        for expert in range(config["num_experts"]):
            shapes |= {f"model.layers.{layer}.mlp.experts.{expert}.{n}.weight": s for n, s in sizes.items()}
    return {name: torch.randn(shape, generator=random).to(torch.bfloat16) for name, shape in shapes.items()}


def fused(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    source = SeededHybrid(config)
    return {name: source.read(name).to(torch.bfloat16) for name in source.names}


GPT_OSS: dict[str, Any] = {
    **{key: QWEN3[key] for key in ("vocab_size", "hidden_size", "head_dim", "rms_norm_eps", "max_position_embeddings")},
    **{key: QWEN3[key] for key in ("num_attention_heads", "num_key_value_heads", "eos_token_id", "rope_parameters")},
    "model_type": "gpt_oss",
    "num_hidden_layers": 2,
    "intermediate_size": 32,
    "num_local_experts": 3,
    "num_experts_per_tok": 2,
    "sliding_window": 32,
    "layer_types": ["sliding_attention", "full_attention"],
    "attention_bias": True,
    "tie_word_embeddings": False,
    "swiglu_limit": 7.0,
}


def published_mxfp4(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """As gpt-oss is published: blocks, scales and biases of all experts of a layer in one tensor each."""
    random = torch.Generator().manual_seed(0)
    tensors = {n: torch.randn(s, generator=random).to(torch.bfloat16) for n, s in dense_shapes(config).items()}
    for layer in range(config["num_hidden_layers"]):
        for name, n, k in (("gate_up_proj", 64, 64), ("down_proj", 64, 32)):
            at = f"model.layers.{layer}.mlp.experts.{name}"
            tensors[f"{at}_blocks"] = torch.randint(0, 256, (3, n, k // 32, 16), generator=random).to(torch.uint8)
            tensors[f"{at}_scales"] = torch.randint(120, 130, (3, n, k // 32), generator=random).to(torch.uint8)
            tensors[f"{at}_bias"] = torch.randn((3, n), generator=random).to(torch.bfloat16)
    return tensors


def write_repo(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor], shards: int) -> Path:
    """A transformers folder whose shards end between any two tensors, as those of real repositories do."""
    folder.mkdir(parents=True)
    names, files = sorted(tensors), {}
    step = -(-len(names) // shards)
    for i in range(shards):
        files[f"model-{i + 1:05d}-of-{shards:05d}.safetensors"] = names[i * step : (i + 1) * step]
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
    else:
        for file, part in files.items():
            save_file({name: tensors[name] for name in part}, folder / file)
        where = {name: file for file, part in files.items() for name in part}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(plain_tokenizer(VOCAB).to_str())
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    return folder


@pytest.fixture(scope="module")
def repos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("repos")
    hybrid = tiny_hybrid_config(VOCAB, 0)
    return {
        "org/separate": write_repo(folder / "separate", QWEN3, separate(QWEN3), shards=4),
        "org/fused": write_repo(folder / "fused", hybrid, fused(hybrid), shards=3),
        "org/mxfp4": write_repo(folder / "mxfp4", GPT_OSS, published_mxfp4(GPT_OSS), shards=5),
        "org/single": write_repo(folder / "single", QWEN3, separate(QWEN3), shards=1),
        "org/dense": write_repo(folder / "dense", {**QWEN3, "model_type": "gpt2"}, {"a": torch.ones(2)}, shards=1),
    }


@pytest.fixture
def hub(repos: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(hub_room, "_PATIENCE_S", 0.01)
    with serving(dict(repos)) as server:
        point_at(server.url, monkeypatch)
        yield server


def point_at(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What HF_ENDPOINT does in a new process."""
    monkeypatch.setattr(constants, "ENDPOINT", url)
    template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


def imported(source: Path, models_dir: Path, format: str, dense_format: str) -> Path:
    """The same model by way of a downloaded folder."""
    opened, facts = open_checkpoint(source, "bf16")
    return convert(opened, facts, models_dir, "imported", format, dense_format)


def assert_same(pulled: Path, other: Path) -> None:
    verify(pulled)
    assert sorted(f.name for f in pulled.iterdir()) == sorted(f.name for f in other.iterdir())
    for file in other.iterdir():
        if file.name != "ftw.json":
            assert (pulled / file.name).read_bytes() == file.read_bytes(), file.name
    ours, theirs = (json.loads((d / "ftw.json").read_text()) for d in (pulled, other))
    for manifest in (ours, theirs):
        manifest.pop("source"), manifest.pop("name")
    assert ours == theirs


@pytest.mark.parametrize("repo", ["org/separate", "org/fused", "org/mxfp4", "org/single"])
@pytest.mark.parametrize(("format", "dense_format"), [("keep", "keep"), ("q4_0", "q8_0")])
def test_a_pulled_model_is_the_imported_one(
    hub: Hub, tmp_path: Path, repo: str, format: str, dense_format: str
) -> None:
    pulled = pull(repo, tmp_path, "pulled", format, dense_format)
    assert_same(pulled, imported(hub.repos[repo], tmp_path, format, dense_format))
    assert load_manifest(pulled).source.startswith(f"{repo} at 0123456789ab")
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["imported", "pulled"]


def test_lost_connections_are_taken_up_where_they_broke(hub: Hub, tmp_path: Path) -> None:
    hub.cut_after, hub.cuts = 30_000, 4
    pulled = pull("org/separate", tmp_path, "pulled", "bf16", "bf16")
    assert_same(pulled, imported(hub.repos["org/separate"], tmp_path, "bf16", "bf16"))
    ranges = [r for _, path, r in hub.requests if "model-" in path and r.endswith("-")]
    assert "bytes=30000-" in ranges
    sizes = sum(f.stat().st_size for f in hub.repos["org/separate"].glob("*.safetensors"))
    assert hub.sent < 1.7 * sizes + 500_000  # nothing large came twice; headers and small files came as well


def test_a_pull_that_failed_goes_on_with_the_files_that_are_missing(hub: Hub, tmp_path: Path) -> None:
    hub.cut_after, hub.cuts = 0, 10**6
    said: list[str] = []
    with pytest.raises(WeightsError, match=r"model-00001-of-00004.safetensors could not be downloaded beyond byte 0"):
        pull("org/separate", tmp_path, "pulled", "bf16", "bf16")
    assert [p for p in tmp_path.iterdir() if p.is_dir()] == []  # nothing of use had arrived
    original = hub.repos["org/separate"] / "model-00003-of-00004.safetensors"
    hub.cuts = 0
    hub.lies = {original.name}
    with pytest.raises(WeightsError, match=r"model-00003-of-00004.safetensors is corrupt as it arrived"):
        pull("org/separate", tmp_path, "pulled", "bf16", "bf16", say=said.append)
    assert "are kept for the next try" in said[-1]
    assert not (tmp_path / "pulled").exists()
    hub.lies, hub.requests = set(), []
    pulled = pull("org/separate", tmp_path, "pulled", "bf16", "bf16")
    streamed = [Path(path).name[6:11] for _, path, r in hub.requests if "model-" in path and r == "bytes=0-"]
    assert streamed == ["00003", "00004"]
    assert_same(pulled, imported(hub.repos["org/separate"], tmp_path, "bf16", "bf16"))
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["imported", "pulled"]


def test_another_format_or_commit_starts_again(hub: Hub, tmp_path: Path) -> None:
    hub.lies = {"model-00003-of-00004.safetensors"}
    with pytest.raises(WeightsError):
        pull("org/separate", tmp_path, "pulled", "bf16", "bf16")
    hub.lies, hub.requests = set(), []
    pulled = pull("org/separate", tmp_path, "pulled", "q8_0", "bf16")
    assert len([r for _, path, r in hub.requests if "model-" in path and r == "bytes=0-"]) == 4
    assert_same(pulled, imported(hub.repos["org/separate"], tmp_path, "q8_0", "bf16"))


def test_the_disk_never_holds_much_more_than_the_result(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of every file, where the most is set aside."""
    from engine.weights import pull as pull_room

    peaks: list[int] = []
    remember = pull_room._Work._remember

    def watched(work: Any) -> None:
        remember(work)
        peaks.append(sum(f.stat().st_blocks * 512 for f in tmp_path.rglob("*") if f.is_file()))

    monkeypatch.setattr(pull_room._Work, "_remember", watched)
    pulled = pull("org/separate", tmp_path, "pulled", "q4_0", "q4_0")
    result = sum(f.stat().st_blocks * 512 for f in pulled.iterdir())
    small_files = 64 << 10  # the journal and the checkpoint's own small files
    assert len(peaks) == 4
    assert max(peaks) <= 1.1 * result + small_files


def test_no_room_is_said_before_anything_large_is_fetched(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=50_000))
    with pytest.raises(WeightsError, match=r"needs 0.0 GB and its disk has 0.0 GB free"):
        pull("org/separate", tmp_path, "pulled", "bf16", "bf16")
    assert not [r for _, path, r in hub.requests if "model-" in path and r == "bytes=0-"]
    assert [p for p in tmp_path.iterdir() if p.is_dir()] == []


def test_refusals(hub: Hub, tmp_path: Path) -> None:
    hub.gated = {"org/secret"}
    for repo, error, fact in [
        ("org/absent", NotFound, "There is no model 'org/absent' on the hub"),
        ("org/secret", NotFound, "only open to users who accepted its terms"),
        ("org/dense", Unsupported, "'gpt2' is not offered"),
    ]:
        with pytest.raises(error, match=fact):
            pull(repo, tmp_path, "pulled", "bf16", "bf16")
    assert [p for p in tmp_path.iterdir() if p.is_dir()] == []


def test_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point_at("http://127.0.0.1:9", monkeypatch)
    with pytest.raises(WeightsError, match="The hub cannot be reached"):
        pull("org/separate", tmp_path, "pulled", "bf16", "bf16")


def command(hub: Hub, models_dir: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "PYTHONPATH": str(Path(__file__).parents[3])}
    words = [sys.executable, "-P", "-m", "engine", "models", "pull", *arguments, "--models-dir", str(models_dir)]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_command(hub: Hub, tmp_path: Path) -> None:
    done = command(hub, tmp_path, "org/fused:q8_0")
    out, err = done.communicate(timeout=60)
    assert done.returncode == 0, err
    assert out == f"{tmp_path / 'fused-q8_0'}\n"
    assert "Experts are bf16 in the checkpoint and become q8_0." in err
    assert {bank.format for bank in load_manifest(tmp_path / "fused-q8_0").banks} == {"q8_0"}


def test_stopped_from_outside(hub: Hub, tmp_path: Path) -> None:
    hub.cut_after, hub.cuts = 10_000, 10**6  # every connection breaks, so that it is under way for long
    children = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        (tmp_path / number.name).mkdir()
        children[number] = command(hub, tmp_path / number.name, "org/fused:bf16")
    deadline = time.monotonic() + 180
    while len([r for _, path, r in hub.requests if "model-00001" in path and r == "bytes=0-"]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for number, child in children.items():
        child.send_signal(number)
    for number, child in children.items():
        _, err = child.communicate(timeout=180)
        assert child.returncode == 128 + number
        assert "Traceback" not in err
        assert [p for p in (tmp_path / number.name).iterdir() if p.is_dir()] == []
