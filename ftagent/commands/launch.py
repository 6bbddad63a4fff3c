"""Run a coding agent on the local engine"""

from __future__ import annotations

import argparse
import contextlib
import copy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ftagent.agents import loader
from ftagent.context import Context, git_branch
from ftagent.errors import UsageError
from ftagent.launch import plan as planning
from ftagent.launch import starting
from ftagent.launch.asked import harness_of, project_of, read_script, require_printable_paths
from ftagent.launch.events import Events
from ftagent.launch.find import Found, agent_path, cached_version, find_executable, probe_version
from ftagent.launch.gathering import gather
from ftagent.launch.options import add_options
from ftagent.launch.showing import prepared_only, show
from ftagent.local_engine.options import for_agents
from ftagent.local_engine.provision import (
    EngineChoice,
    Prospect,
    end_session,
    keep_while_used,
    look,
    provide,
    register_session,
)
from ftagent.output import note
from ftagent.session import leases, names, records
from ftagent.session.choice import refuse_used_since
from ftagent.settings.config import Settings
from harnesses.contract import Harness

TAKES_REST = True
EXAMPLES = """\
examples:
  ft launch claude                            an interactive session in this folder
  ft launch codex -- exec "fix the test"      what follows -- goes to the agent
  ft launch claude -c                         go on with the newest session of this project
  ft launch pi --dry-run                      show what would happen, change nothing
  ft launch run -- mini -t "fix the test"     mini-swe-agent; aider, sweagent, cline, roo and dsh are started in this way too
  ft launch run -- my-agent "fix the test"    any other client of the OpenAI or Anthropic APIs
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ft launch AGENT [options] [-- agent arguments]"
    parser.epilog = EXAMPLES
    parser.add_argument("agent", nargs="?", help="one of: " + ", ".join(loader.names()) + "; or run, for any command")
    parser.add_argument(
        "--declaration", metavar="FILE", type=Path, help="of run: what the command does to its context, such as a draft"
    )
    add_options(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    """The agent's exit code, or 0 where it was only looked at or prepared."""
    with contextlib.ExitStack() as until_recorded:
        return _run(args, context, until_recorded)


def _run(args: argparse.Namespace, context: Context, until_recorded: contextlib.ExitStack) -> int:
    here = project_of(args, context)
    start = starting.find(args, context, here)
    args.agent = start.agent
    harness = harness_of(args, context)
    looks = args.dry_run or args.print_config
    if args.exec and (args.no_exec or args.print_env):
        raise UsageError("--exec runs the agent, --no-exec and --print-env do not.", "Leave one of them out.")
    if args.sealed and (args.exec or args.print_env):
        raise UsageError("--sealed needs ft beside the agent.", "Leave out --exec and --print-env.")
    project = start.place.root
    require_printable_paths(args, project, context)
    settings = _settings(args, project, context)
    choice = _choice(args, settings)
    found = find_executable(harness.adapter.executables, agent_path(context.env, context.paths))
    request = _request(args, harness, start, found, settings, context)
    if start.name is not None:
        name = start.name
    elif looks or (args.detach and not start.inside_tmux):
        name = names.choose_name(harness.name, args.name, project, records.all_sessions(context.paths))
    else:
        reserved = names.reserved_name(harness.name, args.name, project, context.paths)
        name = until_recorded.enter_context(reserved)
    start = starting.with_worktree(start, args, harness.name, name)
    request = replace(request, args=[*start.more_args, *args.rest])
    id_ = start.id or planning.NO_SESSION
    session = planning.SessionState(
        name, project, start.place.cwd, git_branch(project), context.paths.sessions / id_, id=id_
    )
    # built before anything is started: whatever the adapter refuses is refused without side effects
    plan = gather(request, session, look(choice, context), choice, context)
    change = None
    if args.integrate:
        from ftagent.launch.integration import integrated

        plan, change = integrated(plan)
    if looks:
        return show(plan, args, context, change)
    if args.detach and not start.inside_tmux:
        return starting.detach_launch(start, args, choice, context)
    starting.make_worktree(start, context)
    if not (args.no_exec or args.print_env) and harness.adapter.executables:
        executable = found.require(harness.adapter.title, harness.adapter.install_hint)
        unmade = None if start.id else session.state_dir
        version = probe_version(executable, harness.adapter.version_args, plan.environment, context.paths, unmade)
        request = replace(request, version=version)

    from ftagent.launch.perform import Origin, prepare, run_prepared
    from ftagent.launch.receipt import Prices

    prices = Prices.of(settings)
    events = Events(as_json=args.json, quiet=args.quiet, style=context.err)
    prospect = provide(choice, context, events.progress)
    events.progress_done()
    assert prospect.running is not None
    _keep_engine(args, prospect, settings.number("idle_stop"), context)
    # before the engine is told: there a session that is registered again is another one's no more
    lease = None
    if start.id and start.earlier is not None and start.earlier_record:
        lease = leases.take_lease(context.paths, start.id)
        refuse_used_since(start.earlier)
    answer = register_session(prospect.running, _registration(plan, request, start))
    session = planning.with_assigned(session, answer["id"], answer["token"], context.paths.sessions)
    if isinstance(answer.get("max_output"), int):
        session = replace(session, max_output_tokens=answer["max_output"])
    try:
        plan = gather(request, session, prospect, choice, context)
        if args.integrate:
            plan, change = integrated(plan)
    except BaseException:
        end_session(prospect.running.client, session.id)
        raise
    earlier = copy.deepcopy(start.earlier_record)  # its runs are added to
    origin = Origin(earlier, start.parent, start.worktree, start.tmux, prices)
    prepared = prepare(plan, prospect.running, context.paths, origin)
    until_recorded.close()
    starting.say_start(start, prospect.running, session.id, plan.engine.model, events)
    if change is not None:
        from ftagent.files import integrate

        if integrate.write(change, context.paths):
            undo = f"ft restore {harness.name}"
            events.say("integrated", f"wrote {change.path}; undo: {undo}", path=str(change.path), undo=undo)
    if plan.leftovers:
        from ftagent.launch import leftovers

        for file in leftovers.take_out(plan.leftovers, context.paths):
            text = f"took out of {file} what an earlier version of ft had written there; the file before is a backup: ft restore --list"
            events.say("migrated", text, path=str(file))
    if args.print_env or args.no_exec:
        return prepared_only(plan, args, events, context)
    code = run_prepared(prepared, events, become=args.exec, lease=lease)
    if args.stop_engine == "exit" and not leases.held_leases(context.paths):
        from ftagent.local_engine.stop import stop_engine

        stop_engine(context.paths)
    return code


def _settings(args: argparse.Namespace, project: Path, context: Context) -> Settings:
    typed = ("ctx", "max_output", "kv", "wait", "engine", "preserve_thinking", "edit_hints")
    return for_agents(context.settings({name: getattr(args, name) for name in typed}, project))


def _choice(args: argparse.Namespace, settings: Settings) -> EngineChoice:
    return EngineChoice(
        settings,
        args.model,
        not args.no_start,
        not args.no_wait,
        early=True,
        force=args.force,
        quiet=args.quiet or args.json,
        stop_when_idle=args.stop_engine != "never",
    )


def _request(
    args: argparse.Namespace,
    harness: Harness,
    start: starting.Start,
    found: Found,
    settings: Settings,
    context: Context,
) -> planning.LaunchRequest:
    return planning.LaunchRequest(
        harness=harness,
        args=args.rest,
        home=context.paths.home,
        env=starting.without_ours(context.env),
        executable=found.path if harness.adapter.executables else Path(sys.executable),
        skipped_executables=found.skipped,
        version=cached_version(found.path, context.paths),
        ctx_tokens=settings.optional_number("ctx"),
        max_output_tokens=settings.optional_number("max_output"),
        keep_env=args.keep_env,
        scrub=args.scrub,
        script=read_script(args.script),
        preserve_thinking=settings.switch("preserve_thinking"),
        edit_hints=settings.switch("edit_hints"),
        force=args.force,
        sealed=args.sealed,
        resume=start.conversation,
        fork=start.fork or start.copies,
    )


def _registration(plan: planning.Plan, request: planning.LaunchRequest, start: starting.Start) -> dict[str, Any]:
    """What the engine is told of the session."""
    harness, session = request.harness, plan.session
    body: dict[str, Any] = {
        "harness": harness.name,
        "declaration": loader.wire_declaration(harness),
        "name": session.name,
        "project": str(session.root),
        "watchdog_s": plan.injection.watchdog_s,
        "render": {"preserve_thinking": request.preserve_thinking},
        "version": request.version or "",
        "observe": harness.observe,
        "config": plan.injection.config,
        "window": plan.window_tokens,
        "max_output": plan.max_output_tokens,
    }
    body.update({key: value for key, value in (("id", start.id), ("parent", start.parent)) if value})
    if request.script is not None:
        body["script"] = request.script
    return body


def _keep_engine(args: argparse.Namespace, prospect: Prospect, idle_s: int, context: Context) -> None:
    """What was said of an engine that runs already: a word of this launch counts, its default changes nothing."""
    assert prospect.running is not None
    idle = prospect.ready.get("stops_in_s") is not None
    if args.stop_engine == "never" and idle:
        keep_while_used(prospect.running, context, None)
    elif args.stop_engine == "idle" and idle:
        keep_while_used(prospect.running, context, idle_s)
    elif args.stop_engine == "idle":
        note("ft: the engine was not started by a launch, and stays: ft engine stop")
