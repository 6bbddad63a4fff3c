"""Recorded sessions of real agents, through their dialects, declarations and both kinds of template."""

from pathlib import Path

import pytest

from engine.bench import traces
from engine.bench.bound import on_demand
from engine.bench.prefix import declarations, run_trace
from engine.bench.simulate import CHECKPOINTS, Machine

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
NOT_KNOWN = {"r_sub_oc": 9000, "s_occ": 40}  # critical tokens that are not new text


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
    assert ahead.critical() <= sum(s.new for s in ahead.served) + NOT_KNOWN.get(name, 0)
    assert ahead.live <= CHECKPOINTS


def test_texts_keep_their_length_and_identity():
    assert traces.filled({"$": [["=", "<a>"], ["h1", 9, 1]]}, {}) == "<a>" + traces.words("h1", 9, True)
    assert len(traces.words("h1", 9, True)) == 9 and traces.words("h1", 9, True).endswith("\n")
    assert traces.words("h1", 40, False) != traces.words("h2", 40, False)
