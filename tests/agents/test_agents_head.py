"""A published agent's second session, in another process of the engine: how it begins is computed while it starts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.agents.conftest import BIN

pytestmark = pytest.mark.agents

ANSWER = "Said."


@pytest.mark.timeout(300)
def test_the_first_request_of_a_second_session_computes_its_own_text_only(rig: Any) -> None:
    rig.install("pi")
    script = rig.folder / "script.json"
    script.write_text(json.dumps({"turns": [{"blocks": [{"text": ANSWER}]}], "side": "A title"}))
    ft = str(BIN / "ft")
    told = ("Say it.", "Repeat what was said.")
    launches = [[ft, "launch", "pi", "-m", "tiny-hybrid", "--script", str(script), "--", "-p", text] for text in told]
    look, stop = [ft, "ctl", "requests", "--json"], [ft, "engine", "stop"]
    seen = rig.run(launches[0], look, stop, launches[1], look, stop, timeout_s=100)["results"]
    assert [result["code"] for result in seen] == [0] * 6, seen
    cold, warm = (json.loads(seen[number]["stdout"])["requests"][0] for number in (1, 4))
    print({name: (cold[name], warm[name]) for name in ("prompt_tokens", "cached_tokens", "new_tokens", "ttft_s")})
    assert cold["cached_tokens"] == 0 and cold["prompt_tokens"] > 1000
    assert warm["replayed_tokens"] + warm["new_tokens"] < 64
    assert warm["cached_tokens"] > 1000 and warm["tier"] in ("ram", "disk")
