"""The saved states as a tree: what continues what, where it lies, who would resume from it."""

from __future__ import annotations

from collections.abc import Sequence

from ftagent.dashboard.keys import Key
from ftagent.dashboard.model import Anchor, Frame
from ftagent.dashboard.screens.chrome import stale
from ftagent.dashboard.screens.listing import Listing
from ftagent.dashboard.screens.panes import anchors_title
from ftagent.dashboard.screens.view import Ask, Effect, Room, Say, View
from ftagent.dashboard.theme import ASCII, Glyphs
from ftagent.dashboard.widgets.boxes import box
from ftagent.dashboard.widgets.cells import Line, clean, line
from ftagent.dashboard.widgets.tables import Cell, Column
from ftagent.dashboard.widgets.units import UNKNOWN, age, size, whole

COLUMNS = (
    Column("PREFIX", 14, 44, 0),
    Column("TOKENS", 7, 9, 0, ">"),
    Column("TIER", 4, 6, 1),
    Column("BYTES", 8, 8, 2, ">"),
    Column("USED", 5, 8, 3, ">"),
    Column("EDIT EXPECTED", 8, 13, 5),
    Column("SESSIONS", 8, 40, 4),
)


class AnchorsView(View):
    part, title = "anchors", "Anchors"
    keys = (
        Key("p", "p", "pin, or let go of, the saved state", "view.pin", acting=True),
        Key("D", "D", "delete the saved state", "view.delete", acting=True),
        Key("g", "g", "what no session wants: how much, and delete it", "view.gc", acting=True),
    )
    hints = (("p", "pin"), ("D", "delete"), ("g", "clean up"), ("/", "filter"), ("e", "export"), ("1", "overview"))

    def rows(self, frame: Frame, glyphs: Glyphs) -> list[tuple[str, Anchor]]:
        """(what is drawn before it, anchor), depth first; filtered rows lose their place in the tree."""
        found = _tree(frame.anchors.roots or (), "", glyphs, top=True)
        if self.query:
            return [("", a) for _, a in found if self.matches(a.kind, a.edge, a.tier, a.line, *a.sessions)]
        return found

    def ids(self, frame: Frame) -> Sequence[str]:
        found: list[str] = []
        stack = list(reversed(frame.anchors.roots or ()))
        while stack:
            anchor = stack.pop()
            if self.matches(anchor.kind, anchor.edge, anchor.tier, anchor.line, *anchor.sessions):
                found.append(anchor.id)
            stack.extend(reversed(anchor.children))
        return found

    def lines(self, frame: Frame, room: Room) -> list[Line]:
        anchors, glyphs = frame.anchors, room.glyphs
        if anchors.roots is None:
            return box(
                "Anchors",
                [line((clean(anchors.why_none or "unknown until an engine has been here"), "dim"))],
                room.width,
                room.height,
                glyphs,
            )
        rows = self.rows(frame, glyphs)
        disk = "none on disk"
        if anchors.disk_cap_bytes:
            disk = f"on disk {size(anchors.disk_bytes)} of {size(anchors.disk_cap_bytes)}"
        tail = ((), line((f"{disk}   evicted {whole(anchors.evicted)}", "dim")))
        return Listing(
            anchors_title(frame), COLUMNS, len(rows), self.index(frame), lambda n: _cells(*rows[n], glyphs),
            "none kept yet", stale(anchors.told, frame.now), tail=tail,
        ).lines(room)  # fmt: skip

    def pin(self, frame: Frame) -> Effect:
        """Asks first."""
        anchor = self._selected(frame)
        if anchor is None:
            return Say("There is no saved state.")
        if anchor.pinned:
            return Ask(f"Let go of {_words(anchor)}? It goes when its memory is needed.", "unpin", _named(anchor))
        return Ask(f"Keep {_words(anchor)} until it is let go of?", "pin", _named(anchor))

    def delete(self, frame: Frame) -> Effect:
        """Asks first, and says who wants it."""
        anchor = self._selected(frame)
        if anchor is None:
            return Say("There is no saved state.")
        who = f" {', '.join(anchor.sessions)} would go on from the one before it." if anchor.wanted and anchor.sessions else ""  # fmt: skip
        return Ask(f"Delete {_words(anchor)}?{who}", "drop", _named(anchor))

    def gc(self, frame: Frame) -> Effect:
        """The plan: what nobody wants and nobody has pinned; carried out after a yes."""
        every = [anchor for _, anchor in _tree(frame.anchors.roots or (), "", ASCII, top=True)]
        unwanted = [anchor for anchor in every if anchor.wanted is False and not anchor.pinned]
        if not unwanted:
            return Say("Nothing to clean up: every saved state is wanted by a session, or pinned.")
        amount = size(sum(anchor.bytes or 0 for anchor in unwanted))
        many = "1 saved state" if len(unwanted) == 1 else f"{len(unwanted)} saved states"
        return Ask(f"Delete the {many} that no session wants ({amount})? {len(every) - len(unwanted)} stay.", "gc", {})

    def _selected(self, frame: Frame) -> Anchor | None:
        ids = self.ids(frame)
        wanted = ids[self.index(frame)] if ids else None
        return next((anchor for _, anchor in self.rows(frame, ASCII) if anchor.id == wanted), None)


def _words(anchor: Anchor) -> str:
    return f"the state at token {whole(anchor.position)}"


def _named(anchor: Anchor) -> dict[str, object]:
    """As the engine knows it again: an id alone may be another state's by now."""
    return {"id": anchor.id, "position": anchor.position, "line": anchor.line}


def _tree(anchors: Sequence[Anchor], before: str, glyphs: Glyphs, top: bool = False) -> list[tuple[str, Anchor]]:
    """Set in only where prefixes part: what simply goes on stands below what it continues."""
    rows: list[tuple[str, Anchor]] = []
    for number, anchor in enumerate(anchors):
        last = number == len(anchors) - 1
        branch, below = (glyphs.last, "  ") if last else (glyphs.branch, glyphs.trunk)
        if top:
            branch, below = f"{glyphs.dot} ", "  "
        elif len(anchors) == 1:
            branch, below = "", ""
        rows.append((before + branch, anchor))
        rows += _tree(anchor.children, before + below, glyphs)
    return rows


def _cells(before: str, anchor: Anchor, glyphs: Glyphs) -> list[Cell]:
    name = clean(anchor.edge or anchor.kind or "state")
    kind = f" ({clean(anchor.kind)})" if anchor.kind and anchor.edge else ""
    return [
        line((before, "border"), name, (kind, "dim"), (" pinned" if anchor.pinned else "", "good")),
        whole(anchor.position),
        anchor.tier or UNKNOWN,
        size(anchor.bytes),
        f"{age(anchor.used_age_s)} ago" if anchor.used_age_s is not None else UNKNOWN,
        {True: "yes", False: "no", None: UNKNOWN}[anchor.wanted],
        clean(", ".join(anchor.sessions) or UNKNOWN),
    ]
