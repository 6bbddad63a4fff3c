"""The plan for people: one screen, fitted to the width of the terminal, no secrets."""

from __future__ import annotations

import textwrap
from pathlib import Path

from ftagent.launch.plan import MASK, Plan
from ftagent.launch.shell import command_line
from ftagent.output import Style
from ftagent.paths import short

SHOWN_VARIABLES = 8
LABEL = 11


def render(plan: Plan, width: int, style: Style, verbose: bool = False) -> str:
    """Plain text of ft.plan/1; with `verbose` every variable and the text of every file."""
    home = plan.request.home
    agent, version = plan.request.harness.name, plan.request.version or ""
    head = f"Plan: {' '.join(filter(None, (agent, version)))} -> {plan.engine.model} (local engine)"
    note = "nothing has been changed"
    gap = max(2, width - len(head) - len(note))
    lines = [style(head, "bold") + " " * gap + style(note, "dim")]
    if plan.scripted:
        lines.append(style(" SCRIPTED REPLAY: the replies come from a script, not from the model", "yellow"))
    lines.append("")
    lines += _field("session", _session(plan, home), width)
    lines += _field("engine", _engine(plan, home), width)
    lines += _field("command", command_line(map(plan.masked, plan.argv), home), width)
    lines += _field("cwd", short(plan.session.cwd, home), width)
    lines += ["", *_settings(plan, width, style, verbose)]
    removed = ", ".join(plan.removed_variables) or "nothing that looks like a credential"
    lines += _field("removed from environment", removed, width, label_width=27)
    lines += ["", *_files(plan, home, width, verbose)]
    lines += _field("limits", _limits(plan), width)
    lines += _field("forecast", _forecast(plan), width)
    if plan.request.sealed:
        lines += _field("sealed", "no network but the engine's; attempts to leave are counted and named", width)
    lines += _field("reasoning", _reasoning(plan), width)
    if plan.warnings:
        lines.append("")
    for warning in plan.warnings:
        text = plan.masked(f"{warning.text} {warning.fix}".strip())
        lines += _field("warning", f"{text}  [{warning.code.split()[0]}]", width)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _field(label: str, text: str, width: int, label_width: int = LABEL) -> list[str]:
    room = max(20, width - label_width)
    wrapped = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    first = f" {label.ljust(label_width - 1)}{wrapped[0]}"
    return [first, *(" " * label_width + line for line in wrapped[1:])]


def _session(plan: Plan, home: Path) -> str:
    session = plan.session
    where = f"project {short(session.root, home)}" + (f", branch {session.branch}" if session.branch else "")
    given = f"id {session.id}  token {MASK} (0600)" if session.assigned else "id and token are given at launch"
    return f"new  {session.name}  ({where})  {given}"


def _engine(plan: Plan, home: Path) -> str:
    engine = plan.engine
    if engine.running:
        return f"running at {engine.url}, window {plan.window_tokens:,} tokens"
    pull = f"would make the model {engine.model} here first, then " if engine.needs_pull else "would "
    start = command_line(engine.command, home)
    state = f"not running; {pull}start: {start}" if engine.command else "not running, and --no-start keeps it so"
    return f"{state}   window {plan.window_tokens:,} tokens (predicted)"


def _settings(plan: Plan, width: int, style: Style, verbose: bool) -> list[str]:
    variables = plan.set_variables
    if not variables:
        return [" settings   none"]
    lines = [" settings"]
    shown = variables if verbose else variables[:SHOWN_VARIABLES]
    name_width = max(len(variable.name) for variable in shown) + 2
    for variable in shown:
        value = MASK if variable.secret else plan.masked(variable.value) or '""'
        reason = f"was {variable.replaces}; {variable.why}" if variable.replaces else variable.why
        line = f"   {variable.name.ljust(name_width)}{value}   "
        room = width - len(line)
        reason = plan.masked(reason)
        if room >= 20 and len(reason) <= room:
            lines.append(line + style(reason, "dim"))
        else:
            lines.append(line)
            lines += [f"      {style(part, 'dim')}" for part in textwrap.wrap(reason, max(20, width - 6))]
    if len(variables) > len(shown):
        lines.append(f"   ... {len(variables) - len(shown)} more (-v)")
    return lines


def _files(plan: Plan, home: Path, width: int, verbose: bool) -> list[str]:
    if not plan.injection.files and not plan.leftovers:
        return _field("files", "none written", width)
    lines: list[str] = []
    for undo in plan.leftovers:
        text = f"{short(undo.plan.path, home)}: what an earlier version of ft wrote there is taken out"
        lines += _field("files", text, width)
    for file in plan.injection.files:
        lines += _field("files", f"{short(file.path, home)} (0600): {file.why}", width)
        if verbose:
            lines += ["     " + line for line in plan.masked(file.text).splitlines()]
    return lines


def _reasoning(plan: Plan) -> str:
    """What becomes of the thinking of earlier turns, and what that costs."""
    if plan.engine.thinking_switch is False:
        return "of earlier turns: as the model's template has it, which knows no switch"
    where = "" if plan.engine.thinking_switch else ", where the model's template has the switch"
    if plan.request.preserve_thinking:
        return (
            f"of earlier turns stays in the prompt{where}: it takes window and brings compaction earlier, and a new question "
            "re-reads nothing (--preserve-thinking off)"
        )
    return (
        f"of earlier turns leaves the prompt at each new question{where}: more window for work, and what followed it is "
        "read again (--preserve-thinking on)"
    )


def _limits(plan: Plan) -> str:
    watchdog, default = plan.injection.watchdog_s, plan.injection.watchdog_default_s
    parts = [f"window {plan.window_tokens:,} tokens, output {plan.max_output_tokens:,}"]
    if watchdog is not None:
        usual = f" (default {default:.0f} s)" if default is not None else ""
        parts.append(f"the agent waits {watchdog:.0f} s for a first byte{usual}")
    return "; ".join(parts)


def _forecast(plan: Plan) -> str:
    from ftagent.forecast import LaunchForecast

    known = plan.forecast or {}
    return LaunchForecast(**known).text() if known.get("ttft_cold_s") is not None else "-"
