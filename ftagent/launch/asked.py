"""What a command line asks of a launch, read and checked before anything is looked for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ftagent.agents import loader
from ftagent.context import Context, find_project
from ftagent.errors import NotHere, Refused, UsageError
from ftagent.text import require_utf8
from harnesses.contract import Harness


def harness_of(args: argparse.Namespace, context: Context) -> Harness:
    """For `run` the command's own, which then has its arguments only."""
    if args.agent != "run":
        if args.declaration is not None:
            raise UsageError("--declaration belongs to ft launch run.", "Leave it out.")
        return loader.load(args.agent)
    harness = loader.load_command(args.rest, args.declaration, context.cwd)
    args.rest = args.rest[1:]
    return harness


def project_of(args: argparse.Namespace, context: Context) -> Path:
    if args.project is None:
        return find_project(context.cwd)
    project: Path = (context.cwd / args.project.expanduser()).resolve()
    if not project.is_dir():
        raise NotHere(f"The project folder {project} does not exist.", "Correct -C DIR.")
    return project


def require_printable_paths(args: argparse.Namespace, project: Path, context: Context) -> None:
    """All of these are written to records and told to the engine. The agent's own arguments are the agent's business."""
    named = {
        "The project folder": project,
        "The current folder": context.cwd,
        "The home folder": context.paths.home,
        "ft's own folder": context.paths.state,
        "--name": args.name or "",
        "--model": args.model or "",
    }
    for what, text in named.items():
        require_utf8(what, str(text))


def read_script(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    import json

    try:
        script = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotHere(f"There is no script {path}.", "Correct --script FILE.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"The script {path} cannot be read: {error}.", "Correct the file.") from None
    except json.JSONDecodeError as error:
        raise Refused(
            f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}.",
            "Correct the script.",
            code="FT-E0414 bad-script",
        ) from None
    if not isinstance(script, dict) or not isinstance(script.get("turns"), list):
        raise Refused(f"{path} holds no script: an object with `turns` is expected.", "Correct the script.")
    return script
