"""What other programs left on the disk, found where they keep it, and brought in without a copy of the source."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from safetensors.torch import save_file

from engine.weights.commands import main
from engine.weights.discover import discover, find
from engine.weights.manifest import load_manifest
from engine.weights.wheel import smollm2_gguf
from tests.engine.weights.test_weights_pull import QWEN3, separate, write_repo


def ollama(home: Path, model: str, data: bytes) -> Path:
    """As `ollama pull` leaves it; the blob's path."""
    digest = hashlib.sha256(data).hexdigest()
    root = home / ".ollama" / "models"
    blob = root / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    layers = [
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": len(data)},
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:00", "size": 1},
    ]
    manifest = root / "manifests" / model
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return blob


def write(path: Path, data: bytes = b"GGUF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_nothing_there(tmp_path: Path) -> None:
    assert discover({}, tmp_path) == []


def test_ollama(tmp_path: Path) -> None:
    blob = ollama(tmp_path, "registry.ollama.ai/library/qwen3/30b-a3b", b"GGUF one")
    ollama(tmp_path, "registry.ollama.ai/someone/mine/latest", b"GGUF two")
    ollama(tmp_path, "hub.example/org/name/tag", b"GGUF three")
    models = {model.id: model for model in discover({}, tmp_path)}
    assert set(models) == {"ollama:qwen3:30b-a3b", "ollama:someone/mine:latest", "ollama:hub.example/org/name:tag"}
    assert models["ollama:qwen3:30b-a3b"].path == blob
    assert models["ollama:qwen3:30b-a3b"].size_bytes == 8
    blob.unlink()
    manifests = tmp_path / ".ollama/models/manifests"
    (manifests / "registry.ollama.ai/someone/mine/latest").write_text("not JSON")
    assert [model.id for model in discover({}, tmp_path)] == ["ollama:hub.example/org/name:tag"]
    moved = tmp_path / "moved"
    (tmp_path / ".ollama" / "models").rename(moved)
    assert discover({}, tmp_path) == []
    assert len(discover({"OLLAMA_MODELS": str(moved)}, tmp_path)) == 1


def test_a_manifest_cannot_point_outside_its_blobs(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret")
    ollama(tmp_path, "registry.ollama.ai/library/bad/tag", b"x")
    manifest = tmp_path / ".ollama/models/manifests/registry.ollama.ai/library/bad/tag"
    text = json.loads(manifest.read_text())
    text["layers"][0]["digest"] = f"../../../{secret.name}"
    manifest.write_text(json.dumps(text))
    assert discover({}, tmp_path) == []


def test_lm_studio(tmp_path: Path) -> None:
    models = tmp_path / ".lmstudio" / "models" / "org" / "repo"
    write(models / "model-Q4_K_M.gguf", b"GGUF!")
    write(models / "mmproj-model.gguf")
    write(models / "big-Q8_0-00001-of-00002.gguf", b"12345")
    write(models / "big-Q8_0-00002-of-00002.gguf", b"1234")
    write(tmp_path / ".cache/lm-studio/models/old/repo/a.gguf")
    found = {model.id: model.size_bytes for model in discover({}, tmp_path)}
    assert found == {
        "lmstudio:org/repo/model-Q4_K_M.gguf": 5,
        "lmstudio:org/repo/big-Q8_0-00001-of-00002.gguf": 9,
        "lmstudio:old/repo/a.gguf": 4,
    }


def test_the_hub_cache(tmp_path: Path) -> None:
    cache = tmp_path / ".cache" / "huggingface" / "hub"
    whole = write_repo(cache / "models--org--whole" / "snapshots" / "c1", QWEN3, separate(QWEN3), shards=2)
    half = write_repo(cache / "models--org--half" / "snapshots" / "c1", QWEN3, separate(QWEN3), shards=2)
    next(half.glob("model-00002*")).unlink()
    write(cache / "models--org--quants" / "snapshots" / "c1" / "q.gguf")
    write_repo(cache / "datasets--org--data" / "snapshots" / "c1", QWEN3, separate(QWEN3), shards=1)
    found = {model.id: model.path for model in discover({}, tmp_path)}
    assert set(found) == {"hf:org/whole", "hf:org/quants/q.gguf"}
    assert found["hf:org/whole"] == whole
    assert len(discover({"HF_HOME": str(tmp_path / ".cache/huggingface")}, tmp_path / "other")) == 2
    assert len(discover({"HF_HUB_CACHE": str(cache)}, tmp_path / "other")) == 2


def test_bringing_one_in_copies_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / ".cache/huggingface/hub/models--org--name/snapshots/c1"
    write_repo(folder, QWEN3, separate(QWEN3), shards=2)
    with smollm2_gguf() as gguf:
        blob = ollama(tmp_path, "registry.ollama.ai/library/smollm2/135m", gguf.read_bytes())
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()}
    models = ["--models-dir", str(tmp_path / "models")]
    assert main(["import", "--list", "--json", *models]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [model["id"] for model in listed["models"]] == ["hf:org/name", "ollama:smollm2:135m"]
    assert listed["models"][1]["path"] == str(blob)
    assert main(["import", "--list", *models]) == 0
    assert "safetensors  hf:org/name" in capsys.readouterr().out
    for id, name in (("hf:org/name", "one"), ("ollama:smollm2:135m", "two")):
        assert main(["import", id, "--name", name, *models]) == 0, capsys.readouterr().err
        load_manifest(tmp_path / "models" / name)
    assert "Experts are kept as bf16." in capsys.readouterr().err
    assert {file: file.stat().st_mtime_ns for file in before} == before


def test_an_id_is_found_exactly(tmp_path: Path) -> None:
    ollama(tmp_path, "registry.ollama.ai/library/qwen3/30b", b"GGUF")
    assert find("ollama:qwen3:30b", {}, tmp_path) is not None
    assert find("ollama:qwen3:latest", {}, tmp_path) is None


def test_broken_shard_indexes_are_no_checkpoints(tmp_path: Path) -> None:
    folder = tmp_path / ".lmstudio/models/org/repo"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    for text in ("", "[]", '{"weight_map": 3}'):
        (folder / "model.safetensors.index.json").write_text(text)
        assert discover({}, tmp_path) == []
    (folder / "model.safetensors.index.json").unlink()
    save_file(separate(QWEN3), folder / "model.safetensors")
    assert [model.kind for model in discover({}, tmp_path)] == ["safetensors"]
