"""The worker's socket: what it sent before it ended is heard, and a connection that was hung up on is heard no more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from engine.front.supervision import restarts
from engine.front.supervision.wire import CLOSED, Wire
from engine.protocol import encode


def played(folder: Path, play: Any) -> tuple[list[dict[str, Any]], list[str]]:
    heard: list[dict[str, Any]] = []
    lost: list[str] = []

    async def run() -> None:
        wire = Wire(folder / "w.sock")
        await wire.open(heard.append, lost.append)
        await play(wire)
        wire.close()

    asyncio.run(run())
    return heard, lost


async def connected(wire: Wire) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(str(wire.path))
    await reader.read(1)  # its hello
    return reader, writer


def test_last_words_are_heard(tmp_path: Path) -> None:
    async def play(wire: Wire) -> None:
        _, writer = await connected(wire)
        for n in range(1000):
            writer.write(encode({"t": "event", "kind": "x", "n": n}))
        writer.write(encode({"t": "state", "state": "failed"}))
        await writer.drain()
        writer.close()
        await wire.last_words(60)

    heard, lost = played(tmp_path, play)
    assert len(heard) == 1001 and heard[-1]["state"] == "failed" and lost == [CLOSED]


def test_who_was_hung_up_on_is_heard_no_more_and_the_next_one_is(tmp_path: Path) -> None:
    async def play(wire: Wire) -> None:
        _, first = await connected(wire)
        asked = asyncio.create_task(wire.ask({"t": "stats"}, 60))
        await asyncio.sleep(0)
        wire.hang_up()
        assert await asked is None
        _, second = await connected(wire)
        first.write(encode({"t": "from", "who": 1}))
        first.close()
        second.write(encode({"t": "from", "who": 2}))
        await second.drain()
        third_reader, third = await asyncio.open_unix_connection(str(wire.path))
        assert await third_reader.read() == b""  # one at a time
        second.close()
        third.close()
        await wire.last_words(60)

    heard, lost = played(tmp_path, play)
    assert [message["who"] for message in heard] == [2] and lost == [CLOSED]


def test_what_is_no_message_is_a_reason_to_lose_it(tmp_path: Path) -> None:
    async def play(wire: Wire) -> None:
        _, writer = await connected(wire)
        writer.write(b"\xff\xff\xff\xff garbage")
        await writer.drain()
        await wire.last_words(60)
        writer.close()

    _, lost = played(tmp_path, play)
    assert len(lost) == 1 and "broke the protocol" in lost[0]


def test_restarts_are_counted_within_a_while() -> None:
    counted = restarts.Restarts()
    assert [counted.next_wait(now) for now in (0, 10, 20)] == [1.0, 5.0, 25.0]
    assert (counted.left(20), counted.next_wait(30)) == (0, None)
    later = restarts.WINDOW_S + 5
    assert counted.left(later) == 1 and counted.next_wait(later) == 25.0
    assert counted.left(later) == 0 and counted.left(10 * later) == 3
