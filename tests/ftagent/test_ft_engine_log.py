"""What a person is told of an engine that ended: its own last words, one sentence and what to do."""

import shutil
from pathlib import Path

import pytest

from ftagent.local_engine.log import cause_in
from ftagent.local_engine.process import _died

TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    import tokenizers\n'


def test_the_last_words_are_found_among_other_lines() -> None:
    text = "FT-E0503 worker-gone: older.\nit\nINFO loading\nFT-E0510 weights: m/ftw.json is not JSON.\nMake it again.\n"
    cause = cause_in(text)
    assert cause is not None
    assert (cause.code, cause.message, cause.hint) == (
        "FT-E0510 weights",
        "m/ftw.json is not JSON.",
        "Make it again.",
    )
    assert cause_in("INFO loading\nWARNING slow\n") is None


def test_a_missing_package_is_one_sentence() -> None:
    cause = cause_in(TRACE + "ModuleNotFoundError: No module named 'tokenizers.models'\n")
    assert cause is not None
    assert cause.message == "The Python package tokenizers is missing."
    assert "pip install" in cause.hint


@pytest.mark.parametrize(("code", "kept"), [(1, 5), (2, 2), (3, 3), (5, 5), (6, 6)])
def test_exit_codes_that_mean_something_are_kept(code: int, kept: int, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("FT-E0402 usage: FT_THREADS=10000 is too many.\nUse at most 64.\n")
    error = _died(f"exit code {code}", "starting", log, code)
    assert (error.exit_code, error.message, error.hint) == (kept, "FT_THREADS=10000 is too many.", "Use at most 64.")


def test_a_log_that_could_not_be_written_is_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "engine.log"
    log.touch()
    usual = _died("exit code 120", "starting", log, 120)
    assert usual.message == "The engine stopped while starting (exit code 120)."
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=0))
    assert "The disk is full" in _died("exit code 120", "starting", log, 120).message
