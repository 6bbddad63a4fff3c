"""A drop of more than two times is reported once, and so is its end."""

from __future__ import annotations

import logging

from engine.experts.watch import Watch


def feed(watch: Watch, seconds: float, n: int) -> None:
    for _ in range(n):
        watch.saw(seconds)


def test_case_50_a_lasting_drop_is_reported_once_and_its_end_too(caplog):
    watch, told = Watch(), []
    watch.changed = lambda: told.append(watch.slow)
    feed(watch, 1e-3, 2000)
    assert watch.report() == {"normal_us": 1000.0, "now_us": 1000.0, "slow": False}
    with caplog.at_level(logging.WARNING):
        feed(watch, 1.9e-3, 5000)
        assert not caplog.records and not watch.slow
        feed(watch, 2.5e-3, 5000)
        assert watch.slow and len(caplog.records) == 1
        assert "now take 2.0 times" in caplog.text
        feed(watch, 1.9e-3, 5000)
        assert watch.slow, "what is near the border is not reported again and again"
        feed(watch, 1e-3, 5000)
    assert not watch.slow and len(caplog.records) == 2
    assert "are back at 1.5 times" in caplog.text
    assert told == [True, False]


def test_single_late_steps_are_no_drop(caplog):
    watch = Watch()
    feed(watch, 1e-4, 2000)
    for _ in range(20):
        watch.saw(3.0)
        feed(watch, 1e-4, 2000)
    assert not watch.slow and not caplog.records


def test_what_was_measured_before_is_what_is_expected():
    watch = Watch()
    watch.expect(1e-3)
    feed(watch, 3e-3, 3000)
    assert watch.slow
