"""What was set by hand is there again in the next engine, as long as that is started as this one was."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from engine.front.supervision.by_hand import FILE, ByHand, words

ARGUMENTS = ["--model", "/m", "--kv", "32768"]


def asked(**fields: Any) -> dict[str, Any]:
    return {"op": "apply", "moe_slots": None, "kv_tokens": None, "preset": None, "auto": False, **fields}


def test_sizes_and_presets_are_there_again(tmp_path: Path) -> None:
    kept = ByHand(tmp_path, ARGUMENTS)
    assert kept.orders() == []
    kept.keep(asked(preset="agent"))
    kept.keep(asked(kv_tokens=4096))
    again = ByHand(tmp_path, ARGUMENTS)
    assert again.orders() == kept.orders()
    assert " ".join(map(words, again.orders())) == "--preset agent --kv 4096"
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    again.forget(again.orders()[0])
    assert " ".join(map(words, ByHand(tmp_path, ARGUMENTS).orders())) == "--kv 4096"


def test_until_the_engine_decides_again(tmp_path: Path) -> None:
    ByHand(tmp_path, ARGUMENTS).keep(asked(moe_slots=12))
    ByHand(tmp_path, ARGUMENTS).keep(asked(auto=True))
    assert not (tmp_path / FILE).exists() and ByHand(tmp_path, ARGUMENTS).orders() == []


def test_an_engine_started_otherwise_begins_as_it_was_told(tmp_path: Path) -> None:
    ByHand(tmp_path, ARGUMENTS).keep(asked(kv_tokens=4096))
    assert ByHand(tmp_path, [*ARGUMENTS, "--preset", "chat"]).orders() == []
    assert ByHand(tmp_path, ARGUMENTS).orders() != []


def test_what_differs_from_start_to_start_is_no_other_way(tmp_path: Path) -> None:
    """How much of a disk may be used is a share of what is free, and how many requests run comes from measurements."""
    ByHand(tmp_path, [*ARGUMENTS, "--hibernate-bytes", "100", "--max-running-requests", "4"]).keep(
        asked(kv_tokens=4096)
    )
    orders = ByHand(tmp_path, [*ARGUMENTS, "--hibernate-bytes", "99", "--max-running-requests", "3"]).orders()
    assert orders and orders[0]["kv_tokens"] == 4096


@pytest.mark.parametrize("text", ["", "[]", "{", '{"for": 1}', "null"])
def test_a_damaged_file_is_no_order(tmp_path: Path, text: str) -> None:
    kept = ByHand(tmp_path, ARGUMENTS)
    kept.keep(asked(kv_tokens=4096))
    (tmp_path / FILE).write_text(text)
    assert ByHand(tmp_path, ARGUMENTS).orders() == []


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    kept = ByHand(tmp_path / "gone", ARGUMENTS)
    kept.keep(asked(kv_tokens=4096))
    assert kept.orders()[0]["kv_tokens"] == 4096
