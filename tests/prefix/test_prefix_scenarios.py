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


# With everything known computed before it is asked for: (tokens computed while somebody waits, ahead of that).
AHEAD = {
    "append": (69_966, 117),
    "strip_all": (69_966, 6_583),
    "strip_prev": (69_966, 47_421),
    "clear_tools": (69_966, 222_812),
    "clear_tools_8": (69_966, 35_127),
    "reminder": (70_571, 60_297),
    "carrier": (73_166, 6_622),
    "compact": (70_570, 12_224),
    "volatile_header": (69_966, 117),
    "subagent_12k": (598, 0),
    "subagent_6k": (598, 0),
    "reserialise": (69_966, 117),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_known_is_computed_before_it_is_asked_for(name):
    scenario = BY_NAME[name]
    ahead = run(scenario, BASE, CPU, anticipate=True)
    assert (ahead.critical(scenario.counted), ahead.background) == AHEAD[name]
    assert all(s.critical <= s.new for s in ahead.of(scenario.counted)), "something else than new text was waited for"
    assert ahead.live <= CHECKPOINTS
    assert ahead.wasted <= 0.005
    assert ahead.hits == ahead.predicted


@pytest.mark.parametrize("name", ["clear_tools", "reminder"])
def test_a_pause_that_is_too_short_still_saves_what_fits_into_it(name):
    scenario = BY_NAME[name]
    least = run(scenario, QUICK, CPU).prefilled()
    critical = [run(scenario, QUICK, CPU, anticipate=True, tool_s=tool_s).critical() for tool_s in (0.05, 0.5, 1000.0)]
    assert least > critical[0] > critical[1] > critical[2]
    assert run(scenario, QUICK, CPU, anticipate=True).critical() == critical[2]
