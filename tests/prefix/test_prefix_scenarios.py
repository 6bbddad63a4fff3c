"""Sessions whose context is edited, through the real policy, scheduler and caches: every number here is a token count."""

import pytest

from engine.bench.bound import by_construction, on_demand, prompt_pieces, reply_pieces
from engine.bench.prefix import run
from engine.bench.scenarios import QUICK, SCENARIOS, Sizes
from engine.bench.simulate import CHECKPOINTS, Machine
from engine.bench.toy import language

BASE = Sizes()
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
CPU, COARSE = Machine(), Machine(grid=64)

# Tokens of the base session, at least: on demand, and with everything known computed ahead.
BOUND = {
    "append": 70_083,
    "strip_all": 76_549,
    "strip_prev": 117_387,
    "clear_tools": 292_778,
    "clear_tools_8": 105_093,
    "reminder": 130_868,
    "carrier": 79_788,
    "compact": 82_794,
    "volatile_header": 70_083,
    "subagent_12k": 598,
    "subagent_6k": 598,
    "reserialise": 73_688,
}


def pieces(scenario, sizes):
    for ask in scenario.asks(sizes):
        conversation = scenario.canonical(ask.conversation)
        yield ask, prompt_pieces(conversation, scenario.preserve_thinking), reply_pieces(ask.reply)


@pytest.mark.parametrize("name", BY_NAME)
def test_bound_is_that_of_the_construction(name):
    scenario = BY_NAME[name]
    made = language(scenario.preserve_thinking)
    prompts, replies, built = [], [], []
    for ask, prompt, reply in pieces(scenario, QUICK):
        conversation = scenario.canonical(ask.conversation)
        prompts.append(made.render(conversation).tokens)
        replies.append(made.script_tokens(ask.reply, conversation))
        built.append((prompt, reply))
        assert len(prompts[-1]) == sum(size for _, size in prompt)
        assert len(replies[-1]) == sum(size for _, size in reply)
    assert on_demand(prompts, replies) == by_construction(built)


@pytest.mark.parametrize("name", BY_NAME)
def test_on_demand_is_the_bound(name):
    scenario = BY_NAME[name]
    asks = list(pieces(scenario, BASE))
    built = by_construction([(prompt, reply) for _, prompt, reply in asks])
    counted = [n for n, (ask, _, _) in zip(built, asks, strict=True) if scenario.counted in ("", ask.line)]
    assert sum(counted) == BOUND[name]
    exact = run(scenario, BASE, CPU)
    assert [len(s.prompt) - s.cached for s in exact.served] == bounds(exact)
    assert exact.prefilled(scenario.counted) == (BOUND["append"] if name == "reserialise" else BOUND[name])
    assert exact.live <= CHECKPOINTS


@pytest.mark.parametrize("name", BY_NAME)
def test_on_a_grid_at_most_63_tokens_more_a_request(name):
    scenario = BY_NAME[name]
    coarse = run(scenario, QUICK, COARSE)
    over = [len(s.prompt) - s.cached - n for s, n in zip(coarse.served, bounds(coarse), strict=True)]
    assert max(over) <= 63 and min(over) >= 0
    assert coarse.live <= CHECKPOINTS


def bounds(result):
    """The history as it was computed, which is shorter than `BOUND` where the token map recognises what comes back."""
    return on_demand([s.prompt for s in result.served], [s.reply for s in result.served])


CRITICAL = {
    "append": 70_044,
    "strip_all": 71_000,
    "strip_prev": 71_000,
    "clear_tools": 72_000,
    "clear_tools_8": 72_000,
    "compact": 73_000,
    "volatile_header": 71_000,
    "subagent_12k": 670,
    "subagent_6k": 670,
    "reserialise": 71_000,
}


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_known_is_computed_before_it_is_asked_for(name):
    scenario = BY_NAME[name]
    ahead = run(scenario, BASE, CPU, anticipate=True)
    new = sum(s.new for s in ahead.of(scenario.counted))
    assert ahead.critical(scenario.counted) <= min(CRITICAL.get(name, new), new)
    assert ahead.live <= CHECKPOINTS
    assert ahead.wasted <= 0.15
    assert ahead.hits >= 0.95 * ahead.predicted
