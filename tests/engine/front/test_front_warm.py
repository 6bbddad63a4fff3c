"""Case 30 on the real engine: a warm session polls while another one's long cold prompt is computed, slowly."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.serving import Engine, engine_server

RATE = 100


def asks(engine: Engine, session: dict[str, Any], messages: list[dict[str, Any]]) -> dict[str, Any]:
    answer = engine.client.post(
        f"/s/{session['id']}/v1/chat/completions",
        json={"messages": messages, "max_tokens": 2},
        headers={"authorization": f"Bearer {session['token']}"},
        timeout=120,
    )
    return dict(answer.raise_for_status().json()["usage"])


def test_case_30_a_warm_session_beside_a_cold_prefill(models_dir: Path) -> None:
    flags = ["--kv", "16k", "--throttle-tokens-per-s", str(RATE), "--chunk-tokens", "64", "--anticipate", "off"]
    with engine_server("tiny-hybrid", models_dir, flags=flags) as engine:
        warm, cold = engine.session(), engine.session()
        talk = [{"role": "user", "content": "one two three four five six " * 30}]
        asks(engine, warm, talk)
        long = [{"role": "user", "content": "seven eight nine ten eleven twelve " * 320}]
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(asks, engine, cold, long)
            while not any(r["prefill_done"] for r in engine.get("/v1/requests")["requests"] if r["end"] is None):
                pass
            for turn in range(4):
                talk += [{"role": "assistant", "content": "So."}, {"role": "user", "content": f"And {turn}?"}]
                asks(engine, warm, talk)
                assert not asked.done(), "the cold one is still at it"
            assert asked.result()["prompt_tokens"] > 1500
        turns = engine.get(f"/v1/sessions/{warm['id']}/turns")["turns"][1:]
        own_s = [(t["prompt_tokens"] - t["cached_tokens"]) / RATE for t in turns]
        # The rest of a chunk that had begun, its own tokens, and no more of the other's; the rest is this machine's.
        assert all(t["ttft_s"] < 64 / RATE + 2 * max(s, 0.64) + 6 for t, s in zip(turns, own_s, strict=True)), turns
