"""Which engine a command uses: the one named by URL, the one that runs, or a new one, with its model made first."""

from __future__ import annotations

import contextlib
import re
import signal
from dataclasses import dataclass
from typing import Any

from ftagent.atomic import read_json
from ftagent.context import Context
from ftagent.errors import Conflict, EngineNotReady, FtError, LaunchFailed, NotHere, Refused
from ftagent.local_engine.client import EngineClient, EngineUrl, parse_engine_url
from ftagent.local_engine.command import run_engine_tool
from ftagent.local_engine.models import LocalModel, find_model
from ftagent.local_engine.options import arguments_of, as_arguments, differences, given
from ftagent.local_engine.process import (
    EngineGone,
    Show,
    serve_arguments,
    start_engine,
    wait_ready,
)
from ftagent.local_engine.running import RunningEngine, find_engine, is_crashed
from ftagent.local_engine.stop import stop_engine
from ftagent.output import note
from ftagent.paths import ensure
from ftagent.session.records import SESSION_ID
from ftagent.settings.config import Settings

ATTEMPTS = 3
_TOKEN = re.compile(r"[!-~]{1,512}")  # printable ASCII


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """What the user said about the engine. `model` is None unless it was named in this very command."""

    settings: Settings
    model: str | None
    start: bool = True
    wait: bool = True
    early: bool = False  # one that serves while it still reads its experts will do
    force: bool = False
    quiet: bool = False
    stop_when_interrupted: bool = False  # an engine that this command has started
    stop_when_idle: bool = False  # likewise


@dataclass(frozen=True, slots=True)
class Prospect:
    """What would be used, without changing anything. `running` None: `model` would be started at `url` with `kv_tokens`."""

    url: EngineUrl
    running: RunningEngine | None
    model: LocalModel
    ready: dict[str, Any]  # the body of /ready, {} when it is not running
    kv_tokens: int | None = None  # asked for

    @property
    def window_tokens(self) -> int | None:
        served = self.ready.get("window")
        if isinstance(served, int) and served > 0:
            return served
        limits = [tokens for tokens in (self.model.window_tokens, self.kv_tokens) if tokens]
        return min(limits) if self.model.window_tokens else None


def remote_engine(url: EngineUrl, context: Context, force: bool) -> RunningEngine:
    """An engine named by URL. Raises Refused before a secret would go to another machine unasked."""
    token = context.env.get("FT_ENGINE_TOKEN")
    if url.loopback:
        record = read_json(context.paths.engine_file) or {}
        if record.get("port") == url.port:
            token = token or record.get("admin_token")
    elif not force:
        raise Refused(
            f"{url.text} is another machine: the engine's token and everything the agent reads would go there.",
            "If that is what you want, add --force and set FT_ENGINE_TOKEN.",
            code="FT-E0430 remote-engine",
        )
    if not token:
        raise Refused(f"No token for the engine at {url.text}.", "Set FT_ENGINE_TOKEN to its admin token.")
    client = EngineClient(url, token)
    _, health = client.call("GET", "/health", timeout_s=5.0)
    fields = health if isinstance(health, dict) else {}
    if "nonce" not in fields:
        raise Conflict(f"What answers at {url.text} is not an ft engine.", "Check the URL: --engine URL")
    return RunningEngine(client, None, None, fields.get("version"))


def look(choice: EngineChoice, context: Context) -> Prospect:
    """Reads only: the running engine if there is one that has not crashed, else the model that would be served."""
    settings = choice.settings
    models_dir = context.models_dir(settings)
    named = settings.optional_text("engine")
    if named is not None:
        running: RunningEngine | None = remote_engine(parse_engine_url(named), context, choice.force)
    else:
        running = find_engine(context.paths)
    ready: dict[str, Any] = {}
    if running is not None:
        try:
            ready = running.ready_state()
        except EngineNotReady:
            if named is not None or find_engine(context.paths) is not None:
                raise
            running = None  # it ended between the two questions
    if running is None or (named is None and choice.start and is_crashed(ready)):
        model = find_model(choice.model or settings.text("model"), models_dir, context.cwd)
        url = parse_engine_url(f"http://127.0.0.1:{settings.number('port')}")
        return Prospect(url, None, model, {}, settings.optional_number("kv"))
    served = str(ready.get("model") or running.model or "")
    if choice.model is not None and served:
        wanted = find_model(choice.model, models_dir, context.cwd) if named is None else None
        if served not in ({wanted.name, wanted.reference} if wanted else {choice.model}):
            raise Conflict(
                f"The engine serves {served}, and you asked for {choice.model}.",
                f"ft engine restart -m {choice.model}; or leave -m out to use {served}.",
                code="FT-E0612 other-model",
            )
    return Prospect(running.url, running, _served_model(served, context, settings), ready)


def _served_model(served: str, context: Context, settings: Settings) -> LocalModel:
    try:
        return find_model(served, context.models_dir(settings), context.cwd)
    except FtError:
        return LocalModel(served, served, None, None, False)


def start_command(prospect: Prospect, choice: EngineChoice, context: Context) -> list[str]:
    """The `ft serve` line that a plan shows; [] when nothing would be started."""
    if prospect.running is not None or not choice.start:
        return []
    command = ["ft", "serve", "--model", prospect.model.reference]
    if choice.settings.origins["port"] == "default":
        command += ["--port", str(prospect.url.port)]
    return command + as_arguments(choice.settings, chosen_only=True)


def ignored(prospect: Prospect, choice: EngineChoice) -> str:
    """What to say of this command's flags that the running engine does not follow; empty where it follows all."""
    if prospect.running is None:
        return ""
    pid = prospect.running.pid
    differ = differences(choice.settings, None if pid is None else arguments_of(pid))
    if not differ:
        return ""
    again = " ".join(["ft engine restart", *given(choice.settings)])
    return f"the engine runs already, without {', '.join(differ)}. To apply: {again}"


def provide(choice: EngineChoice, context: Context, show: Show) -> Prospect:
    """A running engine, ready unless `wait` is off. Makes the model and starts the engine where needed.

    One that was there and ends of itself meanwhile, for want of use or because it was stopped, is followed by a new one."""
    replaceable = choice.start and choice.settings.optional_text("engine") is None
    for _ in range(ATTEMPTS - 1):
        try:
            return _provide(choice, context, show, replaceable)
        except EngineGone:
            if not replaceable:
                raise
    return _provide(choice, context, show, False)


def _provide(choice: EngineChoice, context: Context, show: Show, replaceable: bool) -> Prospect:
    """Raises EngineGone when one that was not started here has ended."""
    prospect = look(choice, context)
    settings = choice.settings
    silence_s = float(settings.number("wait"))
    running, started = prospect.running, False
    if running is not None and replaceable and not running.is_ours_to_use():
        raise EngineGone("The engine is ending.", "ft engine start")
    if running is None:
        if not choice.start:
            raise NotHere("No engine is running.", "ft engine start", code="FT-E0302 engine-not-running")
        models_dir = context.models_dir(settings)
        if not prospect.model.pulled:
            pull_model(prospect.model.name, context, settings, choice.quiet)
        ensure(context.paths.state)
        running, started = start_engine(
            serve_arguments(prospect.model, settings, models_dir, context.paths),
            settings.number("port"),
            context.paths,
            context.env,
            show,
            silence_s,
        )
        if started and choice.stop_when_idle:
            keep_while_used(running, context, settings.number("idle_stop"))
    elif said := ignored(prospect, choice):
        note(f"ft: {said}")
    if choice.wait:
        try:
            ready = wait_ready(running, context.paths.engine_log, show, silence_s, choice.early)
        except KeyboardInterrupt:
            _interrupted(context, started and choice.stop_when_interrupted)
            raise
        except EngineGone as gone:
            if not started:
                raise
            raise EngineNotReady(gone.message, gone.hint, code=gone.code, exit_code=gone.exit_code) from None
    else:
        ready = running.ready_state()
    served = str(ready.get("model") or running.model or prospect.model.name)
    if choice.model is not None and served not in (prospect.model.name, prospect.model.reference, choice.model):
        raise Conflict(
            f"The engine serves {served}, and you asked for {choice.model}.", f"ft engine restart -m {choice.model}"
        )
    return Prospect(running.url, running, _served_model(served, context, settings), ready)


def keep_while_used(running: RunningEngine, context: Context, idle_s: int | None) -> None:
    """The engine ends after so long without a request and an agent; None: it stays. An engine that cannot do that stays."""
    with contextlib.suppress(FtError):
        running.client.post("/v1/engine/idle", {"after_s": idle_s, "leases": str(context.paths.leases)}, timeout_s=5.0)


def _interrupted(context: Context, stop: bool) -> None:
    """Says what becomes of an engine that nobody waits for any more."""
    if stop and stop_engine(context.paths, grace_s=2.0):
        note("\nft: engine stopped")
    else:
        note("\nft: the engine goes on starting; to end it: ft engine stop")


def pull_model(name: str, context: Context, settings: Settings, quiet: bool) -> None:
    """Raises EngineNotReady when the model cannot be made here. Its progress goes to stderr."""
    if not quiet:
        note(f"ft: the model {name} is not here yet; making it (once)")
    models_dir = ensure(context.models_dir(settings).resolve())  # may be a link to a larger disk
    code = run_engine_tool(context.env, "models", "pull", name, "--models-dir", str(models_dir), output_to_stderr=True)
    if code == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if code != 0:
        raise EngineNotReady(
            f"The model {name} could not be made (exit code {code}).",
            f"ft models pull {name}",
            code="FT-E0513 no-model",
        )


def register_session(engine: RunningEngine, body: dict[str, Any]) -> dict[str, Any]:
    """POST /v1/sessions. The answer has at least `id` and `token`; raises LaunchFailed otherwise.

    The id names folders here, so one that is not in the engine's own form is refused.
    """
    try:
        answer = engine.client.post("/v1/sessions", body)
    except EngineNotReady:
        raise
    except FtError as error:
        raise LaunchFailed(f"The engine did not accept the session: {error.message}", error.hint) from None
    fields = answer if isinstance(answer, dict) else {}
    for name, form in (("id", SESSION_ID), ("token", _TOKEN)):
        value = fields.get(name)
        if not isinstance(value, str) or not form.fullmatch(value):
            raise LaunchFailed(
                f"The engine at {engine.url.text} answered a new session with no usable {name}.",
                "Check that it is an ft engine: ft engine logs",
            )
    return fields


def end_session(client: EngineClient, session_id: str) -> None:
    """Its token opens nothing any more. An engine that is gone, or has forgotten it, needs no telling."""
    with contextlib.suppress(FtError):
        client.delete(f"/v1/sessions/{session_id}")
