"""Print the variables that point any client at a session of its own"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from ftagent.agents import loader
from ftagent.context import Context, find_project, git_branch
from ftagent.launch import plan as planning
from ftagent.launch.shell import SHELLS, render_variables
from ftagent.local_engine.models import DEFAULT_WINDOW_TOKENS
from ftagent.local_engine.options import for_agents
from ftagent.local_engine.provision import EngineChoice, end_session, keep_while_used, provide, register_session
from ftagent.output import note
from ftagent.session import names, records

EXAMPLES = """\
examples:
  eval "$(ft env)"                   bash, zsh
  ft env --shell fish | source       fish
  ft env --shell json                for programs

The session lasts until the engine stops. What its client does to its context: ft ctl draft SESSION
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--shell", choices=SHELLS, default=_shell(), help="default: of $SHELL, else sh")
    parser.add_argument("-m", "--model", metavar="ID", help="default: the model being served, else the configured one")
    parser.add_argument("--no-start", action="store_true", help="fail when no engine is running")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but results and errors")


def run(args: argparse.Namespace, context: Context) -> int:
    project = find_project(context.cwd)
    choice = EngineChoice(for_agents(context.settings({}, project)), args.model, not args.no_start, quiet=args.quiet)
    prospect = provide(choice, context, lambda text, phase: None)
    assert prospect.running is not None
    if prospect.ready.get("stops_in_s") is not None:  # the client holds no lease
        keep_while_used(prospect.running, context, None)
    harness = loader.load_command(["client"], None, context.cwd)
    name = names.choose_name("env", None, project, records.all_sessions(context.paths))
    body: dict[str, Any] = {
        "harness": harness.name,
        "declaration": loader.wire_declaration(harness),
        "name": name,
        "project": str(project),
        "observe": harness.observe,
    }
    answer = register_session(prospect.running, body)
    session = planning.SessionState(
        name,
        project,
        context.cwd,
        git_branch(project),
        context.paths.sessions / answer["id"],
        answer["id"],
        answer["token"],
    )
    engine = planning.EngineState(
        prospect.url.text,
        True,
        [],
        prospect.model.name,
        prospect.window_tokens or DEFAULT_WINDOW_TOKENS,
        prospect.model.toy,
    )
    request = planning.LaunchRequest(harness, [], context.paths.home, context.env, None)
    try:
        plan = planning.build(request, session, engine, {})
    except BaseException:
        end_session(prospect.running.client, session.id)
        raise
    values = {variable.name: variable.value for variable in plan.set_variables}
    if args.shell == "json":
        print(json.dumps({"schema": "ft.env/1", "session": session.id, "set": values}, ensure_ascii=False))
    else:
        print("\n".join(render_variables(values, [], args.shell)))
    if not args.quiet:
        note(f"ft: session {name} ({session.id}); what its client does: ft ctl draft {session.id}")
    return 0


def _shell() -> str:
    return "fish" if os.path.basename(os.environ.get("SHELL", "")) == "fish" else "sh"  # noqa: PTH119 - a name only
