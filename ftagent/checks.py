"""The checks of `ft doctor`: each finds one fact and changes nothing."""

from __future__ import annotations

import os
import resource
import shutil
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ftagent.agents import loader
from ftagent.context import Context
from ftagent.errors import FtError
from ftagent.launch.environment import PROXIES, looks_like_credential
from ftagent.launch.find import agent_path, cached_version, find_executable, in_range
from ftagent.local_engine import port_owner
from ftagent.local_engine.models import DEFAULT_MODEL, find_model, installed
from ftagent.local_engine.report import describe, engine_report
from ftagent.local_engine.running import find_engine
from ftagent.settings.config import Settings

FREE_BYTES = 16 << 20  # with less no log, no session and no lease is sure to be written
MANAGED_SETTINGS = (
    "/etc/claude-code/managed-settings.json",
    "/Library/Application Support/ClaudeCode/managed-settings.json",
    "/etc/codex/managed_config.toml",
    "/etc/opencode/opencode.json",
)


@dataclass(frozen=True, slots=True)
class Check:
    """`status` is OK, WARN, FAIL or SKIP; `fix` is one command."""

    id: str
    status: str
    text: str
    fix: str = ""

    def json(self) -> dict[str, Any]:
        return asdict(self)


def run_checks(context: Context, agent: str | None) -> Iterator[Check]:
    settings, settings_check = _settings(context)
    yield settings_check
    yield from _folders(context)
    yield from _network(context)
    yield from _managed(context)
    yield _pinned()
    if settings is not None:
        yield _models(context, settings)
        yield _engine(context, settings)
    else:
        for id_ in ("models", "engine"):
            yield Check(id_, "SKIP", "not looked at: the settings cannot be read")
    for name in [agent] if agent else loader.names():
        yield _agent(name, context, required=agent is not None)


def run_probe(context: Context, agent: str) -> list[Check]:
    """Starts the agent. An assumption that does not hold is a warning: the launch may still work."""
    from ftagent.launch.probe import probe

    harness = loader.load(agent)
    adapter = harness.adapter
    if "card" not in harness.declaration:
        return [Check("probe", "SKIP", f"{adapter.title} has no card")]
    executable = find_executable(adapter.executables, agent_path(context.env, context.paths)).require(
        adapter.title, adapter.install_hint
    )
    version = cached_version(executable, context.paths)
    status = {True: "OK", False: "WARN", None: "SKIP"}
    return [
        Check(f"probe {found.name}", status[found.holds], found.text)
        for found in probe(harness, executable, version, context.env)
    ]


def _network(context: Context) -> Iterator[Check]:
    proxies = [name for name in context.env if name.lower() in PROXIES[:3] and context.env[name]]
    if proxies:
        text = f"{', '.join(sorted(proxies))} set; requests to this machine go past it in a launch"
        yield Check("proxy", "OK", text)
    keys = sorted(name for name, value in context.env.items() if looks_like_credential(name, value))
    if keys:
        shown = ", ".join(keys[:6]) + (f" and {len(keys) - 6} more" if len(keys) > 6 else "")
        yield Check("credentials", "OK", f"{shown}: in your shell, taken out of every launch")


def _managed(context: Context) -> Iterator[Check]:
    for name in MANAGED_SETTINGS:
        if Path(name).exists():
            yield Check("managed settings", "WARN", f"{name} beats every launch", "ft launch claude --dry-run")


def _settings(context: Context) -> tuple[Settings | None, Check]:
    try:
        settings = context.settings()
    except FtError as error:
        return None, Check("settings", "FAIL", error.message, error.hint)
    file = context.paths.config_file
    if settings.warnings:
        return settings, Check("settings", "WARN", "; ".join(settings.warnings), f"Edit {file}")
    return settings, Check("settings", "OK", str(file) if file.exists() else f"defaults ({file} does not exist)")


def _folders(context: Context) -> Iterator[Check]:
    for folder in (context.paths.config, context.paths.state, context.paths.runtime, context.paths.data):
        place = next(place for place in (folder, *folder.parents) if place.exists())
        if not os.access(place, os.W_OK):
            why = f"{folder} cannot be written to"
            yield Check("folders", "FAIL", why, "Correct its permissions, or set FT_HOME to a folder of yours")
        elif (free := shutil.disk_usage(place).free) < FREE_BYTES:
            why = f"{free:,} bytes are free for {folder}"
            yield Check("folders", "FAIL", why, "Free some space, or set FT_HOME to another disk")
        if not folder.exists():
            continue
        found = folder.stat()
        if found.st_uid != os.getuid():
            yield Check("folders", "FAIL", f"{folder} belongs to another user", "Set FT_HOME to a folder you own")
        elif folder != context.paths.config and stat.S_IMODE(found.st_mode) & 0o077:
            yield Check("folders", "WARN", f"{folder} is readable by others", f"chmod 700 {folder}")


def _pinned() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "no limit" if soft == resource.RLIM_INFINITY else f"{soft / (1 << 20):,.0f} MiB"
    return Check("pinned memory", "OK", f"{limit} (ulimit -l); what a model could have pinned: ft engine plan")


def _models(context: Context, settings: Settings) -> Check:
    models_dir = context.models_dir(settings)
    present = installed(models_dir)
    try:
        model = find_model(settings.text("model"), models_dir, context.cwd)
    except FtError as error:
        return Check("models", "FAIL", error.message, error.hint)
    if not model.pulled:
        return Check("models", "WARN", f"{model.name} is made at the first launch", f"ft models pull {DEFAULT_MODEL}")
    return Check("models", "OK", f"{model.name} (of {', '.join(present) or model.reference})")


def _engine(context: Context, settings: Settings) -> Check:
    if find_engine(context.paths) is not None:
        return Check("engine", "OK", describe(engine_report(context)))
    port = settings.number("port")
    if port_owner.is_taken(port):
        who = port_owner.owner(port) or "another program"
        return Check("engine", "FAIL", f"port {port} is used by {who}", "Stop it, or export FT_PORT=N")
    return Check("engine", "OK", f"stopped; port {port} is free")


def _agent(name: str, context: Context, required: bool) -> Check:
    absent = "FAIL" if required else "SKIP"
    try:
        harness = loader.load(name)
    except FtError as error:
        return Check(f"agent {name}", "FAIL", error.message, error.hint)
    adapter = harness.adapter
    if not adapter.executables:
        return Check(f"agent {name}", "OK", "part of ft")
    found = find_executable(adapter.executables, agent_path(context.env, context.paths))
    if found.path is None:
        reason = "; ".join(found.skipped) or "not installed"
        return Check(f"agent {name}", "FAIL" if found.skipped else absent, reason, adapter.install_hint)
    version = cached_version(found.path, context.paths)
    text = f"{found.path} {version or '(version seen at its first launch)'}"
    known = harness.declaration.get("versions")
    if version and isinstance(known, str) and not in_range(version, known):
        return Check(f"agent {name}", "WARN", f"{text}: not checked, {known} has been", f"ft launch {name} --dry-run")
    if found.skipped:
        return Check(f"agent {name}", "WARN", f"{text}; passed over: {'; '.join(found.skipped)}", "Remove it from PATH")
    return Check(f"agent {name}", "OK", text)
