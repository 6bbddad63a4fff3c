"""How many sequences at once follow from what was measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.memory.geometry import Geometry
from engine.memory.hardware import cores_text, machine_text
from engine.memory.running import MOST, UNMEASURED, Speeds, dense_bytes, experts_bytes, measured, running, step_s

SPARSE = Geometry(
    vocab_size=24_576, hidden_size=2048, layers=8, attention_layers=8, kv_heads=4, head_dim=128, state_layer_bytes=(),
    moe_layers=8, experts=128, top_k=8, expert_width=768, expert_bytes=2_500_000, bank_bytes=8 * 128 * 2_500_000,
    dense_bytes=323_000_000, max_window_tokens=32_768,
)  # fmt: skip
MODEL = "m"


def keep(folder: Path, host: float, row_s: float, **changes: Any) -> None:
    """What an engine writes that read so many bytes per second and spent so long on a row."""
    step = (dense_bytes(SPARSE) + experts_bytes(SPARSE, 1)) / host + row_s
    document = {
        "schema": "ft.rates/2", "model": MODEL, "machine": cores_text(), "fit": {"token_s": row_s},
        "steps": [[100, step], [200, 9 * step], [300, step]],
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "rates-1.json").write_text(json.dumps(document | changes))


def test_what_was_asked_for_is_taken(tmp_path: Path) -> None:
    keep(tmp_path, 40e9, 1e-3)
    assert running(3, tmp_path, MODEL, SPARSE).requests == 3


@pytest.mark.parametrize(
    "changes", [{"model": "n"}, {"machine": "another"}, {"steps": []}, {"fit": None}, {"schema": 1}]
)
def test_without_measurements_of_this_machine_it_is_what_suits_most(tmp_path: Path, changes: dict[str, Any]) -> None:
    for folder in (None, tmp_path / "absent"):
        assert running(None, folder, MODEL, SPARSE).requests == UNMEASURED
    keep(tmp_path, 40e9, 1e-3, **changes)
    made = running(None, tmp_path, MODEL, SPARSE)
    assert (made.requests, made.source) == (UNMEASURED, "nothing is measured yet")


def test_what_was_measured_is_found_again(tmp_path: Path) -> None:
    keep(tmp_path, 40e9, 1e-3)
    found = measured(tmp_path, MODEL, SPARSE, "cpu")
    assert found is not None and (found.host, found.row_s, found.fills) == (pytest.approx(40e9), 1e-3, None)


def test_experts_of_independent_rows_overlap() -> None:
    """One row wants 8 of 128, two want 8 + 8 - 8 * 8 / 128, and very many want all."""
    layer = SPARSE.moe_layers * SPARSE.expert_bytes
    assert experts_bytes(SPARSE, 1) == pytest.approx(8 * layer)
    assert experts_bytes(SPARSE, 2) == pytest.approx(15.5 * layer)
    assert experts_bytes(SPARSE, 5_000) == pytest.approx(128 * layer)


@pytest.mark.parametrize(
    "host, row_s", [(40e9, 0.1e-3), (40e9, 2.5e-3), (40e9, 20e-3), (400e9, 0.02e-3), (400e9, 5e-3)]
)
def test_the_last_doubling_pays_and_the_next_would_not(tmp_path: Path, host: float, row_s: float) -> None:
    keep(tmp_path, host, row_s)
    made, speeds = running(None, tmp_path, MODEL, SPARSE), Speeds(host, row_s)

    def gain(rows: int) -> float:
        return 2 * step_s(SPARSE, speeds, rows) / step_s(SPARSE, speeds, 2 * rows)

    n = made.requests
    assert n in (1, 2, 4, 8, 16) and (n == 1 or gain(n // 2) >= 1.2) and (n == MOST or gain(n) < 1.2)
    assert f"{host / 1e9:.1f} GB/s" in made.source


def test_slow_arithmetic_makes_for_few(tmp_path: Path) -> None:
    found = []
    for row_s in (0.1e-3, 2.5e-3, 50e-3):
        keep(tmp_path, 40e9, row_s)
        found.append(running(None, tmp_path, MODEL, SPARSE).requests)
    assert found == sorted(found, reverse=True) and found[0] > found[-1] == 1


def test_a_device_of_its_own_has_measured_fills(tmp_path: Path) -> None:
    keep(tmp_path, 40e9, 1e-3)
    profile = {"schema": "ft.bandwidth/1", "key": f"{machine_text()} | x | y", "fill": 25e9, "host": 57e9}
    (tmp_path / "emulated-mxfp4-2048x768.json").write_text(json.dumps(profile))
    found = measured(tmp_path, MODEL, SPARSE, "emulated")
    assert found is not None and (found.host, found.fills) == (57e9, pytest.approx(25 / 57))
    assert "44% of misses filled" in running(None, tmp_path, MODEL, SPARSE, "emulated").source
    (tmp_path / "emulated-mxfp4-2048x768.json").write_text(json.dumps(profile | {"key": "another machine | x"}))
    found = measured(tmp_path, MODEL, SPARSE, "emulated")
    assert found is not None and found.fills is None
