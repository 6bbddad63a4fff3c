"""Joules of the machine between the begin and the end of a session, where a meter tells them."""

from typing import Any

import pytest

from ftagent.launch.receipt import fetch_energy, render, summarise, used


class Client:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def get(self, path: str, timeout_s: float) -> Any:
        assert path == "/v1/engine/power"
        return self.answer


@pytest.mark.parametrize(
    ("answer", "joules"),
    [({"energy_j": 12}, 12.0), ({"energy_j": None}, None), ({}, None), ([], None)],
    ids=["told", "no meter", "another answer", "no answer"],
)
def test_joules_as_the_engine_tells_them(answer: Any, joules: float | None) -> None:
    assert fetch_energy(Client(answer)) == joules  # type: ignore[arg-type]


def test_what_was_used_is_only_known_of_one_engine() -> None:
    assert used(100.0, 2_350.04) == 2_250.0
    assert used(100.0, 20.0) is None and used(None, 3.0) is None and used(3.0, None) is None


def test_the_receipt_says_it_in_a_line_of_its_own() -> None:
    summary = summarise([{"prompt_tokens": 10, "output_tokens": 2, "ttft_s": 0.1}])
    assert "energy" not in render(summary, "n", "s-a")
    assert "ft: energy of the machine meanwhile: 2.3 kJ\n" in render({**summary, "energy_j": 2_300.0}, "n", "s-a")
