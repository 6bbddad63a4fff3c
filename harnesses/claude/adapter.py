"""Claude Code: one settings file per launch, which stands above the user's and the project's settings."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from harnesses import flags
from harnesses.claude import private
from harnesses.claude.data import LAUNCH, RESUMES
from harnesses.contract import EnvVar, HarnessError, Injection, LaunchContext, PlannedFile, Warning_
from harnesses.findings import managed, parse_object, place
from harnesses.launchdata import check_window, environment, shown

REDIRECTING_SETTINGS: Sequence[str] = LAUNCH.raw["redirecting_settings"]
REDIRECTING_ENV = re.compile(LAUNCH.raw["redirecting_env"])
MANAGED = (
    Path("/etc/claude-code/managed-settings.json"),
    Path("/Library/Application Support/ClaudeCode/managed-settings.json"),
)


class ClaudeAdapter:
    name = "claude"
    title = LAUNCH.title
    executables: Sequence[str] = ("claude",)
    install_hint = "npm install -g @anthropic-ai/claude-code"
    version_args: Sequence[str] = ("--version",)

    def reads(self, context: LaunchContext) -> list[Path]:
        given = flags.value_of(context.args, "--settings")
        own = [_given_path(given, context)] if given and not given.lstrip().startswith("{") else []
        return [*own, *_lower_files(context), *MANAGED, *private.reads(context)]

    def inject(self, context: LaunchContext) -> Injection:
        flags.refuse_redirection(LAUNCH, context.args)
        warnings = [*check_window(LAUNCH, context), *_managed_warnings(context)]
        env = _with_settings_named(environment(LAUNCH, context), context)
        settings = context.state_dir / "claude.json"
        chosen, ids = _conversation(context)
        return Injection(
            argv=["--settings", str(settings), *chosen, *flags.without(context.args, "--settings")],
            env=[*env, *private.variables(context)],
            files=[
                PlannedFile(
                    settings,
                    json.dumps(_settings(context, env), indent=2) + "\n",
                    "beats the settings of the user and of the project",
                ),
                *private.files(context),
            ],
            warnings=[*warnings, *private.warnings(context), *_overridden(context)],
            watchdog_s=float(min(context.silence_limit_s, LAUNCH.raw["watchdog_most_s"])),
            watchdog_default_s=LAUNCH.watchdog_default_s,
            harness_ids=ids,
        )

    def transcript(self, context: LaunchContext, harness_id: str) -> Path | None:
        folder = re.sub(r"[^A-Za-z0-9]", "-", str(context.cwd))
        return private.folder(context) / "projects" / folder / f"{harness_id}.jsonl"


def _conversation(context: LaunchContext) -> tuple[list[str], list[str]]:
    """The arguments that choose the conversation, and the id it will have where ft knows it."""
    runs_none = flags.first_word(context.args) in LAUNCH.commands
    new = str(uuid5(NAMESPACE_URL, f"ft:{context.session_id}"))
    if context.resume is not None:
        if runs_none:
            raise HarnessError(f"claude {context.args[0]} continues no conversation.", "Leave it out.")
        flags.refuse_second_choice("Claude Code", context.args, *RESUMES)
        if context.fork:
            return ["--resume", context.resume, "--fork-session", "--session-id", new], [new]
        return ["--resume", context.resume], [context.resume]
    if runs_none or flags.has(context.args, *RESUMES):
        return [], []
    return ["--session-id", new], [new]


def _settings(context: LaunchContext, env: list[EnvVar]) -> dict[str, Any]:
    """The user's own --settings with ours on top."""
    merged = _given_settings(context)
    theirs = merged.get("env")
    kept = {k: v for k, v in theirs.items() if not REDIRECTING_ENV.match(k)} if isinstance(theirs, dict) else {}
    for key in REDIRECTING_SETTINGS:
        merged.pop(key, None)
    merged |= LAUNCH.raw["settings"]
    merged["apiKeyHelper"] = ""
    merged["model"] = context.model
    merged["env"] = {**kept, **{variable.name: variable.value for variable in env}}
    return merged


def _given_settings(context: LaunchContext) -> dict[str, Any]:
    given = flags.value_of(context.args, "--settings")
    if given is None:
        return {}
    if given.lstrip().startswith("{"):
        return parse_object(Path("--settings"), given)
    path = _given_path(given, context)
    if str(path) not in context.files:
        raise HarnessError(f"--settings {given}: there is no such file.", "Give the path of a settings file.")
    return parse_object(path, context.files[str(path)])


def _given_path(given: str, context: LaunchContext) -> Path:
    return context.cwd / Path(given).expanduser()


def _lower_files(context: LaunchContext) -> list[Path]:
    """Files that ours stands above, strongest first."""
    project = context.cwd / ".claude"
    return [project / "settings.local.json", project / "settings.json", private.user_folder(context) / "settings.json"]


def _found(context: LaunchContext, paths: Sequence[Path]) -> list[tuple[Path, str, dict[str, Any]]]:
    """The files of `paths` that exist and parse; Claude itself reports the others."""
    found = []
    for path in paths:
        text = context.files.get(str(path))
        if text is not None:
            try:
                found.append((path, text, parse_object(path, text)))
            except HarnessError:
                continue
    return found


def _with_settings_named(env: list[EnvVar], context: LaunchContext) -> list[EnvVar]:
    """Each variable with what a settings file says instead, which matters more than what the shell says."""
    files = _found(context, _lower_files(context))
    named = []
    for variable in env:
        for path, text, settings in files:
            theirs = _env_block(settings).get(variable.name)
            if theirs is not None and str(theirs) != variable.value:
                where = place(path, text, variable.name, context.home)
                variable = replace(variable, replaces=f"{shown(variable.name, str(theirs))} ({where})")
                break
        named.append(variable)
    return named


def _overridden(context: LaunchContext) -> list[Warning_]:
    """Settings other than `env` that would have decided where requests go."""
    return [
        Warning_(
            "FT-W0110 setting-overridden",
            f"{place(path, text, key, context.home)} sets {key}; it has no effect in this launch.",
        )
        for path, text, settings in _found(context, _lower_files(context))
        for key in REDIRECTING_SETTINGS
        if settings.get(key)
    ]


def _managed_warnings(context: LaunchContext) -> list[Warning_]:
    """Managed settings beat every file: raises HarnessError (code 4) when they redirect, with `force` only warns."""
    warnings: list[Warning_] = []
    for path, text, settings in _found(context, MANAGED):
        redirecting = [key for key in REDIRECTING_SETTINGS if key != "model" and settings.get(key)]
        redirecting += [key for key in _env_block(settings) if REDIRECTING_ENV.match(key)]
        warnings += [managed(path, text, key, context) for key in redirecting]
    return warnings


def _env_block(settings: dict[str, Any]) -> dict[str, Any]:
    block = settings.get("env")
    return block if isinstance(block, dict) else {}


ADAPTER = ClaudeAdapter()
