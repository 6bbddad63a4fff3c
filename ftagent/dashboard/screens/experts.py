"""Which experts are used and resident, what more slots would save, and how misses are served."""

from __future__ import annotations

from collections.abc import Sequence

from ftagent.dashboard.keys import Key
from ftagent.dashboard.model import Experts, Frame, Layer
from ftagent.dashboard.screens.chrome import stale
from ftagent.dashboard.screens.view import Effect, Room, View
from ftagent.dashboard.theme import Glyphs
from ftagent.dashboard.widgets.bars import bar
from ftagent.dashboard.widgets.boxes import box
from ftagent.dashboard.widgets.cells import Line, Span, beside, clean, fill, line, merged
from ftagent.dashboard.widgets.plot import Curve, plot
from ftagent.dashboard.widgets.units import byte_rate, percent, rate, tokens, whole

LEVELS = 8


class ExpertsView(View):
    part, title = "experts", "Experts"
    keys = (Key("v", "v", "heat map of use, or of residency", "view.swap"),)
    hints = (("v", "use / residency"), ("e", "export"), ("3", "memory"), ("1", "overview"))

    def __init__(self) -> None:
        super().__init__()
        self.resident = False

    def swap(self, frame: Frame) -> Effect:
        self.resident = not self.resident
        return None

    def lines(self, frame: Frame, room: Room) -> list[Line]:
        experts, glyphs = frame.experts, room.glyphs
        if not experts.layers and not experts.curve:
            return box(
                "Experts",
                [line((clean(experts.why_none or "no routing has been seen yet"), "dim"))],
                room.width,
                room.height,
                glyphs,
            )
        low = max(8, min(16, room.height // 2))
        top = room.height - low
        what = "share of each cell that is in a slot" if self.resident else "use of late, the most used one is full"
        heat = heat_map(experts.layers, self.resident, room.width - 4, top - 3, glyphs)
        scale = line(("layers down, experts across   ", "dim"), *_scale(glyphs), ("  none to all", "dim"))
        blocks = box(f"Layer x expert: {what}", [*heat, scale], room.width, top, glyphs, stale(experts.told, frame.now))
        if room.width < 100:
            return fill(blocks + self._curve(experts, room.of(room.width, low)), room.width, room.height)
        left = room.width * 3 // 5
        right = room.width - left
        sides = box("Misses", _misses(experts, right - 4, glyphs), right, low, glyphs)
        return fill(blocks + beside(self._curve(experts, room.of(left, low)), sides), room.width, room.height)

    def _curve(self, experts: Experts, room: Room) -> list[Line]:
        glyphs = room.glyphs
        points = [(float(p.slots), p.miss_rate) for p in experts.curve]
        marks = []
        if experts.optimum_slots is not None:
            marks.append((float(experts.optimum_slots), "o", "good"))
        if experts.slots is not None:
            marks.append((float(experts.slots), glyphs.down, "warn"))
        curve = Curve(points, glyphs.dot, "accent", joined=True)
        lines = plot([curve], room.width - 4, room.height - 3, tokens, lambda v: percent(v), marks=marks)
        words = line(
            (f"{glyphs.down} now {whole(experts.slots)} of {whole(experts.total)} slots", "warn"),
            (f"   o best for now {whole(experts.optimum_slots)}", "good"),
            (f"   {whole(experts.curve_steps)} steps seen", "dim"),
        )
        return box("Miss rate by slots (measured distances of reuse)", [*lines, words], room.width, room.height, glyphs)


def heat_map(layers: Sequence[Layer], resident: bool, cells: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """One row a layer, or several layers in one where there are more; experts in groups of equal size."""
    if not layers or rows <= 0:
        return [line(("no heat map", "dim"))]
    label = 5
    many = max(len(layer.resident if resident else layer.heat) for layer in layers)
    columns, lines = max(1, min(many, cells - label)), []
    for row in range(min(rows, len(layers))):
        group = layers[row * len(layers) // min(rows, len(layers)) : (row + 1) * len(layers) // min(rows, len(layers))]
        spans = [Span(f"{group[0].layer:>4} ", "dim")]
        for column in range(columns):
            values = [
                float(v)
                for layer in group
                for v in (layer.resident if resident else layer.heat)[
                    column * many // columns : (column + 1) * many // columns
                ]
            ]
            share = sum(values) / len(values) if values else 0.0
            level = max(0, min(LEVELS - 1, int(share * LEVELS)))
            spans.append(Span(_shade(level, glyphs), f"heat{level}"))
        lines.append(merged(spans))
    return lines


def _shade(level: int, glyphs: Glyphs) -> str:
    return glyphs.shades[min(len(glyphs.shades) - 1, (level * (len(glyphs.shades) - 1) + LEVELS - 2) // (LEVELS - 1))]


def _scale(glyphs: Glyphs) -> Line:
    return tuple(Span(_shade(level, glyphs), f"heat{level}") for level in range(LEVELS))


def _misses(experts: Experts, cells: int, glyphs: Glyphs) -> list[Line]:
    """How they are served, how fast both ways are, and the layers that miss most."""
    lines = [
        line(f"hit {percent(experts.hit_rate, 1)} of late   {rate(experts.misses_per_token)} misses a token"),
        line(f"ever: {whole(experts.hits)} hits, {whole(experts.misses)} misses"),
        (),
        line("filled   ", *bar(experts.fill_share, max(4, cells - 16), glyphs), f" {percent(experts.fill_share)}"),
        line((f"{whole(experts.filled)} copied into slots, {whole(experts.in_place)} computed in place", "dim")),
        line(
            f"fills {byte_rate(experts.fill_bytes_per_s)}",
            (f"   profile {byte_rate(experts.profile_fill_bytes_per_s)}", "dim"),
        ),
        line(
            f"host  {byte_rate(experts.host_bytes_per_s)}",
            (f"   profile {byte_rate(experts.profile_host_bytes_per_s)}", "dim"),
        ),
    ]
    missing = sorted((layer for layer in experts.layers if layer.misses), key=lambda layer: -(layer.misses or 0))[:3]
    if missing:
        lines += [
            (),
            line(("most misses: ", "dim"), ", ".join(f"layer {one.layer} {tokens(one.misses)}" for one in missing)),
        ]
    return lines
