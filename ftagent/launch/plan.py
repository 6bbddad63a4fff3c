"""The plan of a launch: pure data, built once before the engine is asked and once with its answer.

The same object is shown by the preview, printed as JSON, written by apply and executed by run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftagent.errors import FtError, UsageError
from ftagent.launch.environment import filter_environment, loopback_past_proxies, mask_urls
from ftagent.launch.find import in_range
from ftagent.launch.scan import scan
from ftagent.launch.seal_variables import proxy_variables
from harnesses.contract import EnvVar, Harness, HarnessError, Injection, LaunchContext, Warning_

if TYPE_CHECKING:
    from ftagent.files.restoring import Undo

MASK = "ft_sess_****"
NO_SESSION = "s-0000000000"  # stands for the id that the engine gives at launch
NO_TOKEN = "ft_sess_0"  # noqa: S105 - stands for the token that the engine gives at launch


@dataclass(frozen=True, slots=True)
class EngineState:
    """What is known of the engine. `window_tokens` is measured when it runs, else predicted from the model's manifest."""

    url: str
    running: bool
    command: list[str]  # what would start it; [] when it runs or must not be started
    model: str
    window_tokens: int
    toy: bool
    needs_pull: bool = False
    model_window_tokens: int | None = None  # the most that the model can have, whatever the engine was given
    thinking_switch: bool | None = None  # whether the model's template can keep the reasoning of earlier turns


@dataclass(frozen=True, slots=True)
class SessionState:
    """`id` and `token` are placeholders until the engine has given them (`assigned`)."""

    name: str
    root: Path
    cwd: Path
    branch: str | None
    state_dir: Path
    id: str = NO_SESSION
    token: str = NO_TOKEN
    assigned: bool = False
    max_output_tokens: int | None = None  # the engine's own, when it has said


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What the user asked for, and what was found on this machine."""

    harness: Harness
    args: list[str]
    home: Path
    env: Mapping[str, str]
    executable: Path | None
    skipped_executables: list[str] = field(default_factory=list)
    version: str | None = None
    ctx_tokens: int | None = None
    max_output_tokens: int | None = None
    keep_env: Sequence[str] = ()
    scrub: Sequence[str] = ()
    script: dict[str, Any] | None = None
    preserve_thinking: bool = True
    edit_hints: bool = True
    force: bool = False
    sealed: bool = False
    resume: str | None = None  # the agent's own id of the conversation to continue
    fork: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    request: LaunchRequest
    session: SessionState
    engine: EngineState
    window_tokens: int
    max_output_tokens: int
    injection: Injection
    environment: dict[str, str]  # complete, with secrets: for the child only
    set_variables: list[EnvVar]  # what ft sets, with reasons
    removed_variables: list[str]  # names that look like credentials or were asked to go
    warnings: list[Warning_]
    files_before: dict[str, str]  # text of planned files that exist, for the diff
    read: Mapping[str, str] = field(default_factory=dict)  # texts of the agent's configuration files, by path
    leftovers: Sequence[Undo] = ()  # taken out of files of the user before the agent starts, see `leftovers`
    forecast: Mapping[str, Any] | None = None  # of the first answer, see `ftagent.forecast`

    @property
    def argv(self) -> list[str]:
        """With the program first; its plain name where it is not installed."""
        adapter = self.request.harness.adapter
        program = str(self.request.executable or (adapter.executables[0] if adapter.executables else adapter.name))
        return [program, *self.injection.argv]

    @property
    def scripted(self) -> bool:
        return self.request.script is not None

    def masked(self, text: str) -> str:
        return mask_urls(text.replace(self.session.token, MASK))


def build(request: LaunchRequest, session: SessionState, engine: EngineState, files: Mapping[str, str]) -> Plan:
    """Pure. `files` are the texts of the paths that `paths_to_read` named.

    Raises UsageError when numbers do not fit, FtError with the adapter's own code when it refuses.
    """
    window, max_output, warnings = _budget(request, session, engine)
    context = launch_context(request, session, engine, window, max_output, files)
    try:
        injection = request.harness.adapter.inject(context)
    except HarnessError as error:
        raise FtError(error.message, error.hint, code="FT-E0420 launch-refused", exit_code=error.code) from None
    for file in injection.files:
        if not file.path.is_relative_to(session.state_dir):
            raise FtError(
                f"The harness {request.harness.name!r} wants to write outside the session's folder: {file.path}.",
                "Correct its adapter.py.",
                code="FT-E0110 broken-harness",
            )
    filtered = filter_environment(request.env, request.keep_env, request.scrub)
    proxies = _seal_variables(session.id) if request.sealed else _proxy_variables(filtered.kept)
    set_variables = [*injection.env, *proxies]
    environment = {name: value for name, value in filtered.kept.items() if name not in injection.unset}
    environment.update({variable.name: variable.value for variable in set_variables})
    asked = {name for name in (*request.scrub, *injection.unset) if name in request.env}
    removed = sorted((set(filtered.dropped_credentials) | asked) - {variable.name for variable in set_variables})
    return Plan(
        request=request,
        session=session,
        engine=engine,
        window_tokens=window,
        max_output_tokens=max_output,
        injection=injection,
        environment=environment,
        set_variables=set_variables,
        removed_variables=removed,
        warnings=[
            *_own_warnings(request, engine),
            *warnings,
            *injection.warnings,
            *scan(files, request.home, injection.warnings),
        ],
        read=files,
        files_before={str(file.path): files[str(file.path)] for file in injection.files if str(file.path) in files},
    )


def paths_to_read(request: LaunchRequest, session: SessionState, engine: EngineState) -> list[Path]:
    """The configuration files that the agent will read."""
    window, max_output, _ = _budget(request, session, engine)
    return request.harness.adapter.reads(launch_context(request, session, engine, window, max_output, {}))


def launch_context(
    request: LaunchRequest,
    session: SessionState,
    engine: EngineState,
    window_tokens: int,
    max_output_tokens: int,
    files: Mapping[str, str],
) -> LaunchContext:
    return LaunchContext(
        executable=request.executable,
        version=request.version,
        args=tuple(request.args),
        cwd=session.cwd,
        home=request.home,
        env=request.env,
        session_id=session.id,
        token=session.token,
        base_url=f"{engine.url}/s/{session.id}",
        model=engine.model,
        window_tokens=window_tokens,
        max_output_tokens=max_output_tokens,
        state_dir=session.state_dir,
        edit_hints=request.edit_hints,
        sealed=request.sealed,
        resume=request.resume,
        fork=request.fork,
        force=request.force,
        files=files,
    )


def _budget(request: LaunchRequest, session: SessionState, engine: EngineState) -> tuple[int, int, list[Warning_]]:
    """Window and output tokens told to the agent. A window the engine does not have is never promised."""
    window = request.ctx_tokens or engine.window_tokens
    warnings: list[Warning_] = []
    if window > engine.window_tokens:
        if not request.force:
            raise UsageError(
                f"--ctx {window} is more than the engine's window of {engine.window_tokens} tokens.",
                f"Leave --ctx out, {_larger_window(window, engine)}, or go on with --force.",
            )
        warnings.append(
            Warning_(
                "FT-W0120 window-exceeded", f"The agent is told {window} tokens, the engine has {engine.window_tokens}."
            )
        )
    max_output = request.max_output_tokens or min(default_output_tokens(window), session.max_output_tokens or window)
    if max_output >= window:
        raise UsageError(
            f"--max-output {max_output} leaves nothing of the window of {window} tokens.", "Use a smaller one."
        )
    return window, max_output, warnings


def _larger_window(wanted: int, engine: EngineState) -> str:
    """What would give that window: the model's own maximum is a limit that no setting of the engine lifts."""
    maximum = engine.model_window_tokens
    if maximum is not None and wanted > maximum:
        return f"choose another model with -m ({engine.model} has {maximum} at most)"
    return f"ft engine restart --kv {wanted}" if engine.running else f"give --kv {wanted}"


def default_output_tokens(window_tokens: int) -> int:
    """The engine's own rule: an eighth of the window, within 256 and 32k tokens."""
    return max(256, min(32768, window_tokens // 8))


def _own_warnings(request: LaunchRequest, engine: EngineState) -> list[Warning_]:
    adapter = request.harness.adapter
    warnings = []
    if request.executable is None:
        reasons = "; ".join(request.skipped_executables)
        text = f"{adapter.title} cannot run: {reasons}." if reasons else f"{adapter.title} is not installed."
        warnings.append(Warning_("FT-W0101 agent-missing", text, adapter.install_hint))
    elif request.skipped_executables:
        text = "Passed over: " + "; ".join(request.skipped_executables) + "."
        warnings.append(Warning_("FT-W0104 candidate-skipped", text, "Remove it from PATH, or repair it."))
    known = request.harness.declaration.get("versions")
    if request.version and isinstance(known, str) and not in_range(request.version, known):
        text = f"{adapter.title} {request.version} has not been checked ({known} has); the safest settings are used."
        warnings.append(Warning_("FT-W0105 version-unknown", text))
    if engine.toy:
        text = f"{engine.model} shows that everything works; it has toy quality as an agent."
        warnings.append(Warning_("FT-W0106 toy-quality", text, "Choose another model with -m, see: ft models ls"))
    if request.script is not None:
        warnings.append(
            Warning_("FT-W0107 scripted", "Replies are forced to a script: scripted replay, not the model's own.")
        )
    return warnings


def _proxy_variables(kept: Mapping[str, str]) -> list[EnvVar]:
    why = "keeps requests to this machine away from the proxy"
    return [EnvVar(name, value, why) for name, value in loopback_past_proxies(kept).items()]


def _seal_variables(session_id: str) -> list[EnvVar]:
    why = "sealed: whoever asks for the network meets a proxy that refuses and counts"
    return [EnvVar(name, value, why) for name, value in proxy_variables(session_id).items()]


def with_assigned(session: SessionState, session_id: str, token: str, sessions_dir: Path) -> SessionState:
    """The session under the id that the engine gave it."""
    return replace(session, id=session_id, token=token, assigned=True, state_dir=sessions_dir / session_id)
