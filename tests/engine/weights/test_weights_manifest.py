"""A model directory that is not whole is named, with the file and the fault."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import NotFound, WeightsError
from engine.weights.ftw import read_weights
from engine.weights.manifest import Manifest, load_manifest, verify
from engine.weights.store import find_model, model_names


def test_manifest_survives_a_round_trip(small: Path) -> None:
    manifest = load_manifest(small)
    assert (
        manifest.geometry.bank_bytes == sum(bank.bytes for bank in manifest.banks) == 2 * 3 * manifest.banks[0].stride
    )
    assert manifest.geometry.expert_bytes == manifest.banks[0].stride
    assert manifest.geometry.dense_bytes == (small / "dense.bin").stat().st_size
    assert json.loads(json.dumps(manifest.to_json())) == json.loads((small / "ftw.json").read_text())
    seen: list[tuple[int, int]] = []
    verify(small, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (manifest.total_bytes, manifest.total_bytes)


def test_reading_a_manifest_imports_no_torch(small: Path) -> None:
    code = (
        "import sys; from engine.weights.manifest import verify; verify(sys.argv[1]);"
        "sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'safetensors')))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(small)], check=False).returncode == 0


@pytest.mark.parametrize(
    "file", ["dense.bin", "experts-002.bin", "tokenizer.json", "config.json", "chat_template.jinja"]
)
def test_missing_file_is_named(small: Path, file: str) -> None:
    (small / file).unlink()
    with pytest.raises(WeightsError, match=rf"{file} is missing"):
        load_manifest(small)


@pytest.mark.parametrize("file", ["dense.bin", "experts-001.bin"])
@pytest.mark.parametrize(("change", "fact"), [(-1, "truncated"), (1, "too long")])
def test_wrong_size_is_named(small: Path, file: str, change: int, fact: str) -> None:
    size = (small / file).stat().st_size
    with (small / file).open("r+b") as out:
        out.truncate(size + change)
    with pytest.raises(WeightsError, match=rf"{file} is {fact}: {size + change} bytes, should be {size}"):
        load_manifest(small)


@pytest.mark.parametrize(("file", "where"), [("dense.bin", ""), ("experts-002.bin", " in expert 1 of layer 2")])
def test_flipped_bit_is_found_by_verify_and_when_loading(small: Path, file: str, where: str) -> None:
    data = bytearray((small / file).read_bytes())
    data[len(data) // 2] ^= 0x10
    (small / file).write_bytes(data)
    manifest = load_manifest(small)
    for check in (lambda: verify(small), lambda: read_weights(manifest)):
        with pytest.raises(WeightsError, match=rf"{file} is corrupt{where}: its checksum is [0-9a-f]{{8}}"):
            check()


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("\xff", "is not JSON"),
        ("[]", "format None"),
        ('{"format": "ftw/9"}', "format 'ftw/9'; this build reads 'ftw/1'"),
        ('{"format": "ftw/1"}', "lacks a field"),
    ],
)
def test_bad_manifest_text(small: Path, text: str, fact: str) -> None:
    (small / "ftw.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(WeightsError, match=fact) as caught:
        load_manifest(small)
    assert "ftw.json" in caught.value.message
    assert "ft models" in caught.value.hint


def test_absent_manifest(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="not a model directory"):
        load_manifest(tmp_path)


def test_a_manifest_cannot_point_outside_its_directory(small: Path) -> None:
    text = (small / "ftw.json").read_text()
    shutil.copy(small / "dense.bin", small.parent / "dense.bin")
    (small / "ftw.json").write_text(text.replace('"dense.bin"', '"../dense.bin"'))
    with pytest.raises(WeightsError, match="not a plain file name"):
        load_manifest(small)


_VALUES = st.one_of(st.none(), st.integers(-5, 1 << 40), st.text(max_size=4), st.booleans(), st.just([]), st.just({}))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_single_wrong_value_gets_past_the_checks(small: Path, data: st.DataObject) -> None:
    """Whatever one number or name in the manifest becomes, loading either refuses with WeightsError or stays in bounds."""
    path = small / "ftw.json"
    original = path.read_text()
    document = json.loads(original)
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(_VALUES)
    try:
        path.write_text(json.dumps(document))
        manifest = load_manifest(small)
        weights = read_weights(manifest)
        assert {bank.layer for bank in manifest.banks} == set(weights.banks)
    except WeightsError as error:
        assert error.message
    finally:
        path.write_text(original)


def test_models_are_found_by_name_or_path(small: Path) -> None:
    models_dir = small.parent
    assert model_names(models_dir) == ["small"]
    assert find_model(models_dir, "small") == find_model(models_dir / "elsewhere", str(small)) == small
    for name in ("smal", "../small", "", "/nowhere/at/all"):
        with pytest.raises(NotFound, match="There is no model"):
            find_model(models_dir, name)
    with pytest.raises(NotFound) as caught:
        find_model(models_dir, "other")
    assert caught.value.hint == "Available: small."
    assert isinstance(load_manifest(small), Manifest)
