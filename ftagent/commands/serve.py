"""Run the engine in the foreground (systemd, containers, debugging)"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ftagent.context import Context
from ftagent.local_engine.options import add_engine_flags, engine_flags
from ftagent.output import note

if TYPE_CHECKING:
    from ftagent.local_engine.models import LocalModel

PASS_THROUGH = True


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ft serve [-m MODEL] [--port N] [--kv N] [engine options]"
    parser.epilog = (
        "Options not listed here go to the engine as they are: --log FILE, --host ADDRESS, --hibernate-dir DIR."
    )
    parser.add_argument("-m", "--model", metavar="ID", help="default: the configured model")
    add_engine_flags(parser)
    parser.add_argument("--models-dir", metavar="DIR", help="folder of the models")
    parser.add_argument(
        "--upstream", action="append", metavar="URL", default=[], help="let this server compute; several: replicas"
    )
    parser.add_argument("--force", action="store_true", help="the upstream may be another machine")
    parser.add_argument("--plan", action="store_true", help="only print what it would need: ft engine plan")


def run(args: argparse.Namespace, context: Context) -> int:
    from ftagent.errors import Conflict, UsageError
    from ftagent.local_engine.command import engine_command, foreground_environment, run_engine_tool, unknown_flags
    from ftagent.local_engine.holder import holder
    from ftagent.local_engine.models import find_model
    from ftagent.local_engine.options import as_arguments
    from ftagent.local_engine.process import refuse_foreign_port, serve_arguments
    from ftagent.local_engine.provision import pull_model
    from ftagent.local_engine.running import find_engine
    from ftagent.paths import ensure

    if unknown := unknown_flags(context.env, "plan" if args.plan else "serve", args.rest):
        raise UsageError(f"ft serve: unrecognized arguments: {' '.join(unknown)}.", "ft serve --help")
    settings = context.settings({**engine_flags(args), "models_dir": args.models_dir})
    models_dir = context.models_dir(settings)
    wanted_model = args.model or settings.text("model")
    without_weights = weightless(wanted_model, context.cwd) if args.upstream else None
    model = without_weights or find_model(wanted_model, models_dir, context.cwd)
    upstream = [word for url in args.upstream for word in ("--upstream", url)]
    if args.force:
        upstream += ["--upstream-elsewhere", "yes"]
    if not model.pulled:
        pull_model(model.name, context, settings, quiet=False)
    if args.plan:
        wanted = ["--model", model.reference, "--models-dir", str(models_dir), *as_arguments(settings)]
        return run_engine_tool(context.env, "plan", *wanted, *upstream, *args.rest)
    running = find_engine(context.paths)
    if running is not None:
        raise Conflict(
            f"An engine is running already at {running.url.text}.", "ft engine stop", code="FT-E0613 running"
        )
    held = holder(context.paths)
    if held is not None and held.ending:
        note("ft: waiting for the engine before, which is ending")  # the new one does, and takes its port
    elif held is not None and held.announced:
        who = f" (pid {held.pid})" if held.pid else ""
        raise Conflict(f"An engine{who} runs already and does not answer.", "ft engine stop", code="FT-E0613 running")
    else:
        refuse_foreign_port(settings.number("port"))
    ensure(context.paths.runtime)
    command = engine_command(
        "serve", *serve_arguments(model, settings, models_dir, context.paths), *upstream, *args.rest
    )
    sys.stdout.flush()
    sys.stderr.flush()
    environment = foreground_environment(context.env)
    if args.upstream and "FT_UPSTREAM_TOKEN" in context.env:
        environment["FT_UPSTREAM_TOKEN"] = context.env["FT_UPSTREAM_TOKEN"]
    os.execve(command[0], command, environment)  # noqa: S606 - an argument list, no shell


def weightless(wanted: str, cwd: Path) -> LocalModel | None:
    """A folder with a model's words and none of its weights, which is enough before an upstream."""
    from ftagent.local_engine.models import DEFAULT_WINDOW_TOKENS, LocalModel

    folder = (cwd / Path(wanted).expanduser()).resolve()
    if "/" not in wanted or (folder / "ftw.json").exists() or not (folder / "tokenizer.json").is_file():
        return None
    return LocalModel(folder.name, str(folder), folder, DEFAULT_WINDOW_TOKENS, False)
