"""Whatever happened before, each reply equals the one a cold engine gives."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.protocol import Submit

KINDS = ("head", "turn", "frontier", "reminder", "live", "prompt")


def conversations(vocab=5):
    return st.lists(
        st.tuples(
            st.sampled_from(["new", "append", "edit", "edit", "append", "guess", "guess", "cancel", "steps", "fail"]),
            st.integers(0, 1 << 30),
            st.lists(st.integers(0, vocab - 1), min_size=1, max_size=25),
            st.integers(1, 8),
            st.sampled_from(["main", "main", "main", "side", "background"]),
        ),
        max_size=25,
    )


def guess(b, n, seed, tokens, transcripts):
    """A likely next prompt, cut somewhere, computed ahead."""
    base = transcripts[seed % len(transcripts)]
    prompt = (base + tokens)[: max(1, seed % (len(base) + len(tokens)))][: b.window]
    points = [(seed * k % len(prompt) + 1, KINDS[(seed + k) % 6], seed % 3, "e") for k in range(seed % 4)]
    fields = {"session": f"s{seed % 3}", "points": points, "supersedes": bool(seed % 2)}
    b.submit(prompt, max_tokens=0, rid=f"r{n}", priority="background", **fields)
    return prompt


def arrive_meanwhile(b, rid, prompt, seed):
    """A real request that is posted between two layers of whatever runs."""
    late = b.submits[rid] = Submit(rid, prompt, 2, session=f"s{seed % 3}")
    calls = iter(range(10))
    b.runner.on_layer = lambda: b.scheduler.post(late.message()) if next(calls, None) == seed % 3 else None
    b.scheduler.step()
    b.runner.on_layer = lambda: None
    b.scheduler.submit(late)
    return prompt


def play(b, actions, with_failures):
    transcripts = [[1, 2, 3, 0, 1]]
    pending = {}  # rid -> prompt, until its reply is known
    for n, (action, seed, tokens, amount, priority) in enumerate(actions):
        if action == "guess":
            prompt = guess(b, n, seed, tokens, transcripts)
            if seed % 4 == 0:
                pending[f"u{n}"] = arrive_meanwhile(b, f"u{n}", (prompt + tokens)[: b.window - 2], seed)
        elif action in ("new", "append", "edit"):
            base = transcripts[seed % len(transcripts)] if action != "new" else []
            if action == "edit":
                base = base[: seed % (len(base) + 1)]
            prompt = (base + tokens)[: b.window - amount]
            points = [(seed * k % len(prompt) + 1, KINDS[(seed + k) % 6], seed % 3, "e") for k in range(seed % 4)]
            fields = {"stop_ids": [seed % 7], "priority": priority, "session": f"s{seed % 3}", "points": points}
            if seed % 5 == 0:
                fields["forced"] = tokens[:amount]
            rid = b.submit(prompt, max_tokens=amount, rid=f"r{n}", **fields)
            pending[rid] = prompt
        elif action == "cancel" and b.submits:
            # Posted while the step runs, so that it lands between layers.
            rid = list(b.submits)[seed % len(b.submits)]
            calls = iter(range(10))
            b.runner.on_layer = lambda rid=rid, calls=calls: (
                b.scheduler.post({"t": "cancel", "rid": rid}) if next(calls, None) == seed % 3 else None
            )
            b.scheduler.step()
            b.runner.on_layer = lambda: None
            b.scheduler.cancel(rid)
        elif action == "fail" and with_failures:
            b.runner.fail_next = MemoryError("no memory")
        for _ in range(amount if action == "steps" else seed % 3):
            b.scheduler.step()
            b.check()
        for rid in [r for r in pending if b.of(r, "done")]:
            transcripts.append(pending.pop(rid) + b.output(rid))
    b.runner.fail_next = None
    b.drain()
    b.check()
    assert not b.scheduler.running and not len(b.scheduler.waiting)
    for rid in b.submits:
        if b.submits[rid].max_tokens == 0:
            assert not b.output(rid)
            assert b.of(rid, "error") or b.done(rid)["reason"] in ("stop", "length", "cancelled")
        elif b.of(rid, "error"):
            assert with_failures and not b.of(rid, "done")
            assert b.of(rid, "error")[0]["code"].startswith("FT-E0501")
        else:
            b.check_output(rid)


relaxed = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("hybrid", [False, True], ids=["attention", "hybrid"])
@pytest.mark.parametrize("pages", [11, 200], ids=["tiny", "roomy"])
def test_every_reply_equals_the_cold_one(bench, hybrid, pages):
    @relaxed
    @given(actions=conversations(), checkpoints=st.integers(0, 8), chunk=st.integers(1, 20), running=st.integers(1, 4))
    def run(actions, checkpoints, chunk, running):
        b = bench(hybrid, pages, running, chunk, checkpoints, window=min(44, pages * 4))
        play(b, actions, with_failures=True)

    run()
