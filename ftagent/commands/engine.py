"""Start, stop and look at the local engine"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ftagent.context import Context
from ftagent.local_engine.options import add_engine_flags, engine_flags
from ftagent.output import note, print_json

if TYPE_CHECKING:
    from ftagent.settings.config import Settings


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="start|stop|restart|status|wait|logs|plan")
    for name, about in (
        (
            "start",
            "start it and wait until it is ready; nothing to do when it runs, replaces one that has crashed or is ending",
        ),
        ("stop", "stop it, also one that hangs or still starts; nothing to do when it is stopped"),
        ("restart", "stop it and start it again, with the model that it serves; running answers may end"),
        ("status", "what it is doing; exit 3 when it is stopped or ending, 5 when it has crashed or hangs"),
        ("wait", "wait until it is ready"),
        ("logs", "the newest log"),
        ("plan", "what a model needs in memory, before anything is loaded"),
        ("unit", "print a systemd user unit that runs it"),
    ):
        action = actions.add_parser(name, help=about, description=about + ".")
        if name in ("status", "plan", "start", "restart"):
            action.add_argument("--json", action="store_true", help="as one JSON document")
        if name in ("start", "restart", "plan", "unit"):
            action.add_argument("-m", "--model", metavar="ID", help="default: the configured model")
            add_engine_flags(action)
        if name in ("start", "restart"):
            action.add_argument("--no-wait", action="store_true", help="return while it still loads")
            action.add_argument("--dry-run", action="store_true", help="say what would be started")
        if name in ("start", "restart", "wait"):
            action.add_argument(
                "--wait", "--timeout", dest="wait", metavar="S", help="give up after S seconds without progress"
            )
            action.add_argument("-q", "--quiet", action="store_true", help="say nothing but results and errors")
        if name == "logs":
            action.add_argument("-f", "--follow", action="store_true", help="go on with what is added")
            action.add_argument(
                "-n", "--lines", type=int, default=200, metavar="N", help="at most so many (default 200)"
            )


def run(args: argparse.Namespace, context: Context) -> int:
    actions = {
        "start": _start,
        "stop": _stop,
        "restart": _restart,
        "status": _status,
        "wait": _wait,
        "logs": _logs,
        "plan": _plan,
        "unit": _unit,
    }
    return actions[args.action](args, context)


def _restart(args: argparse.Namespace, context: Context) -> int:
    """The model is looked for before anything is stopped. Also where none is running."""
    from ftagent.local_engine.client import parse_engine_url
    from ftagent.local_engine.models import find_model
    from ftagent.local_engine.provision import EngineChoice, Prospect, start_command
    from ftagent.local_engine.running import find_engine
    from ftagent.local_engine.stop import stop_engine

    settings = _local(context, {**engine_flags(args), "wait": args.wait})
    running = find_engine(context.paths)
    args.model = args.model or (running.model if running else None) or settings.text("model")
    model = find_model(args.model, context.models_dir(settings), context.cwd)
    if args.dry_run:
        url = parse_engine_url(f"http://127.0.0.1:{settings.number('port')}")
        line = start_command(Prospect(url, None, model, {}), EngineChoice(settings, args.model), context)
        print(("would stop the engine, and start: " if running else "would start: ") + " ".join(line))
        return 0
    stop_engine(context.paths)
    return _start(args, context)


def _start(args: argparse.Namespace, context: Context) -> int:
    from ftagent.local_engine.provision import EngineChoice, ignored, look, provide, start_command
    from ftagent.local_engine.report import engine_report
    from ftagent.output import Progress

    settings = _local(context, {**engine_flags(args), "wait": args.wait})
    quiet = args.quiet or args.json
    choice = EngineChoice(settings, args.model, wait=not args.no_wait, quiet=quiet, stop_when_interrupted=True)
    if args.dry_run:
        prospect = look(choice, context)
        if prospect.running is None and not prospect.model.pulled:
            note(f"ft: would make the model {prospect.model.name} here first: ft models pull {prospect.model.name}")
        line = " ".join(start_command(prospect, choice, context))
        print(f"would start: {line}" if line else f"already running at {prospect.url.text}")
        if said := ignored(prospect, choice):
            note(f"ft: {said}")
        return 0
    progress = Progress(quiet)
    prospect = provide(choice, context, progress.show)
    progress.done()
    if args.json:
        print_json({"schema": "ft.engine/1", **engine_report(context)})
    elif not args.quiet:
        state = "ready" if not args.no_wait else "started"
        window = f", window {prospect.window_tokens:,} tokens" if prospect.window_tokens else ""
        note(f"ft: engine {state} at {prospect.url.text}: {prospect.model.name}{window}")
    return 0


def _local(context: Context, flags: dict[str, object]) -> Settings:
    """Settings without `engine`: these actions are about the local one."""
    settings = context.settings(flags)
    settings.values["engine"] = None
    return settings


def _stop(args: argparse.Namespace, context: Context) -> int:
    from ftagent.local_engine.stop import stop_engine

    note("ft: engine stopped" if stop_engine(context.paths) else "ft: no engine is running")
    return 0


def _status(args: argparse.Namespace, context: Context) -> int:
    from ftagent.local_engine.report import describe, engine_report, exit_code

    report = engine_report(context)
    if args.json:
        print_json({"schema": "ft.engine/1", **report})
    else:
        print(f"engine  {describe(report)}")
    return exit_code(report)


def _wait(args: argparse.Namespace, context: Context) -> int:
    from ftagent.local_engine.provision import EngineChoice, provide
    from ftagent.output import Progress

    progress = Progress(args.quiet)
    provide(EngineChoice(_local(context, {"wait": args.wait}), None, start=False), context, progress.show)
    progress.done()
    return 0


def _logs(args: argparse.Namespace, context: Context) -> int:
    from ftagent.errors import NotHere
    from ftagent.local_engine.log import log_tail

    log = context.paths.engine_log
    if not log.exists():
        raise NotHere("There is no engine log yet.", "ft engine start")
    tail = log_tail(log, max(0, args.lines)) if args.lines > 0 else ""
    if tail:
        print(tail, flush=True)
    if args.follow:
        _follow(log)
    return 0


def _follow(log: Path) -> None:
    """Prints what is added, and moves on when a new engine starts a new log."""
    target = log.resolve()
    file = target.open(encoding="utf-8", errors="replace")
    file.seek(0, 2)
    try:
        while True:
            if text := file.read():
                sys.stdout.write(text)
                sys.stdout.flush()
            elif log.resolve() != target:
                file.close()
                target = log.resolve()
                file = target.open(encoding="utf-8", errors="replace")
            else:
                time.sleep(0.2)
    finally:
        file.close()


def _plan(args: argparse.Namespace, context: Context) -> int:
    from ftagent.local_engine.command import run_engine_tool
    from ftagent.local_engine.models import find_model
    from ftagent.local_engine.options import as_arguments
    from ftagent.local_engine.provision import pull_model

    settings = context.settings(engine_flags(args))
    models_dir = context.models_dir(settings)
    model = find_model(args.model or settings.text("model"), models_dir, context.cwd)
    if not model.pulled:
        pull_model(model.name, context, settings, quiet=args.json)
    arguments = ["--model", model.reference, "--models-dir", str(models_dir), *as_arguments(settings)]
    return run_engine_tool(context.env, "plan", *arguments, *(["--json"] if args.json else []))


def _unit(args: argparse.Namespace, context: Context) -> int:
    """Printed, never installed behind the user's back."""
    from ftagent.local_engine.options import given
    from ftagent.local_engine.systemd_unit import unit

    settings = context.settings(engine_flags(args))
    model = ["--model", args.model] if args.model else []
    print(unit([*model, *given(settings)], context.env), end="")
    return 0
