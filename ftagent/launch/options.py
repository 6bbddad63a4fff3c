"""The options of a launch: those of `ft launch` are those of `ft resume`."""

from __future__ import annotations

import argparse
from pathlib import Path

from ftagent.launch.shell import SHELLS


def add_options(parser: argparse.ArgumentParser, resuming: bool = False) -> None:
    """Everything but the agent. `resuming`: which session is said otherwise."""
    session = parser.add_argument_group("session")
    session.add_argument("-m", "--model", metavar="ID", help="default: the model being served, else the configured one")
    session.add_argument(
        "-C", "--project", metavar="DIR", type=Path, help="default: the git work tree around this folder"
    )
    session.add_argument("-n", "--name", help="session name, unique in the project")
    if not resuming:
        which = session.add_mutually_exclusive_group()
        which.add_argument("--new", action="store_true", help="a new session (as without any of these)")
        which.add_argument(
            "-c", "--continue", dest="proceed", action="store_true", help="go on with the newest of this project"
        )
        which.add_argument("-r", "--resume", metavar="ID", nargs="?", const="", help="go on with an earlier session")
        which.add_argument("--fork", metavar="ID", help="a copy of an earlier session, which stays as it is")
    session.add_argument("--last", action="store_true", help="the newest, where several can be resumed")
    session.add_argument("--conversation", metavar="ID", help="of the session resumed: which of the agent's own ids")
    session.add_argument(
        "--worktree", metavar="NAME", nargs="?", const="", help="in a git worktree of its own, kept for resuming"
    )
    session.add_argument("--detach", action="store_true", help="in the background, held by tmux")
    session.add_argument("--ctx", metavar="N", help="context window told to the agent")
    session.add_argument("--max-output", metavar="N", help="output cap told to the agent")
    session.add_argument(
        "--script", metavar="FILE", type=Path, help="scripted replay: force the replies in this JSON file"
    )
    session.add_argument(
        "--preserve-thinking",
        metavar="on|off",
        help="keep the reasoning of earlier turns in the prompt, where the model's template can (default: on)",
    )
    look_only = parser.add_argument_group("look first")
    look_only.add_argument("--dry-run", action="store_true", help="print the plan; needs no engine, touches nothing")
    look_only.add_argument("--json", action="store_true", help="the plan as JSON; in a launch: events on stderr")
    look_only.add_argument(
        "--print-env", nargs="?", const="sh", choices=SHELLS, help="prepare, print variables, do not run"
    )
    look_only.add_argument(
        "--print-config", action="store_true", help="print the files that would be written, and stop"
    )
    look_only.add_argument(
        "--no-exec", "--no-run", dest="no_exec", action="store_true", help="prepare, do not run the agent"
    )
    engine = parser.add_argument_group("engine")
    engine.add_argument("--no-start", action="store_true", help="fail when no engine is running")
    engine.add_argument("--no-wait", action="store_true", help="run the agent while the engine still loads")
    engine.add_argument("--wait", metavar="S", help="give up after S seconds without progress")
    engine.add_argument("--kv", metavar="N", help="KV tokens over all sessions when an engine is started, such as 64k")
    engine.add_argument("--engine", metavar="URL", help="an engine that runs elsewhere")
    engine.add_argument(
        "--stop-engine",
        choices=("never", "idle", "exit"),
        metavar="WHEN",
        help="never, exit: with the last session, idle: when one that a launch started is not used (default: idle, 10 minutes)",
    )
    agent = parser.add_argument_group("agent")
    agent.add_argument("--keep-env", metavar="VAR", action="append", default=[], help="let this variable through")
    agent.add_argument("--scrub", metavar="VAR", action="append", default=[], help="take this variable out")
    agent.add_argument(
        "--edit-hints",
        metavar="on|off",
        help="our extension or plugin that says what the agent will edit (default: on)",
    )
    place = agent.add_mutually_exclusive_group()
    place.add_argument("--isolated", action="store_true", help="a configuration of this launch (default)")
    place.add_argument(
        "--integrate",
        action="store_true",
        help="write this engine into the agent's own configuration; ft restore AGENT takes it out again",
    )
    agent.add_argument(
        "--sealed", action="store_true", help="no network but the engine's; attempts to leave are counted and named"
    )
    agent.add_argument("--exec", action="store_true", help="become the agent: no parent, no receipt")
    agent.add_argument("--force", action="store_true", help="go on where a check refuses")
    agent.add_argument("-q", "--quiet", action="store_true", help="say nothing but results and errors")
    agent.add_argument("-v", "--verbose", action="store_true", help="say more")
