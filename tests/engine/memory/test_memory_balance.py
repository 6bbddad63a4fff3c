"""What the balancer is told: how conversations grow, and what steps and misses cost."""

from __future__ import annotations

import random

import pytest

from engine.memory.balance.cost import SETTLING, StepCost
from engine.memory.balance.growth import DONE, FIRST_GROWTH, MOST_LINES, Growth


def test_growth_is_what_turns_of_this_line_added():
    growth = Growth()
    for i in range(40):
        growth.ended("a", 4000 + 700 * i, 150, now_s=10.0 * i)
        growth.ended("b", 2000 + 50 * i, 150, now_s=10.0 * i)
    a, b = growth.lines(391.0, {})
    assert (a.tokens, b.tokens) == (4000 + 700 * 39, 2000 + 50 * 39)
    assert a.growth == pytest.approx(700) and b.growth == pytest.approx(50)
    assert a.reuse == b.reuse == 1.0 and not a.running
    assert growth.steps_per_turn == pytest.approx(150, rel=0.01)


def test_a_line_that_rests_longer_than_usual_is_less_likely_to_go_on():
    growth = Growth()
    for i in range(30):
        growth.ended("a", 1000 + i, 10, now_s=5.0 * i)
    reuse = [growth.lines(145.0 + idle, {})[0].reuse for idle in (0, 10, 100, 1000, 10_000)]
    assert reuse[:3] == [1.0, 1.0, 1.0]
    assert reuse == sorted(reuse, reverse=True) and 0 < reuse[4] < 0.02


def test_a_line_is_less_likely_to_go_on_the_more_turns_others_have():
    growth = Growth()
    growth.ended("a", 1000, 10, 0.0)
    reuse = []
    for i in range(60):
        growth.ended("b", 1000 + i, 10, 0.1 * i)
        reuse.append(growth.lines(0.1 * i, {})[0].reuse)
    assert reuse[:2] == [1.0, 1.0] and reuse == sorted(reuse, reverse=True)
    assert reuse[9] == pytest.approx(3 / 11) and reuse[59] == pytest.approx(3 / 61)


def test_a_thread_is_done_when_the_line_before_it_goes_on_and_not_when_it_came_back_once():
    growth = Growth()

    def reuse() -> dict[str, float]:
        return dict(zip(growth._seen, (line.reuse for line in growth.lines(0.0, {})), strict=True))

    growth.ended("s", 1000, 10, 0.0)
    growth.ended("s/one", 500, 10, 0.0)
    growth.ended("s/two", 500, 10, 0.0)
    assert reuse() == {"s": 1.0, "s/one": 1.0, "s/two": 1.0}, "the main line waits for both"
    growth.ended("other", 1000, 10, 0.0)
    assert reuse()["s/one"] > 0.5
    running = growth.lines(0.0, {"s": 1100})
    assert [line.reuse for line in running if not line.running][:2] == [DONE, DONE], "known as soon as it goes on"
    growth.ended("s", 1200, 10, 0.0)
    assert reuse()["s/one"] == reuse()["s/two"] == DONE < reuse()["s"] == reuse()["other"]
    growth.ended("s/one", 700, 10, 0.0)
    growth.ended("s", 1400, 10, 0.0)
    assert reuse()["s/one"] == 1.0 and reuse()["s/two"] == DONE


def test_what_runs_is_said_to_run_and_new_lines_have_a_guess():
    growth = Growth()
    growth.ended("a", 5000, 10, 0.0)
    running, resting = growth.lines(1.0, {"new": 300})
    assert running.running and running.tokens == 300 and running.growth == FIRST_GROWTH
    assert not resting.running and resting.growth == FIRST_GROWTH
    (a,) = growth.lines(1.0, {"a": 100})
    assert a.running and a.tokens == 5000


def test_a_conversation_that_was_cut_does_not_shrink_its_forecast_below_nothing():
    growth = Growth()
    growth.ended("a", 60_000, 10, 0.0)
    growth.ended("a", 9000, 10, 5.0)
    (line,) = growth.lines(6.0, {})
    assert line.tokens == 9000 and line.growth == 0


def test_only_so_many_lines_are_remembered_and_nameless_ones_never():
    growth = Growth()
    for i in range(2 * MOST_LINES):
        growth.ended(f"line {i}", 100, 1, float(i))
        growth.ended("", 100, 1, float(i))
    assert len(growth.lines(0.0, {})) == MOST_LINES


@pytest.mark.parametrize("miss_s", [0.2e-3, 2e-3])
@pytest.mark.parametrize("wrong", [0.5, 1.0, 2.0])
def test_the_cost_of_a_miss_is_learnt_from_steps_that_differ(miss_s, wrong):
    source, cost = random.Random(1), StepCost(miss_s * wrong)
    for i in range(2000):
        misses = source.randint(0, 40) + (30 if i > 500 else 0)
        cost.note((5e-3 + misses * miss_s) * source.uniform(0.95, 1.05), misses)
    assert cost.miss_s == pytest.approx(miss_s, rel=0.12)
    predicted = cost.step_s + cost.miss_s * 50
    assert predicted == pytest.approx(5e-3 + 50 * miss_s, rel=0.05)


def test_steps_that_are_all_alike_leave_the_expected_cost():
    cost = StepCost(1e-3)
    for _ in range(1000):
        cost.note(0.025, 20)
    assert cost.known and cost.misses == pytest.approx(20)
    assert cost.miss_s == pytest.approx(1e-3, rel=1e-6) and cost.step_s == pytest.approx(5e-3, rel=1e-6)


def test_nothing_known_is_no_cost_and_one_long_stall_is_no_trend():
    cost = StepCost(1e-3)
    assert not cost.known and cost.miss_s == 1e-3 and cost.step_s == 0
    for _ in range(3):
        cost.note(5.0, 10)  # while a model was being read, say
    for _ in range(2 * SETTLING):
        cost.note(0.01, 0)
    assert cost.known and cost.step_s == pytest.approx(0.01, rel=0.2)
    before = cost.step_s
    cost.note(10.0, 0)
    assert cost.step_s < before * 1.1


def test_misses_cannot_cost_more_than_the_whole_step():
    cost = StepCost(1.0)
    for _ in range(100):
        cost.note(0.01, 10)
    assert cost.step_s > 0 and cost.step_s + 10 * cost.miss_s == pytest.approx(0.01)
