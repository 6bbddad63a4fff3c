"""What a launch starts from: nothing, an earlier session, or a copy of one; in which folder; here or in the background."""

from __future__ import annotations

import argparse
import base64
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ftagent.context import Context
from ftagent.errors import FtError, NotHere, Refused, UsageError
from ftagent.launch import detach
from ftagent.launch.events import Events
from ftagent.local_engine.provision import EngineChoice, provide
from ftagent.local_engine.running import RunningEngine, find_engine
from ftagent.output import note
from ftagent.session import choice as session_choice
from ftagent.session import links
from ftagent.session.choice import Place
from ftagent.session.records import Session, conversations_but
from ftagent.session.worktree import add_worktree, plan_worktree

COPY_MOVED = ("pi",)  # that refuse a conversation of a folder that is gone, and take a copy of it by its path
PREFETCH_S = 5.0


@dataclass(frozen=True, slots=True)
class Start:
    """`id` None: the engine gives one. `name` None: chosen. `conversation`: the agent's own id to go on with."""

    agent: str
    place: Place
    earlier: Session | None = None
    fork: bool = False
    conversation: str | None = None
    id: str | None = None
    name: str | None = None
    worktree: dict[str, Any] | None = None
    make: bool = False  # the worktree
    more_args: list[str] = field(default_factory=list)
    inside_tmux: bool = False
    copies: bool = False  # the session goes on in a copy of its conversation

    @property
    def parent(self) -> str | None:
        return self.earlier.id if self.earlier is not None and self.fork else None

    @property
    def earlier_record(self) -> dict[str, Any] | None:
        return self.earlier.record if self.earlier is not None and not self.fork else None

    @property
    def tmux(self) -> str | None:
        return detach.name_of(self.id) if self.inside_tmux and self.id else None


def find(args: argparse.Namespace, context: Context, here: Path) -> Start:
    """Raises NotHere, UsageError or Refused."""
    inside = context.env.get(detach.ID_VARIABLE)
    asked = args.resume if args.resume is not None else args.fork
    if asked is None and not args.proceed:
        for given, flag in ((args.last, "--last"), (args.conversation, "--conversation")):
            if given:
                raise UsageError(f"{flag} belongs to a session that is resumed.", "Add -r or -c.")
        if args.agent is None:
            raise UsageError("ft launch needs an agent.", "ft launch claude; ft help launch")
        if not args.new and not args.quiet and not args.json and not inside:
            _hint(context, here, args.agent)
        return Start(args.agent, Place(here, context.cwd, None), id=inside, inside_tmux=bool(inside))
    wanted = inside if inside and args.fork is None else asked or ""
    session = session_choice.choose(context, here, args.agent, wanted, args.last or args.proceed)
    assert session.record is not None
    if args.fork is None:
        session_choice.refuse_attached(context, session)
    worktree = session.field("project", "worktree")
    cwd = Path(session.field("project", "cwd") or here)
    make = isinstance(worktree, dict) and worktree.get("by") == "ft" and not Path(worktree["path"]).exists()
    if make:
        _ask_worktree(args, context, session, worktree)
        place = Place(Path(session.field("project", "root") or here), cwd, None)
    else:
        place = session_choice.place_of(session, here)
    agent = args.agent or str(session.field("agent", "name"))
    session = _linked(session, agent, context)
    conversation = links.continued(session.record or {}, args.conversation)
    kept = links.transcript_of(session.record or {}, conversation)
    if kept is not None and not kept.exists():
        raise NotHere(
            f"{agent} has no record of session {session.field('name')} any more: {kept} is gone.",
            f"ft launch {agent}",
            code="FT-E0305 session-lost",
        )
    if args.fork is not None and kept is not None and kept.is_relative_to(context.paths.sessions):
        raise Refused(
            f"The conversation of session {session.field('name')} lies in that session's own folder; a copy would not find it.",
            f"Go on with it: ft resume {session.field('name')}",
        )
    copies = False
    if place.moved is not None:
        note(f"ft: the project was {place.moved} before")
        if agent in COPY_MOVED and kept is not None:
            conversation, copies = str(kept), True
    own = None if args.fork is not None else session.id
    name = None if args.fork is not None else str(session.field("name") or session.id)
    return Start(
        agent,
        place,
        session,
        args.fork is not None,
        conversation,
        own or inside,
        name,
        worktree,
        make,
        [],
        bool(inside),
        copies,
    )


def without_ours(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name != detach.ID_VARIABLE}


def with_worktree(start: Start, args: argparse.Namespace, agent: str, name: str) -> Start:
    """The start in a worktree, where one is asked for; nothing is made yet."""
    if args.worktree is None or start.earlier is not None:
        return start
    own = agent == "claude"
    planned = plan_worktree(start.place.root, args.worktree or name, own)
    if own:
        return replace(start, worktree=planned, more_args=["--worktree", args.worktree or name])
    below = (
        start.place.cwd.relative_to(start.place.root) if start.place.cwd.is_relative_to(start.place.root) else Path()
    )
    place = replace(start.place, cwd=Path(planned["path"]) / below)
    return replace(start, worktree=planned, make=True, place=place)


def make_worktree(start: Start, context: Context) -> None:
    if start.make and start.worktree is not None:
        add_worktree(start.place.root, start.worktree)


def detach_launch(start: Start, args: argparse.Namespace, choice: EngineChoice, context: Context) -> int:
    """The same command once more, inside of tmux. The engine is started here, where its failures can be seen."""
    if args.exec or args.no_exec or args.print_env:
        raise UsageError("--detach runs the agent in the background.", "Leave the other of them out.")
    detach.tmux(context.env)
    events = Events(as_json=args.json, quiet=args.quiet, style=context.err)
    provide(choice, context, events.progress)
    events.progress_done()
    id_ = start.id or "s-" + base64.b32encode(secrets.token_bytes(7))[:10].decode().lower()
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    ours = [word for word in words[:end] if word != "--detach"]
    detach.start(id_, [*ours, *words[end:]], context.env, context.cwd, context.paths)
    events.say("detached", f"session {id_} runs in the background: ft sessions attach {id_}", session=id_)
    return 0


def say_start(start: Start, engine: RunningEngine, session_id: str, model: str, events: Events) -> None:
    """What going on costs, while the engine already brings back what it can."""
    if start.earlier is None:
        return
    before = start.earlier.field("model", "id")
    if before not in (None, model):
        events.say(
            "cost", f"the prefix cannot be reused: {before} before, {model} now; the first prompt is computed anew"
        )
        return
    try:
        told = engine.client.post(f"/v1/sessions/{session_id}/prefetch", {}, timeout_s=PREFETCH_S)
    except FtError:
        return
    told = told if isinstance(told, dict) else {}
    tokens, of, tier, eta = (told.get(key) for key in ("tokens", "of", "tier", "eta_s"))
    if tier == "gone" or not of:
        text = "nothing of it is warm: the first prompt is computed anew"
    elif tier is None:
        text = f"{of:,} tokens are being brought back"
    else:
        text = f"{tokens:,} of {of:,} tokens are warm (from {tier})"
        text += f", the rest in about {eta:.1f} s" if isinstance(eta, int | float) and eta > 0 else ""
    events.say("cost", f"resuming: {text}", **{key: told.get(key) for key in ("tokens", "of", "tier", "eta_s")})


def _hint(context: Context, here: Path, agent: str) -> None:
    for session in session_choice.resumable(context, here, agent) if agent != "run" else []:
        if _has_conversation(session, agent, context):
            note(f"ft: a new session; to go on with {session.field('name')}: ft resume {session.field('name')}")
            return


def _has_conversation(session: Session, agent: str, context: Context) -> bool:
    linked = _linked(session, agent, context)
    try:
        links.continued(linked.record or {})
    except NotHere:
        return False
    except UsageError:
        return True  # of several the user has to choose one
    return not links.is_lost(linked.record or {})


def _ask_worktree(args: argparse.Namespace, context: Context, session: Session, worktree: Mapping[str, Any]) -> None:
    if args.worktree is not None or args.dry_run:
        return
    if context.may_ask and context.confirm(f"The worktree {worktree['path']} is gone. Make it again?"):
        return
    raise Refused(
        f"The worktree of session {session.field('name')} is gone: {worktree['path']}.",
        f"ft resume {session.field('name')} --worktree makes it again on branch {worktree['branch']}",
        code="FT-E0441 worktree-gone",
    )


def _linked(session: Session, agent: str, context: Context) -> Session:
    """With what can still be found out of a run whose end nobody recorded."""
    record, run = session.record or {}, session.last_run
    if run.get("end") is not None or record.get("harness"):
        return session
    found: list[dict[str, Any]] = []
    engine = find_engine(context.paths)
    if engine is not None:
        from ftagent.launch.receipt import fetch_session

        found = links.observed(fetch_session(engine.client, session.id))
    if not found and run.get("start"):
        begin = datetime.fromisoformat(str(run["start"]).replace("Z", "+00:00"))
        cwd = Path(session.field("project", "cwd") or context.cwd)
        taken = conversations_but(context.paths, session.id)
        state_dir = context.paths.sessions / session.id
        found = links.scan(agent, context.env, context.paths.home, cwd, begin, datetime.now(UTC), taken, state_dir)
    return replace(session, record={**record, "harness": links.merge([], found)})
