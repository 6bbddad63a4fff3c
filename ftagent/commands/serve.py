"""Run the engine in the foreground (systemd, containers, debugging)"""

from __future__ import annotations

import argparse
import os
import sys

from ftagent.context import Context
from ftagent.engine_options import add_engine_flags, engine_flags

PASS_THROUGH = True


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ft serve [-m MODEL] [--port N] [--kv N] [engine options]"
    parser.epilog = (
        "Options not listed here go to the engine as they are: --log FILE, --host ADDRESS, --hibernate-dir DIR."
    )
    parser.add_argument("-m", "--model", metavar="ID", help="default: the configured model")
    add_engine_flags(parser)
    parser.add_argument("--models-dir", metavar="DIR")
    parser.add_argument("--plan", action="store_true", help="only print what it would need: ft engine plan")


def run(args: argparse.Namespace, context: Context) -> int:
    from ftagent.engine_command import engine_command, foreground_environment, run_engine_tool
    from ftagent.engine_options import as_arguments
    from ftagent.engine_process import refuse_foreign_port, serve_arguments
    from ftagent.errors import Conflict
    from ftagent.models import find_model
    from ftagent.paths import ensure
    from ftagent.provision import pull_model
    from ftagent.running_engine import find_engine

    settings = context.settings({**engine_flags(args), "models_dir": args.models_dir})
    models_dir = context.models_dir(settings)
    model = find_model(args.model or settings.text("model"), models_dir, context.cwd)
    if not model.pulled:
        pull_model(model.name, context, settings, quiet=False)
    if args.plan:
        wanted = ["--model", model.reference, "--models-dir", str(models_dir), *as_arguments(settings)]
        return run_engine_tool(context.env, "plan", *wanted, *args.rest)
    running = find_engine(context.paths)
    if running is not None:
        raise Conflict(
            f"An engine is running already at {running.url.text}.", "ft engine stop", code="FT-E0613 running"
        )
    refuse_foreign_port(settings.number("port"))
    ensure(context.paths.runtime)
    command = engine_command("serve", *serve_arguments(model, settings, models_dir, context.paths), *args.rest)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, foreground_environment(context.env))  # noqa: S606 - an argument list, no shell
