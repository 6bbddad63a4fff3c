"""Prefixes that go to disk and come back, on the runner made of hashes."""

import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.cache.hibernate import Disk
from engine.cache.node import token_array

both = pytest.mark.parametrize("hybrid", [False, True], ids=["attention", "hybrid"])


@pytest.fixture
def folder(tmp_path):
    """In memory where there is such a file system: that files outlive a power cut is not what is tested here."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        yield Path(made)


@pytest.fixture
def restart(bench, folder):
    """Engines one after the other on one folder; each is stopped before the next starts."""
    made = []

    def start(hybrid=False, budget=1 << 20, stop=True, **options):
        if made and stop:
            finish(made[-1])
        b = bench(hybrid, disk=Disk(folder / "disk", budget, "model"), **options)
        made.append(b)
        return b

    start.folder = folder / "disk"
    return start


def finish(b):
    b.scheduler.stop(1.0)
    b.scheduler.run(lambda message: None)


def text(seed, n):
    rng = random.Random(seed)
    return [rng.randrange(5) for _ in range(n)]


@both
def test_after_a_restart_the_next_turn_computes_only_its_new_text(restart, hybrid):
    b = restart(hybrid, pages=600)
    prompt = text(1, 1500)
    reply, _ = b.ask(prompt, session="s", points=[(400, "head"), (1490, "prompt")])
    b = restart(hybrid, pages=600)
    follow = [*prompt, *reply, 3, 3, 3]
    _, usage = b.ask(follow, session="s")
    assert usage["tier"] == "disk" and usage["cached"] == len(prompt) + len(reply) - 1
    assert b.runner.computed_tokens == 4 + 3
    assert b.of("r0", "done")[0]["timings"]["restore_s"] > 0
    _, usage = b.ask([*follow, 1], session="s")
    assert usage["tier"] == "ram"
    b.check()


@both
def test_an_edit_after_a_restart_resumes_at_its_edge(restart, hybrid):
    b = restart(hybrid, pages=600)
    prompt = text(2, 700)
    b.ask(prompt, session="s", points=[(300, "head"), (500, "turn"), (690, "prompt")])
    b = restart(hybrid, pages=600)
    _, usage = b.ask([*prompt[:500], 4, 4, 4, 4, 4], session="s")
    assert usage["tier"] == "disk" and usage["cached"] >= 500
    _, usage = b.ask([*prompt[:690], 2, 2], session="s")
    assert usage["tier"] == "disk" and usage["cached"] >= 690, "the rest comes when it is asked for"
    b.check()


@both
def test_what_was_written_while_idle_survives_a_kill(restart, hybrid):
    b = restart(hybrid, pages=600, clock=lambda: now[0])
    now = [0.0]
    prompt = text(3, 300)
    reply, _ = b.ask(prompt, session="s")
    keeper = b.scheduler.hibernation
    assert 0 < keeper.due_s() <= 3.0
    b.scheduler._save()
    assert len(keeper.disk) == 0, "it may be used again at once"
    now[0] += 4
    while keeper.due_s() is not None:
        b.scheduler._save()
    b = restart(hybrid, pages=600, stop=False)
    _, usage = b.ask([*prompt, *reply, 1, 1], session="s")
    assert usage["tier"] == "disk" and usage["new"] == 3
    modes = {p.stat().st_mode & 0o777 for p in restart.folder.rglob("*") if p.is_file()}
    assert modes == {0o600}


def test_in_between_only_the_states_that_the_next_turn_needs_are_written(restart):
    now = [0.0]
    b = restart(True, pages=600, checkpoints=12, clock=lambda: now[0])
    prompt = text(30, 500)
    b.ask(prompt, session="s", points=[(100, "head"), (200, "turn"), (300, "turn"), (400, "turn"), (490, "prompt")])
    now[0] += 4
    while b.scheduler.hibernation.due_s() is not None:
        b.scheduler._save()

    def positions():
        return sorted(int(p.stem.split("-")[1]) for p in restart.folder.rglob("*.state"))

    assert positions() == [100, 490, 503]
    finish(b)
    assert positions() == [100, 200, 300, 400, 490, 503]


@both
def test_damage_is_named_deleted_and_survived(restart, hybrid, caplog):
    b = restart(hybrid, pages=600)
    prompt = text(4, 300)
    b.ask(prompt, session="s", points=[(100, "head")])
    finish(b)
    whole = {p: p.read_bytes() for p in restart.folder.rglob("*") if p.is_file()}
    deleted = 0
    for path, data in whole.items():
        middle = len(data) // 2
        for bad in (data[:-1], b"", data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]):
            for other, content in whole.items():
                other.write_bytes(content)
            path.write_bytes(bad)
            caplog.clear()
            c = restart(hybrid, pages=600, stop=False)
            c.ask([*prompt, 1], session="s")
            c.check()
            if not path.exists():
                deleted += 1
                assert path.name in caplog.text
            else:
                assert path.read_bytes() == bad, "it was not needed"
    assert deleted >= 3


def test_a_temporary_file_of_a_killed_writer_is_removed(restart):
    restart(pages=50)
    (folder,) = restart.folder.iterdir()
    (folder / "half.tmp").write_bytes(b"1")
    restart(pages=50, stop=False)
    assert not (folder / "half.tmp").exists()


@both
def test_the_budget_holds_and_the_least_recent_goes_first(restart, hybrid):
    budget = 30_000
    b = restart(hybrid, pages=900, budget=budget, checkpoints=12)
    prompts = [text(10 + n, 400) for n in range(12)]
    for n, prompt in enumerate(prompts):
        b.ask(prompt, session=f"s{n}", points=[(100, "head")])
        b.scheduler.hibernation.flush(float("inf"))
        assert sum(p.stat().st_size for p in restart.folder.rglob("*") if p.is_file()) <= budget
    b = restart(hybrid, pages=900, budget=budget, stop=False)
    found = b.scheduler.hibernation.disk.find(token_array(prompts[0]), hybrid)
    assert found is None or found.position < 100, "what others share with it"
    _, usage = b.ask([*prompts[-1], 1], session="s11")
    assert usage["tier"] == "disk" and usage["cached"] >= 399


def test_another_model_neither_reads_nor_is_spared(bench, folder):
    b = bench(pages=300, disk=Disk(folder, 1 << 20, "one"))
    prompt = text(5, 300)
    b.ask(prompt, session="s")
    finish(b)
    other = bench(pages=300, disk=Disk(folder, 6_000, "two"))
    _, usage = other.ask(prompt, session="s")
    assert usage["cached"] == 0
    finish(other)
    assert sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) <= 6_000
    assert len(Disk(folder, 1 << 20, "two")) > 0 and len(Disk(folder, 1 << 20, "one")) == 0


def test_a_disk_that_cannot_be_written_costs_nothing_but_a_warning(restart, monkeypatch, caplog):
    b = restart(pages=300)
    b.ask(text(6, 300), session="s")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    finish(b)
    assert "No space left" in caplog.text and not [p for p in restart.folder.rglob("*") if p.is_file()]


def test_decodes_go_on_while_a_prefix_comes_from_disk(restart):
    b = restart(pages=3000, vocab=5)
    prompt = text(7, 5000)
    b.ask(prompt, session="s", max_tokens=1)
    b = restart(pages=3000)
    talking = b.submit([1, 2], max_tokens=40)
    b.scheduler.step()
    late = b.submit([*prompt, 1], session="s", max_tokens=1)
    for _ in range(4):
        before = len(b.output(talking))
        b.scheduler.step()
        assert len(b.output(talking)) == before + 1 and not b.of(late, "accepted")
    b.drain()
    b.check_output(late)
    assert b.done(late)["usage"]["cached"] == 5000


def test_a_guess_is_read_from_disk_only_while_nobody_waits(restart):
    b = restart(pages=3000)
    prompt = text(31, 5000)
    b.ask(prompt, session="s", max_tokens=1)
    b = restart(pages=3000)
    rid = b.submit(prompt, session="s", max_tokens=0, priority="background")
    b.scheduler.step()
    assert b.scheduler.hibernation.restoring
    reads = []
    whole = b.scheduler.hibernation.disk.segment
    b.scheduler.hibernation.disk.segment = lambda name: reads.append(name) or whole(name)
    talking = b.submit([1, 2], max_tokens=10)
    for _ in range(10):
        b.scheduler.step()
    assert len(b.output(talking)) == 10 and not reads
    b.drain()
    assert b.done(rid)["usage"]["cached"] == 5000 and b.runner.computed_tokens == 2 + 9
    b.check()


def test_a_cancelled_restore_leaves_nothing_held(restart):
    b = restart(pages=600)
    prompt = text(8, 2000)
    b.ask(prompt, session="s")
    b = restart(pages=600)
    rid = b.submit([*prompt, 1], session="s")
    b.scheduler.step()
    b.scheduler.cancel(rid)
    b.check()
    b.drain()
    assert b.pools.pages.used == b.cache.pages


@both
@pytest.mark.parametrize("pages", [14, 200], ids=["tiny", "roomy"])
@pytest.mark.parametrize("examples", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_any_history_over_restarts_equals_the_cold_one(bench, folder, hybrid, pages, examples):
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        turns=st.lists(
            st.tuples(
                st.integers(0, 1 << 20),
                st.lists(st.integers(0, 4), min_size=1, max_size=30),
                st.sampled_from(["ask", "ask", "ask", "guess", "edit", "stop", "kill", "write", "four"]),
            ),
            max_size=12,
        ),
        number=st.integers(0, 1 << 60),
        budget=st.sampled_from([2_000, 1 << 20]),
    )
    def run(turns, number, budget):
        disk = folder / f"{number}"
        options = {"pages": pages, "checkpoints": 6, "chunk_tokens": 9, "max_running": 4, "window": min(pages * 4, 200)}

        def start():
            made = bench(hybrid, disk=Disk(disk, budget, "m"), **options)
            made.scheduler.hibernation._min_tokens = 3
            return made

        b, known = start(), [[1, 2, 3]]
        for seed, tokens, action in turns:
            base = known[seed % len(known)]
            prompt = (base[: seed % (len(base) + 1)] if action == "edit" else base + tokens)[: b.window - 4] or [1]
            points = [(seed * k % len(prompt) + 1, "turn") for k in range(seed % 3)]
            if action in ("ask", "edit"):
                reply, _ = b.ask(prompt, session=f"s{seed % 2}", points=points)
                known.append(prompt + reply)
            elif action == "four":
                rids = [b.submit([*prompt, n], session=f"s{n}", points=points, max_tokens=2) for n in range(4)]
                b.drain()
                for rid in rids:
                    b.check_output(rid)
            elif action == "guess":
                b.submit(prompt, max_tokens=0, priority="background", session=f"s{seed % 2}", points=points)
                b.drain()
            elif action == "write":
                b.scheduler.hibernation.flush(float("inf"))
            else:
                if action == "stop":
                    finish(b)
                b = start()
            b.check()

    run()
