"""A plan that is looked at, or prepared and not run."""

from __future__ import annotations

import argparse
import shutil
from typing import TYPE_CHECKING

from ftagent.context import Context
from ftagent.launch import plan as planning
from ftagent.launch.events import Events

if TYPE_CHECKING:
    from ftagent.files.writing import FilePlan


def show(plan: planning.Plan, args: argparse.Namespace, context: Context, change: FilePlan | None) -> int:
    from ftagent.launch.plan_json import to_json
    from ftagent.launch.preview import render
    from ftagent.output import print_json

    if args.json:
        document = to_json(plan)
        if change is not None:
            from ftagent.launch import integration

            document["files"].append(integration.to_json(change, plan))
        print_json(document)
    elif args.print_config:
        for file in plan.injection.files:
            print(f"# {file.path}\n{plan.masked(file.text)}", end="" if file.text.endswith("\n") else "\n")
        if not plan.injection.files:
            print("# no files; see --print-env")
    elif args.print_env:
        from ftagent.launch.shell import render_environment

        print(render_environment(plan, args.print_env, secrets=False), end="")
    else:
        width = max(60, min(160, shutil.get_terminal_size((100, 24)).columns))
        print(render(plan, width, context.out, args.verbose), end="")
        undo = "nothing to undo."
        if change is not None:
            from ftagent.files import integrate

            undo = f"ft restore {plan.request.harness.name}"
            print("\n" + (integrate.show(change) or f"{change.path} says so already\n"), end="")
        print(f"\nRun without --dry-run to launch.   Undo later: {undo}")
    return 0


def prepared_only(plan: planning.Plan, args: argparse.Namespace, events: Events, context: Context) -> int:
    from ftagent.launch.shell import render_environment

    session = plan.session
    events.say(
        "prepared", f"session {session.name} ({session.id}) is prepared; the agent was not started", id=session.id
    )
    if args.print_env:
        events.say(
            "precedence", "settings files of the agent may override these variables; ft launch sees to that itself"
        )
        print(render_environment(plan, args.print_env, secrets=True), end="")
    return 0
