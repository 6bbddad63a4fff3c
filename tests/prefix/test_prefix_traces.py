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
OPENING = 16  # tokens that unrelated prompts begin with: no checkpoint is kept for them

# Tokens beyond the bound, by request. The first subagent's tools part from the main agent's in the middle of the head,
# where nothing is declared; its siblings resume there. The others are forks inside the text of a side request's wrapper
# or of a summary, and answers that nobody recorded.
BEYOND = {"r_sub_oc": {2: 4240}, "s_occ": {15: 18, 16: 17, 23: 17}, "s_hm": {4: 2, 7: 2}}
NOT_KNOWN = {"r_sub_oc": 9000, "s_occ": 40}  # critical tokens that are not new text


def recorded(name):
    requests = traces.read(HERE / "traces" / f"{name}.jsonl.gz", traces.phrases_of(KNOWN))
    declaration = traces.declared(requests, KNOWN)
    assert (declaration and declaration["harness"]) == HARNESS[name]
    return requests, declaration


@pytest.mark.parametrize("preserving", [True, False], ids=["preserving", "stripping"])
@pytest.mark.parametrize("name", HARNESS)
def test_a_recorded_session_computes_its_bound(name, preserving):
    requests, declaration = recorded(name)
    exact = run_trace(requests, declaration, preserving, Machine())
    least = on_demand([s.prompt for s in exact.served], [s.reply for s in exact.served])
    allowed = BEYOND.get(name, {})
    for i, (served, bound) in enumerate(zip(exact.served, least, strict=True)):
        shared, computed = len(served.prompt) - bound, len(served.prompt) - served.cached
        if shared > OPENING:
            assert 0 <= computed - bound <= allowed.get(i, 0), f"request {i}"
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
