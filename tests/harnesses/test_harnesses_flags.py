from __future__ import annotations

import pytest

from harnesses import flags
from harnesses.findings import line_of


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["--model", "x"], ["x"]),
        (["--model=x", "-m", "y"], ["x", "y"]),
        (["-my", "-m=z"], ["y", "z"]),
        (["--models", "x", "tell me about --model"], []),
        (["--", "--model", "x"], []),
        (["--model"], []),
    ],
)
def test_values(args: list[str], found: list[str]) -> None:
    assert flags.values_of(args, "--model", "-m") == found
    assert flags.value_of(args, "--model", "-m") == (found[-1] if found else None)


def test_without_takes_the_value_too_and_stops_at_the_separator() -> None:
    args = ["-p", "--settings", "a", "hi", "--settings=b", "--", "--settings", "c"]
    assert flags.without(args, "--settings") == ["-p", "hi", "--", "--settings", "c"]


def test_the_first_word_is_a_command_or_a_prompt() -> None:
    assert flags.first_word(["exec", "-x"]) == "exec"
    assert flags.first_word(["-p", "exec"]) is None
    assert flags.first_word([]) is None


def test_lines_of_keys() -> None:
    text = '{\n "model_name": 1,\n "name": "model",\n "model": 2\n}'
    assert line_of(text, "model") == 4
    assert line_of("a = 1\nmodel_provider = 2\nmodel = 3", "model") == 3
    assert line_of(text, "absent") is None
