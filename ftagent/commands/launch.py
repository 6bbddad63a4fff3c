"""Run a coding agent on the local engine"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftagent.agents import loader
from ftagent.context import Context, find_project, git_branch
from ftagent.errors import NotHere, Refused, UsageError
from ftagent.launch import plan as planning
from ftagent.launch import starting
from ftagent.launch.events import Events
from ftagent.launch.find import agent_path, cached_version, find_executable, probe_version
from ftagent.launch.shell import SHELLS
from ftagent.local_engine.options import for_agents
from ftagent.local_engine.provision import (
    EngineChoice,
    Prospect,
    end_session,
    keep_while_used,
    look,
    provide,
    register_session,
    start_command,
)
from ftagent.output import note
from ftagent.session import names, records
from ftagent.text import require_utf8
from harnesses.contract import Harness

if TYPE_CHECKING:
    from ftagent.files.writing import FilePlan

TAKES_REST = True
EXAMPLES = """\
examples:
  ft launch claude                            an interactive session in this folder
  ft launch codex -- exec "fix the test"      what follows -- goes to the agent
  ft launch claude -c                         go on with the newest session of this project
  ft launch pi --dry-run                      show what would happen, change nothing
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


def run(args: argparse.Namespace, context: Context) -> int:
    with contextlib.ExitStack() as until_recorded:
        return _run(args, context, until_recorded)


def _run(args: argparse.Namespace, context: Context, until_recorded: contextlib.ExitStack) -> int:
    here = _project(args, context)
    start = starting.find(args, context, here)
    args.agent = start.agent
    harness = _harness(args, context)
    looks = args.dry_run or args.print_config
    if args.exec and (args.no_exec or args.print_env):
        raise UsageError("--exec runs the agent, --no-exec and --print-env do not.", "Leave one of them out.")
    if args.sealed and (args.exec or args.print_env):
        raise UsageError("--sealed needs ft beside the agent.", "Leave out --exec and --print-env.")
    project = start.place.root
    _require_utf8(args, project, context)
    settings = context.settings(
        {
            "ctx": args.ctx,
            "max_output": args.max_output,
            "kv": args.kv,
            "wait": args.wait,
            "engine": args.engine,
            "preserve_thinking": args.preserve_thinking,
            "edit_hints": args.edit_hints,
        },
        project,
    )
    settings = for_agents(settings)
    choice = EngineChoice(
        settings,
        args.model,
        not args.no_start,
        not args.no_wait,
        args.force,
        quiet=args.quiet or args.json,
        stop_when_idle=args.stop_engine != "never",
    )
    adapter = harness.adapter
    found = find_executable(adapter.executables, agent_path(context.env, context.paths))
    executable = found.path if adapter.executables else Path(sys.executable)
    request = planning.LaunchRequest(
        harness=harness,
        args=args.rest,
        home=context.paths.home,
        env=starting.without_ours(context.env),
        executable=executable,
        skipped_executables=found.skipped,
        version=cached_version(found.path, context.paths),
        ctx_tokens=settings.optional_number("ctx"),
        max_output_tokens=settings.optional_number("max_output"),
        keep_env=args.keep_env,
        scrub=args.scrub,
        script=_read_script(args.script),
        preserve_thinking=settings.switch("preserve_thinking"),
        edit_hints=settings.switch("edit_hints"),
        force=args.force,
        sealed=args.sealed,
        resume=start.conversation,
        fork=start.fork or start.copies,
    )
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
    plan = _build(request, session, look(choice, context), choice, context)
    change = None
    if args.integrate:
        from ftagent.launch.integration import integrated

        plan, change = integrated(plan)
    if looks:
        return _show(plan, args, context, change)
    if args.detach and not start.inside_tmux:
        return starting.detach_launch(start, args, choice, context)
    starting.make_worktree(start, context)
    if not (args.no_exec or args.print_env) and adapter.executables:
        executable = found.require(adapter.title, adapter.install_hint)
        version = probe_version(executable, adapter.version_args, plan.environment, context.paths)
        request = replace(request, version=version)

    from ftagent.launch.perform import Origin, prepare, run_prepared
    from ftagent.launch.receipt import Prices

    events = Events(as_json=args.json, quiet=args.quiet, style=context.err)
    prospect = provide(choice, context, events.progress)
    events.progress_done()
    assert prospect.running is not None
    _keep_engine(args, prospect, settings.number("idle_stop"), context)
    body: dict[str, Any] = {
        "harness": harness.name,
        "declaration": loader.wire_declaration(harness),
        "name": name,
        "project": str(project),
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
    # before the engine is told: there a session that is registered again is another one's no more
    lease = records.take_lease(context.paths, start.id) if start.id and start.earlier_record else None
    answer = register_session(prospect.running, body)
    session = planning.with_assigned(session, answer["id"], answer["token"], context.paths.sessions)
    if isinstance(answer.get("max_output"), int):
        session = replace(session, max_output_tokens=answer["max_output"])
    try:
        plan = _build(request, session, prospect, choice, context)
        if args.integrate:
            plan, change = integrated(plan)
    except BaseException:
        end_session(prospect.running.client, session.id)
        raise
    prices = Prices.of(settings)
    origin = Origin(start.earlier_record, start.parent, start.worktree, start.tmux, prices)
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
        return _prepared_only(plan, args, events, context)
    code = run_prepared(prepared, events, become=args.exec, lease=lease)
    if args.stop_engine == "exit" and not records.held_leases(context.paths):
        from ftagent.local_engine.stop import stop_engine

        stop_engine(context.paths)
    return code


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


def _harness(args: argparse.Namespace, context: Context) -> Harness:
    """For `run` the command's own, which then has its arguments only."""
    if args.agent != "run":
        if args.declaration is not None:
            raise UsageError("--declaration belongs to ft launch run.", "Leave it out.")
        return loader.load(args.agent)
    harness = loader.load_command(args.rest, args.declaration, context.cwd)
    args.rest = args.rest[1:]
    return harness


def _project(args: argparse.Namespace, context: Context) -> Path:
    if args.project is None:
        return find_project(context.cwd)
    project: Path = (context.cwd / args.project.expanduser()).resolve()
    if not project.is_dir():
        raise NotHere(f"The project folder {project} does not exist.", "Correct -C DIR.")
    return project


def _require_utf8(args: argparse.Namespace, project: Path, context: Context) -> None:
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


def _read_script(path: Path | None) -> dict[str, Any] | None:
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


def _build(
    request: planning.LaunchRequest,
    session: planning.SessionState,
    prospect: Prospect,
    choice: EngineChoice,
    context: Context,
) -> planning.Plan:
    """Gathers what the pure plan needs from disk, and builds it."""
    from ftagent.local_engine.models import DEFAULT_WINDOW_TOKENS

    engine = planning.EngineState(
        url=prospect.url.text,
        running=prospect.running is not None,
        command=start_command(prospect, choice, context),
        model=prospect.model.name,
        window_tokens=prospect.window_tokens or DEFAULT_WINDOW_TOKENS,
        model_window_tokens=prospect.model.window_tokens,
        toy=prospect.model.toy,
        needs_pull=prospect.running is None and not prospect.model.pulled,
        thinking_switch=prospect.model.thinking_switch,
    )
    from ftagent.launch import leftovers

    left = leftovers.find(request.harness, context.paths)
    texts: dict[str, str] = {}
    for path in planning.paths_to_read(request, session, engine):
        try:
            texts[str(path)] = leftovers.text_after(path, path.read_text(encoding="utf-8"), left)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        except (OSError, UnicodeDecodeError) as error:
            if not request.force:
                raise Refused(f"{path} cannot be read: {error}.", "Repair the file, or go on with --force.") from None
    plan = planning.build(request, session, engine, texts)
    return replace(plan, leftovers=left, forecast=_forecast(plan, prospect, context))


def _forecast(plan: planning.Plan, prospect: Prospect, context: Context) -> dict[str, Any]:
    from ftagent.forecast import before_launch

    first = plan.request.harness.declaration.get("launch", {}).get("first_prompt")
    running = None if prospect.running is None else prospect.running.client
    return before_launch(context.paths, plan.engine.model, first, plan.injection.watchdog_s, running).json()


def _show(plan: planning.Plan, args: argparse.Namespace, context: Context, change: FilePlan | None) -> int:
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


def _prepared_only(plan: planning.Plan, args: argparse.Namespace, events: Events, context: Context) -> int:
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
