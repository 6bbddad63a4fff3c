"""`engine forget`: what sessions left on disk, removed while no engine runs. One that runs is asked over HTTP first."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from engine.cache.forget import below, forgotten, remember
from engine.front.heads import Heads

SCHEMA = "ft.forget/1"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="engine forget", description="Remove what sessions left on disk.")
    parser.add_argument("--hibernate-dir", type=Path, required=True, help="the folder of checkpoints")
    parser.add_argument("--session", action="append", required=True, metavar="ID", help="may be given several times")
    parser.add_argument("--checkpoints-only", action="store_true", help="an engine runs and sees to the rest itself")
    parser.add_argument("--dry-run", action="store_true", help="only count")
    args = parser.parse_args(arguments)
    print(json.dumps(forget(args.hibernate_dir, args.session, args.checkpoints_only, args.dry_run)))
    return 0


def forget(folder: Path, sessions: Sequence[str], checkpoints_only: bool, dry_run: bool) -> dict[str, object]:
    """What was removed, or would be; `shared` files are also gone on from by other sessions, and stay."""
    found = below(folder, {*sessions, *forgotten(folder)})
    size = found.bytes
    if not dry_run:
        remember(folder, sessions)
        for _, path in found.alone:
            path.unlink(missing_ok=True)
        for session in () if checkpoints_only else sessions:
            _forget_texts(folder, session)
    counts = {"files": len(found.alone), "bytes": size, "shared": found.shared}
    return {"schema": SCHEMA, "dry_run": dry_run, **counts}


def _forget_texts(folder: Path, session: str) -> None:
    """How it began and how it ended, of whichever model."""
    names = {path.stem for path in folder.glob("heads-*.json")}
    names |= {path.name.replace("tails-", "heads-", 1) for path in folder.glob("tails-*") if path.is_dir()}
    for name in sorted(names):
        heads = Heads(folder / f"{name}.json")
        heads.tails.forget(session)
        if heads.forget(session):
            heads.write()
