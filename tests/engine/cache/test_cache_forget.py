"""What belongs to one session alone on disk goes with it, and nothing that another one needs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.cache.forget import below, of_sessions
from engine.cache.hibernate import Disk
from engine.cache.node import token_array
from engine.cache.segment import Segment
from engine.forget import forget

SHARED = list(range(100, 120))


def keep(disk: Disk, session: str, tokens: list[int], *cuts: int) -> None:
    """KV of `tokens` in files that end at `cuts`, written by `session` where nobody has written them."""
    for end in cuts:
        start, parent = disk.deepest(token_array(tokens), end)
        segment = Segment(start, token_array(tokens[start:end]), (bytes([end % 256]) * 100,))
        assert disk.keep_segment(token_array(tokens[:end]), parent, segment, session)


def test_what_only_one_session_wrote_goes_and_what_another_continues_stays(tmp_path: Path) -> None:
    disk = Disk(tmp_path, 1 << 20, "m")
    keep(disk, "s-a", [*SHARED, 1, 2, 3], 20, 23)
    keep(disk, "s-b", [*SHARED, 7, 8, 9], 20, 23)
    assert disk.keep_state(token_array(SHARED), b"shared", "s-a")
    assert disk.keep_state(token_array([*SHARED, 1, 2, 3]), b"own", "s-a")
    found = below(tmp_path, {"s-a"})
    assert (len(found.alone), found.shared) == (2, 1)
    assert disk.forget("s-a") == len(found.alone)
    assert disk.find(token_array([*SHARED, 1, 2, 3]), False).position == 20
    assert disk.find(token_array([*SHARED, 7, 8, 9]), False).position == 23
    assert disk.find(token_array(SHARED), True).position == 20, "the state where both go on from is gone"
    assert disk.size_bytes == sum(path.stat().st_size for path in tmp_path.rglob("*-*") if path.is_file())
    assert disk.forget("s-b") == 1 and disk.forget("s-b") == 0
    assert forget(tmp_path, ["s-a"], False, dry_run=False)["files"] == 2
    assert not list(tmp_path.rglob("*.kv")) and not list(tmp_path.rglob("*.state"))


def test_what_was_shared_goes_with_the_last_that_had_it(tmp_path: Path) -> None:
    disk = Disk(tmp_path, 1 << 20, "m")
    keep(disk, "s-a", [*SHARED, 1, 2, 3], 20, 23)
    keep(disk, "s-b", [*SHARED, 7, 8, 9], 20, 23)
    told = forget(tmp_path, ["s-a"], False, dry_run=False)
    assert (told["files"], told["shared"]) == (1, 1)
    assert len(list(tmp_path.rglob("*.kv"))) == 2
    assert disk.forget("s-b") == 2 and len(disk) == 0 and disk.damaged == 0
    assert not list(tmp_path.rglob("*.kv"))


def test_files_of_nobody_stay(tmp_path: Path) -> None:
    disk = Disk(tmp_path, 1 << 20, "m")
    keep(disk, "", SHARED, 20)
    (path,) = tmp_path.rglob("*.kv")
    for session in ("s-a", "s-b"):
        assert disk.forget(session) == 0
    path.write_bytes(b"nothing of this kind")
    assert below(tmp_path, {"s-a"}).alone == [] and forget(tmp_path, ["s-a"], False, False)["files"] == 0


@pytest.mark.parametrize("seed", range(20))
def test_whatever_was_written_the_others_lose_nothing(tmp_path: Path, seed: int) -> None:
    """Sessions that branch anywhere, written in any order, before and after a removal: each other one is found as deep as before."""
    chance = random.Random(seed)
    disk = Disk(tmp_path, 1 << 20, "m")
    texts: dict[str, list[int]] = {}
    for number in range(6):
        session = f"s-{number}"
        base = texts[chance.choice(list(texts))] if texts and chance.random() < 0.8 else []
        texts[session] = base[: chance.randint(0, len(base))] + [
            chance.randint(0, 3) for _ in range(chance.randint(3, 40))
        ]
        cuts = sorted({chance.randint(1, len(texts[session])) for _ in range(4)} | {len(texts[session])})
        keep(disk, session, texts[session], *cuts)
        if chance.random() < 0.5:
            disk.keep_state(token_array(texts[session]), b"s", session)
    victim = chance.choice(list(texts))
    others = {session: tokens for session, tokens in texts.items() if session != victim}

    def depths(index: Disk) -> dict[str, tuple[int, set[int]]]:
        found = {session: index.find(token_array(tokens), False) for session, tokens in others.items()}
        return {session: (one.position, set(one.states)) if one else (0, set()) for session, one in found.items()}

    own_depth = {session: len(tokens) for session, tokens in others.items()}
    before = depths(disk)
    assert {session: position for session, (position, _) in before.items()} == own_depth
    told = forget(tmp_path, [victim], False, dry_run=True)
    assert disk.forget(victim) == told["files"]
    assert {session: position for session, (position, _) in depths(disk).items()} == own_depth
    again = Disk(tmp_path, 1 << 20, "m")
    assert depths(again) == depths(disk) and len(again) == len(disk) and again.size_bytes == disk.size_bytes
    mine = of_sessions([(file.name, file.path) for file in disk._index.kv.values()], {victim})
    assert mine.alone == [], "something that nobody else needs was left"
