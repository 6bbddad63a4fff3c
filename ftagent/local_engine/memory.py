"""What `ft ctl cache` asks and how it is told: slots over all layers, tokens over all sessions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ftagent.errors import UsageError
from ftagent.output import table
from ftagent.settings.values import parse_tokens

PRESETS = ("minimum", "chat", "agent", "auto")
_MOVES = 5  # newest ones shown
_MOST = 1 << 53  # of anything


def parse_amount(text: str, flag: str) -> int:
    """`1200`, `64k`, `1m` → a number; k is 1,024 as everywhere. Raises UsageError."""
    shown = text if len(text) <= 24 else f"{text[:20]}…"
    try:
        amount = parse_tokens(text)
    except ValueError:
        raise UsageError(f"{flag} {shown}: expected a number such as 512, 64k or 1m.", "ft ctl cache --help") from None
    if amount > _MOST:
        raise UsageError(f"{flag} {shown}: no machine has room for so many.", "ft ctl cache --help")
    return amount


def request_body(moe: str | None, kv: str | None, preset: str | None, auto: bool) -> dict[str, Any]:
    """What is asked for, as `POST /v1/engine/memory/plan` takes it; {} when nothing is. Raises UsageError."""
    body: dict[str, Any] = {}
    if moe is not None:
        body["moe_slots"] = parse_amount(moe, "--moe")
    if kv is not None:
        body["kv_tokens"] = parse_amount(kv, "--kv")
    if preset is not None:
        body["preset"] = preset
    if auto or preset == "auto":
        if "moe_slots" in body or "kv_tokens" in body or preset not in (None, "auto"):
            raise UsageError("--auto lets the engine decide, the other options decide themselves.", "Give one of them.")
        body = {"auto": True}
    return body


def map_text(told: Mapping[str, Any]) -> str:
    """`ft.memory/1` as a table and what was moved lately."""
    arena, kv, experts, states = told["arena"], told["kv"], told["experts"], told["states"]
    split, slab = arena["split"], arena["slab_bytes"]
    rows = [["MEMORY", "NOW", "OF", "UNIT", "BYTES", "MISSES", ""]]
    if experts is not None:
        misses = _share(experts["miss_rate"])
        if experts["static_miss_rate"] is not None and experts["static_slots"] != experts["slots"]:
            misses += f" ({_share(experts['static_miss_rate'])} with the split of the start)"
        resident = f"{experts['resident']:,}/{experts['slots']:,}"
        size = _size(split["experts_slabs"] * slab)
        rows.append(
            ["experts", resident, f"{experts['total']:,}", "slots over all layers", size, misses, _pin(experts)]
        )
    used = f"{kv['used_tokens']:,}/{kv['tokens']:,}"
    most = f"{kv['most_tokens']:,}"
    rows.append(["KV", used, most, "tokens over all sessions", _size(split["kv_slabs"] * slab), "-", _pin(kv)])
    if states is not None:
        size = _size(split["state_slabs"] * slab)
        rows.append(["states", f"{states['used']:,}/{states['total']:,}", "-", "live and saved", size, "-", ""])
    rows.append(["free", "-", "-", "", _size(arena["free_slabs"] * slab), "-", ""])
    if arena["lent_slabs"]:
        rows.append(["given back", "-", "-", "to other programs", _size(arena["lent_slabs"] * slab), "-", ""])
    lines = [table(rows), "", _who_decides(told), f"window     {kv['window_tokens']:,} tokens for one session"]
    if experts is None:
        lines.append("experts    computed where they lie: they have no slots, and --moe changes nothing")
    foreign = told["foreign"]
    if foreign is not None:
        lines.append(
            f"machine    {_size(foreign['available_bytes'])} of {_size(foreign['total_bytes'])} left ({foreign['limited_by']})"
        )
    process = told["process"]
    if process is not None and process.get("resident_bytes"):
        peak = f", {_size(process['high_water_bytes'])} at most" if process.get("high_water_bytes") else ""
        lines.append(
            f"worker     {_size(process['resident_bytes'])}{peak}, planned {_size(process.get('planned_bytes'))}"
        )
    if told["state"] != "ready":
        lines.append(f"the engine is {told['state']}: these are the sizes it was planned with")
    return "\n".join([*lines, *_moves(told["moves"])])


def move_text(told: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """`ft.memory-move/1`: both sides, beside each other."""
    if told["now"] is None or told["then"] is None:
        return f"asked for; it waits for {told['waits_for']}. Look again: ft ctl cache"
    names = (
        ("moe_slots", "expert slots over all layers"),
        ("kv_tokens", "KV tokens over all sessions"),
        ("window_tokens", "window of one session, tokens"),
        ("decode_tokens_per_s", "decode, tokens/s (predicted)"),
        ("miss_rate", "experts missed (predicted)"),
    )
    rows = [["", "BEFORE" if told["applied"] else "NOW", "NOW" if told["applied"] else "THEN"]]
    for key, words in names:
        if told["now"].get(key) is not None or told["then"].get(key) is not None:
            rows.append([words, _cell(key, told["now"].get(key)), _cell(key, told["then"].get(key))])
    lines = [table(rows)]
    if told["why"]:
        lines.append(told["why"])
    moved = told["moved"]
    if moved is not None:
        done = f"{moved['moved_pages']:,} pages moved, {moved['evicted_pages']:,} evicted, {moved['dropped_experts']:,} experts dropped"
        lines.append(f"{done}, in {moved['seconds'] * 1000:.0f} ms between steps")
    if told["waits_for"]:
        lines.append(f"not all of it yet: it waits for {told['waits_for']}, and goes on by itself")
    if not told["applied"]:
        if told["seconds_to_apply"] is not None:
            lines.append(f"would take about {told['seconds_to_apply']:.2f} s between steps; nothing has been changed")
        lines.append("to apply: " + command_of(asked))
    return "\n".join(lines)


def command_of(asked: Mapping[str, Any]) -> str:
    """The command that applies it."""
    flags = {"moe_slots": "--moe", "kv_tokens": "--kv", "preset": "--preset"}
    words = [f"{flags[name]} {value}" for name, value in asked.items() if name in flags]
    return " ".join(["ft ctl cache", *(["--auto"] if asked.get("auto") else []), *words])


def _who_decides(told: Mapping[str, Any]) -> str:
    kept = [
        name for name, part in (("experts", told["experts"]), ("KV", told["kv"])) if part is not None and part["pinned"]
    ]
    if kept:
        return f"decides    you: {' and '.join(kept)} stay as set; let the engine decide: ft ctl cache --auto"
    if told["auto"]:
        return f"decides    the engine (preset {told['preset']}): slabs go where they save most time"
    return f"decides    nobody: nothing moves by itself here (preset {told['preset']})"


def _moves(moves: list[Mapping[str, Any]]) -> list[str]:
    if not moves:
        return []
    lines = ["", "moved lately, newest last"]
    for move in moves[-_MOVES:]:
        after, rates = move.get("after") or {}, move.get("measured") or {}
        where = ", ".join(f"{re.sub('_slabs$', '', name)} {slabs}" for name, slabs in after.items())
        told = (
            f"  {rates['before']:.1f} -> {rates['after']:.1f} tokens/s"
            if rates.get("before") and rates.get("after")
            else ""
        )
        lines.append(f"  {move['reason']}: {where} slabs{told}")
    return lines


def _pin(part: Mapping[str, Any]) -> str:
    return "set by hand" if part["pinned"] else ""


def _share(value: float | None) -> str:
    return "no data" if value is None else f"{value:.1%}"


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "no data"
    return f"{value:.1%}" if key == "miss_rate" else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def _size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "-"
    return f"{size_bytes / (1 << 30):.1f} GiB" if size_bytes >= 1 << 30 else f"{size_bytes / (1 << 20):.0f} MiB"
