"""Who has the memory, what another split would give, and the change itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ftagent.dashboard.keys import Key
from ftagent.dashboard.model import Frame, Memory, WhatIf
from ftagent.dashboard.screens import memory_parts as parts
from ftagent.dashboard.screens.chrome import stale
from ftagent.dashboard.screens.memory_parts import LARGE, SMALL
from ftagent.dashboard.screens.panes import memory_bar
from ftagent.dashboard.screens.view import Ask, Effect, Predict, Room, Say, View
from ftagent.dashboard.theme import Glyphs
from ftagent.dashboard.widgets.boxes import box
from ftagent.dashboard.widgets.cells import Line, clean, fill, line, wrap
from ftagent.dashboard.widgets.units import seconds, size, tokens, whole

PRESETS = ("auto", "agent", "chat", "minimum")


class MemoryView(View):
    part, title = "memory", "Memory"
    keys = (
        Key("left,h", "Left h", "1k tokens of KV less", "view.less"),
        Key("right", "Right", "1k tokens of KV more", "view.more"),
        Key("shift+left,H", "Shift+Left H", "8k tokens less", "view.much_less"),
        Key("shift+right,L", "Shift+Right L", "8k tokens more", "view.much_more"),
        Key("p", "p", "next preset instead", "view.preset"),
        Key("A", "A", "apply what is planned", "view.apply", acting=True),
    )
    hints = (
        ("Left/Right", "1k"),
        ("Shift", "8k"),
        ("p", "preset"),
        ("Enter", "plan"),
        ("A", "apply"),
        ("Esc", "as it is"),
        ("1", "overview"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.target: int | None = None  # tokens of KV
        self.preset_at: str | None = None
        self.planned: WhatIf | None = None

    def lines(self, frame: Frame, room: Room) -> list[Line]:
        memory, glyphs, cells = frame.memory, room.glyphs, room.width - 4
        if not memory.tenants:
            why = dict(frame.engine.cannot).get("memory") or "unknown until an engine has been here"
            return box("Memory", [line((clean(why), "dim"))], room.width, room.height, glyphs)
        use = [memory_bar(memory, cells, glyphs), *parts.tenants(memory, cells), *parts.machines(frame, cells, glyphs)]
        plan = self._plan(memory, cells, glyphs)
        use_rows, plan_rows = min(len(use) + 2, room.height - 9), len(plan) + 2
        rest = room.height - use_rows - plan_rows
        blocks = box(
            f"Memory, arena of {size(memory.arena_bytes)}",
            use,
            room.width,
            max(3, use_rows),
            glyphs,
            stale(memory.told, frame.now),
        )
        blocks += box("What another split would give", plan, room.width, plan_rows, glyphs, focus=True)
        if rest >= 3:
            blocks += box("Moves", parts.moves(memory, glyphs), room.width, rest, glyphs)
        return fill(blocks, room.width, room.height)

    def _plan(self, memory: Memory, cells: int, glyphs: Glyphs) -> list[Line]:
        kv = next((t for t in memory.tenants if t.key == "kv"), None)
        now = kv.total if kv else None
        want = self.target if self.target is not None else now
        lines = [parts.slider(memory, now, want, cells, glyphs), ()]
        chosen = self.planned
        if chosen is None:
            lines += [parts.row(what, glyphs, cells) for what in memory.what_ifs] or [
                line(("Left and Right move the split", "dim"))
            ]
            return [*lines, (), line(("nothing is changed before A and a yes", "dim"))]
        lines += [parts.row(chosen, glyphs, cells)]
        slots = f"   expert slots {whole(chosen.moe_slots)}" if chosen.moe_slots is not None else ""
        facts = f"window {tokens(chosen.window_tokens)}   KV {whole(chosen.kv_tokens)}{slots}   takes {seconds(chosen.seconds_to_apply)}"
        lines.append(line(facts))
        if chosen.waits_for:
            lines.append(line((f"waits for {clean(chosen.waits_for)}", "warn")))
        lines += [
            line((text, "dim" if chosen.possible else "warn")) for text in wrap(clean(chosen.why or ""), cells, 2)
        ]
        return [*lines, line(("at the next step, not when idle; A applies it", "dim"))]

    # what keys do

    def _kv(self, frame: Frame) -> int | None:
        return next((t.total for t in frame.memory.tenants if t.key == "kv"), None)

    def _slide(self, frame: Frame, by: int) -> Effect:
        now = self.target if self.target is not None else self._kv(frame)
        if now is None:
            return Say("The engine does not say how much KV it has.")
        low, high = parts.ends(frame.memory, now)
        self.target, self.preset_at = max(low, min(high, now + by)), None
        return self._asked(frame)

    def less(self, frame: Frame) -> Effect:
        return self._slide(frame, -SMALL)

    def more(self, frame: Frame) -> Effect:
        return self._slide(frame, SMALL)

    def much_less(self, frame: Frame) -> Effect:
        return self._slide(frame, -LARGE)

    def much_more(self, frame: Frame) -> Effect:
        return self._slide(frame, LARGE)

    def preset(self, frame: Frame) -> Effect:
        """The next of the presets, planned and not applied."""
        at = PRESETS.index(self.preset_at) + 1 if self.preset_at else 0
        self.preset_at, self.target = PRESETS[at % len(PRESETS)], None
        return self._asked(frame)

    def _asked(self, frame: Frame) -> Predict:
        return Predict(self._label(frame), self._arguments())

    def _arguments(self) -> Mapping[str, Any]:
        return {"preset": self.preset_at} if self.preset_at else {"kv_tokens": self.target}

    def _label(self, frame: Frame) -> str:
        if self.preset_at:
            return self.preset_at
        by = (self.target or 0) - (self._kv(frame) or 0)
        return f"KV {'+' if by >= 0 else '-'}{tokens(abs(by))}"

    def enter(self, frame: Frame) -> Effect:
        return (
            self._asked(frame)
            if self.target is not None or self.preset_at
            else Say("Move the split first: Left, Right, or p.")
        )

    def apply(self, frame: Frame) -> Effect:
        """Asks before memory changes hands."""
        if self.target is None and not self.preset_at:
            return Say("Nothing is planned: Left, Right, or p.")
        what = f"preset {self.preset_at}" if self.preset_at else f"{whole(self.target)} tokens of KV"
        return Ask(f"Change memory to {what}, at the next step?", "apply", self._arguments())

    def told(self, answer: object) -> None:
        if isinstance(answer, WhatIf) and dict(answer.asked) == dict(self._arguments()):
            self.planned = answer

    def back(self) -> bool:
        if self.target is not None or self.preset_at:
            self.target = self.preset_at = self.planned = None
            return True
        return super().back()
