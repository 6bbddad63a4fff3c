"""What `ftagent` asks of a harness. An adapter is pure: it reads what it is handed and returns data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """Everything an adapter may know. Paths exist only when applied; a dry run passes the paths that would be used."""

    executable: Path | None  # None: not installed (a dry run still works)
    version: str | None  # of the executable, from the cache; None when unknown
    args: Sequence[str]  # what the user typed after `--`
    cwd: Path
    home: Path
    env: Mapping[str, str]  # the user's environment, unfiltered, to read only
    session_id: str  # s-…
    token: str  # ft_sess_…
    base_url: str  # http://127.0.0.1:1919/s/<session id>, no trailing slash, no /v1
    model: str
    window_tokens: int
    max_output_tokens: int
    state_dir: Path  # this session's own folder, 0700; files of the plan go here
    silence_limit_s: int = 3600  # what the agent's watchdogs are raised to
    edit_hints: bool = (
        True  # load our extension or plugin, where the agent has one, that announces edits of its context
    )
    resume: str | None = None  # the agent's own id of the conversation to continue
    fork: bool = False  # continue a copy of `resume` and leave it as it is
    sealed: bool = False  # a private state folder: the user's logins, keys and settings of providers stay out of reach
    force: bool = False  # refusals that protect (window too small, a file that redirects) become warnings
    files: Mapping[str, str] = field(default_factory=dict)  # config files found, path -> text, see `Adapter.reads`


@dataclass(frozen=True, slots=True)
class EnvVar:
    name: str
    value: str
    why: str
    secret: bool = False
    replaces: str | None = None  # what the user's shell or settings had, in words


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file written at apply time, 0600, below the session's state folder."""

    path: Path
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class Warning_:
    code: str  # stable, e.g. FT-W0101 agent-missing
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Injection:
    """How one agent is pointed at the engine: the adapter's whole answer."""

    argv: list[str]  # without the executable
    env: list[EnvVar] = field(default_factory=list)
    unset: list[str] = field(default_factory=list)  # besides what the allow-list drops anyway
    files: list[PlannedFile] = field(default_factory=list)
    warnings: list[Warning_] = field(default_factory=list)
    watchdog_s: float | None = None  # the agent's limit on silence before the first byte, under these settings
    watchdog_default_s: float | None = None
    harness_ids: list[str] = field(default_factory=list)  # ids assigned to the agent's own session
    config: dict[str, Any] = field(default_factory=dict)  # settings of the agent that rules of its declaration name


@dataclass(frozen=True, slots=True)
class Integration:
    """Keys of ours in the user's own configuration (`--integrate`), for an adapter that has `integration(context)`.

    `values`: by path of keys. `format`: toml, yaml, json, jsonc or json5. `replaces`: variables of a launch that are left out.
    """

    path: Path
    format: str
    values: Mapping[tuple[str, ...], Any]
    replaces: Sequence[str] = ()


class HarnessError(Exception):
    """The launch is refused; `hint` says what to do.

    `code`: 2 for bad arguments, 4 to protect data, 5 when the engine's window is too small for this agent.
    """

    def __init__(self, message: str, hint: str = "", code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


class OutOfReach(HarnessError):
    """A sealed launch was to go on with a conversation that lies in the user's own folder."""

    def __init__(self) -> None:
        super().__init__(
            "The conversation lies in your own folder, which a sealed launch keeps out of reach.",
            "Continue it without --sealed, or start a new one.",
        )


class Adapter(Protocol):
    """`harnesses/<name>/adapter.py` holds `ADAPTER`, an object with these members."""

    name: str
    title: str
    executables: Sequence[
        str
    ]  # names to look for on PATH, best first; (): part of ft, run by ft's own interpreter (mini)
    install_hint: str
    version_args: Sequence[str]

    def reads(self, context: LaunchContext) -> list[Path]:
        """Config files of the user and the project that the agent will read; their text arrives in `context.files`."""

    def inject(self, context: LaunchContext) -> Injection:
        """Raises HarnessError when the user's arguments or files would redirect the agent, or it cannot continue `resume`."""

    def transcript(self, context: LaunchContext, harness_id: str) -> Path | None:
        """Where the agent keeps that conversation, whether or not it is there; None when that cannot be known."""


@dataclass(frozen=True, slots=True)
class Harness:
    """A loaded folder: its declaration (harness.toml, parsed) and its adapter."""

    name: str
    declaration: dict[str, Any]
    adapter: Adapter
    observe: bool = False  # nothing of it was verified: the engine watches what it does and drafts a declaration
