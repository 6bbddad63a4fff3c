"""Recorded sessions of real agents, through their dialects, declarations and both kinds of template."""

import functools
from pathlib import Path

import pytest

from engine.bench import traces
from engine.bench.bound import on_demand
from engine.bench.prefix import declarations, run_trace
from engine.bench.simulate import CHECKPOINTS, WINDOW, Machine
from engine.bench.toy import language
from engine.prompt.edits.policy import EditPolicy

HERE = Path(__file__).parent
KNOWN = declarations(HERE.parent.parent / "harnesses")
HARNESS = {
    "r_pi_basic": "pi",
    "r_sub_oc": "opencode",
    "s_cc": "claude-code",
    "s_cx": "codex",
    "s_hm": None,
    "s_oc": "opencode",
    "s_occ": "opencode",
}
# Critical tokens that are not new text: subagents have other tools than their parent in front of the same instructions, a
# title was asked for with the first words of the session, and after each compaction the agent asks to go on in the same words.
NOT_KNOWN = {"r_sub_oc": 4_553, "s_oc": 7, "s_occ": 61}
LITTLE = 100  # tokens computed ahead, of which a share says nothing


@functools.cache
def recorded(name):
    requests, declaration = traces.load(HERE / "traces" / f"{name}.jsonl.gz", KNOWN)
    assert (declaration and declaration["harness"]) == HARNESS[name]
    return requests, declaration


@pytest.mark.parametrize("preserving", [True, False], ids=["preserving", "stripping"])
@pytest.mark.parametrize("name", HARNESS)
def test_a_recorded_session_computes_its_bound(name, preserving):
    requests, declaration = recorded(name)
    exact = run_trace(requests, declaration, preserving, Machine())
    least = on_demand([s.prompt for s in exact.served], [s.reply for s in exact.served])
    assert [len(s.prompt) - s.cached for s in exact.served] == least
    assert exact.live <= CHECKPOINTS


@pytest.mark.parametrize("preserving", [True, False], ids=["preserving", "stripping"])
@pytest.mark.parametrize("name", HARNESS)
def test_ahead_only_new_text_is_left(name, preserving):
    requests, declaration = recorded(name)
    ahead = run_trace(requests, declaration, preserving, Machine(), anticipate=True)
    assert sum(max(0, s.critical - s.new) for s in ahead.served) <= NOT_KNOWN.get(name, 0)
    assert ahead.live <= CHECKPOINTS
    assert ahead.wasted <= 0.15 or ahead.background <= LITTLE
    assert ahead.hits == ahead.predicted


@pytest.mark.parametrize("preserving", [True, False], ids=["preserving", "stripping"])
def test_with_no_time_for_work_ahead_nothing_is_lost_by_it(preserving):
    """States that work ahead and prefills keep on the way take no place from those that later requests go on from."""
    requests, declaration = recorded("s_occ")
    exact = run_trace(requests, declaration, preserving, Machine())
    hurried = run_trace(requests, declaration, preserving, Machine(), anticipate=True, tool_s=0.05)
    assert sum(s.critical for s in hurried.served) <= exact.prefilled()


def test_a_session_with_compactions_knows_its_window():
    requests, declaration = recorded("s_occ")
    made = language()
    policy = EditPolicy.compose(declaration, made.template)
    asks = list(traces.asks(requests, policy, declaration))
    assert sum(ask.line.endswith("/compaction") for ask in asks) == 3
    assert 64_000 < traces.window_of(asks, made, policy) < 80_000
    assert traces.window_of(asks[:5], made, policy) == WINDOW


def test_texts_keep_their_length_and_identity():
    assert traces.filled({"$": [["=", "<a>"], ["h1", 9, 1]]}, {}) == "<a>" + traces.words("h1", 9, True)
    assert len(traces.words("h1", 9, True)) == 9 and traces.words("h1", 9, True).endswith("\n")
    assert traces.words("h1", 40, False) != traces.words("h2", 40, False)
    known = ["You are a tester of all"]
    assert traces.filled({"$": [["=", "You are a"], ["h1", 12, 0]]}, {}, known) == "You are a tester of a"
    whole = traces.filled({"$": [["=", "You are a"], ["h1", 30, 0]]}, {}, known)
    assert whole.startswith(known[0]) and len(whole) == 39
