"""The dashboard: what the engine and the agents do now, and why it is fast or not"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ftagent.context import Context
from ftagent.errors import UsageError

if TYPE_CHECKING:
    from ftagent.dashboard.model import Frame, Source
    from ftagent.local_engine.client import EngineUrl

LEAST_FPS, MOST_FPS = 0.1, 10.0
RECORD_S = 60.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--once", action="store_true", help="one frame as plain text (also where stdout is no terminal)"
    )
    parser.add_argument("--json", action="store_true", help="one frame as one JSON document")
    parser.add_argument(
        "--mock", metavar="SCENARIO", help="a made-up scenario instead of the engine: no-engine, idle, four, ..."
    )
    parser.add_argument("--replay", metavar="FILE", help="play what --record, or the dashboard's recorder, has written")
    parser.add_argument(
        "--record", metavar="FILE", help="write the next frames to a file, without prompts, paths and tokens"
    )
    parser.add_argument("--seconds", type=float, default=RECORD_S, metavar="S", help="of --record (default 60)")
    parser.add_argument("--readonly", action="store_true", help="no keys that change anything")
    parser.add_argument("--ascii", action="store_true", help="borders and bars of plain ASCII characters")
    parser.add_argument("--fps", type=float, default=2.0, metavar="N", help="frames a second (default 2, at most 10)")
    parser.add_argument("--engine", metavar="URL", help="an engine that runs elsewhere; its token in $FT_ENGINE_TOKEN")
    parser.epilog = "Without a terminal, and on one that cannot move its cursor, one plain frame or ft status --watch."


def run(args: argparse.Namespace, context: Context) -> int:
    """Exit 0 also when no engine runs: that is what is shown then."""
    if not LEAST_FPS <= args.fps <= MOST_FPS:
        raise UsageError(f"--fps {args.fps:g}: give {LEAST_FPS:g} to {MOST_FPS:g}.", "ft top --help")
    if args.mock is not None and args.replay is not None:
        raise UsageError("--mock and --replay are two sources.", "Give one of them.")
    if args.once or args.json:
        return _once(args, context)
    if args.record is not None:
        return _record(args, context)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _once(args, context)
    if context.env.get("TERM") in (None, "", "dumb"):
        from ftagent.commands.status import watch

        return watch(context)
    from ftagent.dashboard.app import Options
    from ftagent.dashboard.app import run as show

    theme = "monochrome" if args.color == "never" else ""
    return show(_source(args, context), Options(fps=args.fps, ascii=args.ascii, readonly=args.readonly, theme=theme))


def _once(args: argparse.Namespace, context: Context) -> int:
    frame = _frame(args, context)
    if args.json:
        from ftagent.dashboard.codec import to_json
        from ftagent.output import print_json

        print_json(to_json(frame))
    else:
        from ftagent.dashboard.plain import text_of

        print(text_of(frame))
    return 0


def _frame(args: argparse.Namespace, context: Context) -> Frame:
    if args.mock is not None:
        return _mock_frame(args.mock)
    if args.replay is not None:
        from ftagent.dashboard.recorder import load

        return load(Path(args.replay))[-1]
    from ftagent.dashboard.live import LiveSource

    url, token = _elsewhere(args, context)
    source = LiveSource(context, args.fps, args.readonly, url, token)
    if args.json:
        source.show("overview", "turns", "memory", "experts", "anchors", "engine")
    return asyncio.run(source.once())


def _mock_frame(scenario: str) -> Frame:
    from ftagent.dashboard.mock import SCENARIOS, frame

    if scenario not in SCENARIOS:
        raise UsageError(f"There is no scenario {scenario!r}.", "Known: " + ", ".join(SCENARIOS))
    return frame(scenario)


def _source(args: argparse.Namespace, context: Context) -> Source:
    if args.mock is not None:
        from ftagent.dashboard.mock import MockSource

        _mock_frame(args.mock)
        return MockSource(args.mock, args.fps, args.readonly)
    if args.replay is not None:
        from ftagent.dashboard.recorder import ReplaySource

        return ReplaySource(Path(args.replay))
    from ftagent.dashboard.live import LiveSource

    url, token = _elsewhere(args, context)
    return LiveSource(context, args.fps, args.readonly, url, token)


def _elsewhere(args: argparse.Namespace, context: Context) -> tuple[EngineUrl | None, str | None]:
    given = args.engine or context.env.get("FT_ENGINE")
    if not given:
        return None, None
    from ftagent.local_engine.client import parse_engine_url

    return parse_engine_url(given), context.env.get("FT_ENGINE_TOKEN")


def _record(args: argparse.Namespace, context: Context) -> int:
    """For so long, or until Ctrl-C."""
    from ftagent.dashboard.recorder import Recorder
    from ftagent.output import note

    recorder, source = Recorder(max(1.0, args.seconds / 60)), _source(args, context)

    async def take() -> None:
        source.show("overview", "turns", "memory", "experts", "anchors", "engine")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(args.seconds):
                async for frame in source.frames():
                    recorder.add(frame)
        await source.close()

    note(f"ft: records {args.seconds:g} s; Ctrl-C ends it earlier")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(take())
    frames = recorder.save(Path(args.record))
    note(f"ft: {frames} frames, without prompts, paths and tokens. Play them: ft top --replay {args.record}")
    return 0
