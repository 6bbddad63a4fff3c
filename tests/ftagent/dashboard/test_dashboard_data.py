"""The data of the dashboard without an engine: watchdog arithmetic, records, the tree, JSON, patches, redaction, recordings."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftagent.context import Context
from ftagent.dashboard.codec import from_json, to_json
from ftagent.dashboard.framing import frame_of
from ftagent.dashboard.gather import EVENTS, Gathered
from ftagent.dashboard.http import ServerEvent
from ftagent.dashboard.live import LiveSource
from ftagent.dashboard.mock import SCENARIOS, MockSource, frame
from ftagent.dashboard.model import Anchor, Frame, InFlight
from ftagent.dashboard.patches import applied, patch
from ftagent.dashboard.plain import text_of
from ftagent.dashboard.recorder import Recorder, ReplaySource, load
from ftagent.dashboard.records import Pace, event_of, in_flight_of
from ftagent.dashboard.redact import clean
from ftagent.dashboard.requests import TURNS
from ftagent.dashboard.tree import roots_of, walk
from ftagent.dashboard.views import flags_of, log_line
from ftagent.dashboard.watchdog import alerts, judge, least
from ftagent.errors import FtError
from ftagent.paths import find_paths
from ftagent.schemas import schema_of
from ftagent.settings.config import load_settings

RECORD: dict[str, Any] = {
    "id": "req1", "session": "s-aaaaaaaaaa", "api": "anthropic", "stream": True, "started": 1000.0, "prompt_tokens": 5000,
    "cached_tokens": 1000, "replayed_tokens": 100, "new_tokens": 3900, "anticipated_tokens": 7, "prefill_done": 3000,
    "tier": "ram", "heartbeats": 2, "last_beat": 1010.0, "watchdog_s": 100.0, "end": None, "ttft_s": None,
    "predicted_ttft_s": 60.0, "line": "s-aaaaaaaaaa/x", "kind": None, "side": False,
}  # fmt: skip


def folder(tmp_path: Path) -> Gathered:
    return Gathered(find_paths({"FT_HOME": str(tmp_path), "HOME": str(tmp_path)}), tmp_path, None)


# Silence and limits


@pytest.mark.parametrize(
    ("silence", "level", "margin"),
    [(0, "ok", 100), (49, "ok", 51), (50, "amber", 50), (80, "amber", 20), (81, "red", 19)],
)
def test_levels_of_a_watchdog(silence: float, level: str, margin: float) -> None:
    dog = judge(100, "session", silence, 30.0)
    assert (dog.level, dog.margin_s) == (level, margin)
    assert dog.will_miss == (silence + 30 > 100)


def test_what_is_not_known_of_a_limit_stays_unknown() -> None:
    assert judge(None, None, 30.0).level is None and judge(None, None, 30.0).margin_s is None
    assert judge(100, "session").silence_s is None and judge(100, "session").level is None
    assert least([(None, "a"), (300.0, "b"), (120.0, "c"), (0, "d")]) == (120.0, "c")
    assert least([(None, "a")]) == (None, None)


def test_a_banner_comes_under_a_fifth_of_the_patience_most_urgent_first() -> None:
    def one(request: str, silence: float) -> InFlight:
        return InFlight(request, name=request, watchdog=judge(100, "session", silence))

    found = alerts([one("a", 79), one("b", 85), one("c", 120), one("d", 99)])
    assert [alert.request for alert in found] == ["c", "d", "b"]
    assert "is over" in found[0].text and {key for key, _ in found[0].keys} == {"k", "X", "b"}


# Records


def test_silence_counts_from_the_newest_heartbeat_of_a_stream_and_ends_with_the_first_token() -> None:
    now = 1015.0
    assert in_flight_of(RECORD, "a", "claude", Pace(), now).watchdog.silence_s == 5.0
    assert in_flight_of({**RECORD, "stream": False}, "a", "claude", Pace(), now).watchdog.silence_s == 15.0
    assert in_flight_of({**RECORD, "last_beat": None}, "a", "claude", Pace(), now).watchdog.silence_s == 15.0
    assert in_flight_of({**RECORD, "ttft_s": 12.0}, "a", "claude", Pace(), now).watchdog.silence_s is None


def test_progress_and_what_is_left_come_from_the_scheduler() -> None:
    pace = Pace()
    for at, position in ((1001.0, 1000), (1005.0, 1400), (1009.0, 1800), (1009.5, 1800)):
        pace.computed(at, position)
    assert pace.prefill_tps == pytest.approx(100.0)
    one = in_flight_of({**RECORD, "prefill_done": 1800}, "a", "claude", pace, 1010.0)
    assert (one.stage, one.todo_tokens, one.done_tokens) == ("prefill", 4000, 800)
    assert one.progress == pytest.approx(0.2) and one.eta_s == pytest.approx(32.0)
    assert one.watchdog.forecast_p50_s == one.eta_s and one.watchdog.forecast_p95_s is None
    spread = in_flight_of({**RECORD, "prefill_done": 1800}, "a", "claude", pace, 1010.0, 1.5)
    assert spread.watchdog.forecast_p95_s == pytest.approx(48.0)
    early = in_flight_of({**RECORD, "prefill_done": None}, "a", "claude", Pace(), 1010.0)
    assert early.eta_s == pytest.approx(50.0)  # of the forecast, ten seconds are over
    waiting = in_flight_of({**RECORD, "cached_tokens": None, "prefill_done": None}, "a", "claude", Pace(), 1010.0)
    assert (waiting.stage, waiting.todo_tokens, waiting.progress, waiting.queue_s) == ("queue", None, None, 10.0)


def test_events_say_what_happened_and_never_what_was_said() -> None:
    broke = {"token": 1204, "predicted": False}
    ended = {
        **RECORD,
        "end": "stop",
        "ttft_s": 44.0,
        "broke_at": broke,
        "replayed_tokens": 10800,
        "texts": {"old": "SECRET"},
    }
    event = event_of(ServerEvent(7, "request", ended), "oc")
    assert event is not None and event.level == "warn" and "1,204" in event.text and "10,800" in event.text
    assert "SECRET" not in json.dumps(to_json(Frame(0.0, events=(event,))))
    assert event_of(ServerEvent(8, "request", RECORD), "") is None  # it began
    assert event_of(ServerEvent(9, "prefill", {}), "") is None and event_of(ServerEvent(None, "hello", {}), "") is None
    gone = event_of(ServerEvent(9, "worker_gone", {"message": "Killed.", "restart_in_s": 1.0}), "")
    assert gone is not None and gone.level == "error"


def test_a_stream_is_taken_in_once_and_in_order_whatever_is_sent_again(tmp_path: Path) -> None:
    known = folder(tmp_path)
    ended = {**RECORD, "end": "stop", "ttft_s": 1.0}
    for _ in range(2):
        known.event(ServerEvent(1, "request", RECORD), 1000.0)
        known.event(ServerEvent(2, "prefill", {"request": "req1", "done": 2000, "time": 1001.0}), 1001.0)
        known.event(ServerEvent(3, "request", ended), 1002.0)
    seen = frame_of(known, 1003.0)
    assert seen.in_flight == () and [turn.ended for turn in seen.turns] == ["stop"] and len(seen.events) == 1


def test_a_hundred_thousand_events_leave_nothing_behind(tmp_path: Path) -> None:
    known = folder(tmp_path)
    sizes = []
    for i in range(100_000):
        if i % 4 == 0:
            record = {**RECORD, "id": f"req{i}", "line": f"line{i}", "session": f"s-{i}"}
            known.event(ServerEvent(2 * i + 1, "request", {**record, "end": "stop" if i % 8 else None}), float(i))
        else:
            known.event(
                ServerEvent(2 * i + 1, "prefill", {"request": f"req{i // 4 * 4}", "done": i, "time": float(i)}),
                float(i),
            )
        if i % 200 == 0:
            known.running([], float(i))
        if i in (30_000, 99_999):
            gc.collect()
            sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE"))
    assert sizes[1] < sizes[0] + (8 << 20)
    seen = frame_of(known, 100_000.0)
    assert len(seen.turns) <= TURNS and len(seen.events) <= EVENTS


def test_what_changes_while_an_answer_is_on_its_way_is_asked_for_again(tmp_path: Path) -> None:
    context = Context(folder(tmp_path).paths, {}, tmp_path, debug=False, colour="never", no_input=True)
    source = LiveSource(context)
    known, asked = source.link.gathered, []

    class Slow:
        async def get(self, route: str, timeout_s: float = 5.0) -> dict[str, Any]:
            asked.append(route)
            if len(asked) == 1:
                known.event(ServerEvent(1, "request", {**RECORD, "end": "stop"}), 1000.0)
            return {"sessions": []}

    source.link.http = Slow()  # type: ignore[assignment]

    async def work() -> None:
        for _ in range(3):
            await source._ask_sessions()

    asyncio.run(work())
    assert asked == ["/v1/sessions"] * 2, "once more after the change, then no more"


# Views


def test_the_tree_hangs_states_below_their_prefix() -> None:
    listed = [
        {"id": 1, "parent": None, "position": 100, "line": "s-a/x", "lines": ["s-a/x", "s-b/y"], "kind": "head"},
        {"id": 2, "parent": 1, "position": 300, "line": "s-a/x", "kind": "turn"},
        {"id": 3, "parent": 1, "position": 200, "line": "s-b/y", "kind": "turn"},
        {"id": 4, "parent": 2, "position": 400, "line": "s-a/x", "kind": "turn"},
        {"id": 5, "parent": None, "position": 50, "line": "s-c/z", "kind": "turn"},
    ]
    roots = roots_of(listed, {"s-a": "one"})
    assert [(depth, anchor.id) for depth, anchor in walk(roots)] == [(0, "5"), (0, "1"), (1, "3"), (1, "2"), (2, "4")]
    assert roots[1].sessions == ("one", "s-b")


def test_an_engine_that_tells_no_parents_has_a_chain_for_each_line() -> None:
    listed = [{"position": p, "line": line} for line in ("s-a/x", "s-b/y") for p in (300, 100, 200)]
    roots: tuple[Anchor, ...] = roots_of(listed, {})
    assert sorted(depth for depth, _ in walk(roots)) == [0, 0, 1, 1, 2, 2]


def test_a_flag_knows_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("threads = 3\n")
    settings = load_settings(file, None, {})
    stats = {
        "engine": {
            "settings": {
                "threads": 3,
                "chunk_tokens": 512,
                "kv_tokens": 4096,
                "max_running": 9,
                "device_memory": "not used here",
            }
        }
    }
    arguments = ["engine", "serve", "--threads", "3", "--max-running-requests", "9"]
    found = {f.name: (f.value, f.origin) for f in flags_of(stats, settings, arguments, {})}
    assert found["threads"] == ("3", "config.toml") and found["max_running"] == ("9", "flag")
    assert found["chunk_tokens"] == ("512", "default") and found["kv_tokens"] == ("4,096", "chosen")
    assert found["device_memory"] == ("not used here", None)
    pinned = flags_of(stats, settings, arguments, {"kv": {"pinned": True}})
    assert {f.name: f.origin for f in pinned}["kv_tokens"] == "set by hand"
    assert {f.origin for f in flags_of(stats, settings, None, {})} == {None}  # another user's process, another machine


def test_log_lines_have_a_level_where_they_say_one() -> None:
    line = log_line("2026-09-21 12:03:29,512 WARNING engine.front: the worker is slow")
    assert (line.level, line.at, line.text) == ("warning", "12:03:29", "engine.front: the worker is slow")
    line = log_line("2026-11-30 16:23:18,322 worker INFO the first forward takes 250.4 MiB")
    assert (line.level, line.at, line.text) == ("info", "16:23:18", "worker: the first forward takes 250.4 MiB")
    assert log_line("  File x").level is None and log_line("").text == ""


# JSON, recordings


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_frame_survives_json_and_keeps_its_schema(scenario: str) -> None:
    seen = frame(scenario, 1.5)
    document = json.loads(json.dumps(to_json(seen)))
    jsonschema.validate(document, schema_of("ft.dashboard/1"))
    assert from_json(document) == seen
    assert text_of(seen).startswith("engine") and "None" not in text_of(seen)


@pytest.mark.parametrize(
    "change", [{"schema": "ft.other/1"}, {"engine": 3}, {"now": "x"}, {"sessions": [{}]}, {"offers": ["fly"]}]
)
def test_what_is_no_frame_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not"):
        from_json({**to_json(frame("four")), **change})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=20,
)


@given(JSON, JSON)
def test_a_patch_makes_the_new_document_from_the_old_one(old: Any, new: Any) -> None:
    change = patch({"x": old}, {"x": new})
    assert applied({"x": old}, json.loads(json.dumps(change))) == {"x": new}


def test_a_list_that_moves_on_costs_what_is_new() -> None:
    old = [{"at": i, "text": "x" * 50} for i in range(200)]
    new = [*old[3:], {"at": 200, "text": "new"}]
    change = patch(old, new)
    assert applied(old, change) == new and len(json.dumps(change)) < 100


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot read /home/ann/shop/src/a.py, sorry", "cannot read …/a.py, sorry"),
        ("~/clients/secret/x.log", "…/x.log"),
        ("Authorization: Bearer abc.def", "Authorization: [secret]"),
        ("key ft_sess_Ab-12 and sk-abcdefgh12", "key [secret] and [secret]"),
        ("http://ann:pw@127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("/v1/stats of http://127.0.0.1:1919/v1/x", "/v1/stats of http://127.0.0.1:1919/v1/x"),
        ("3 / 0.30 / 15 and 12/64", "3 / 0.30 / 15 and 12/64"),
    ],
)
def test_texts_are_cleaned_of_paths_and_secrets(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_a_recording_plays_what_was_seen(tmp_path: Path) -> None:
    recorder, file = Recorder(minutes=1), tmp_path / "flight"
    seen = [frame("four", i / 2) for i in range(240)]
    for one in seen:
        recorder.add(one)
    frames = recorder.save(file)
    assert 55 <= frames <= 62  # one a second, of the last minute
    assert file.stat().st_mode & 0o077 == 0 and file.stat().st_size < 400_000
    played = load(file)
    assert len(played) == frames and played[-1].now == seen[-1].now and played[0].now >= seen[-1].now - 61
    expected = replace(seen[-1], source=f"replay {file.name}", readonly=True, offers=())
    assert played[-1] == expected
    raw = gzip.decompress(file.read_bytes()).decode()
    assert raw.count("\n") == frames + 1 and "schema" in raw.splitlines()[0]


def test_a_recording_holds_no_prompt_no_path_and_no_secret(tmp_path: Path) -> None:
    secret = "ft_sess_" + "q" * 43
    four = frame("four")
    event = replace(four.events[0], text=f"failed at /home/ann/private/plan.txt with {secret}")
    recorder = Recorder()
    recorder.add(replace(four, events=(event,), logs=(replace(four.logs[0], text="open /root/.ssh/id"),)))
    recorder.save(tmp_path / "flight")
    raw = gzip.decompress((tmp_path / "flight").read_bytes()).decode()
    for word in ("ft_sess_", "/home", "private", "/root", ".ssh"):
        assert word not in raw
    assert "plan.txt" in raw


@pytest.mark.parametrize(
    "data",
    [b"", b"no gzip", gzip.compress(b"{}"), gzip.compress(b'{"schema":"ft.flight/1"}\n[1]\n')],
    ids=["empty", "no gzip", "no schema", "no frame"],  # gzip writes the time: as names these would differ
)
def test_what_is_no_recording_is_refused_with_a_way_on(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "flight").write_bytes(data)
    with pytest.raises(FtError) as error:
        load(tmp_path / "flight")
    assert error.value.exit_code == 4 and "ft top" in error.value.hint
    with pytest.raises(FtError) as error:
        load(tmp_path / "absent")
    assert error.value.exit_code == 3


def test_sources_that_are_not_live_end_when_they_are_closed(tmp_path: Path) -> None:
    recorder = Recorder()
    for i in range(3):
        recorder.add(frame("four", i * 1.0))
    recorder.save(tmp_path / "flight")

    async def play() -> list[int]:
        counts = []
        for source in (MockSource("idle", fps=50), ReplaySource(tmp_path / "flight", speed=1000)):
            count = 0
            async for _ in source.frames():
                count += 1
                if count == 3:
                    await source.close()
            counts.append(count)
            assert not (await ReplaySource(tmp_path / "flight").act("cancel", request="x")).done
        return counts

    began = time.monotonic()
    assert asyncio.run(play()) == [3, 3]
    assert time.monotonic() - began < 120
