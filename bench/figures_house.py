"""Figures of the house: `path` of a request, and `house`, drawn from the rooms of this checkout and its import contracts."""

from __future__ import annotations

import configparser
from dataclasses import dataclass
from pathlib import Path

from svg import ACCENT, CARD, GRID, OTHER, OURS, PALE, SOFT, TINT, Svg

ROOT = Path(__file__).parent.parent
CHIP, ROW, GAP = 24, 30, 8
NOT_AGENTS = {"generic"}  # folders of harnesses/ that are no agent


@dataclass(frozen=True, slots=True)
class House:
    """Names of rooms. `speaks` is the front process, `decides` never touches a tensor, `computes` may."""

    ftagent: list[str]
    agents: list[str]
    speaks: list[str]
    decides: list[str]
    computes: list[str]
    contracts: int


def house(root: Path = ROOT) -> House:
    """The rooms as they lie in the folders, sorted into processes by what the import contracts forbid."""
    contracts = configparser.ConfigParser()
    contracts.read(root / ".importlinter")

    def named(contract: str, field: str) -> set[str]:
        lines = contracts[f"importlinter:contract:{contract}"][field].split()
        return {line.removeprefix("engine.") for line in lines if line.startswith("engine.")}

    rooms = folders(root / "engine")
    free = named("torch-free", "source_modules")
    speaks = named("front", "source_modules") | {"upstream"}
    return House(
        ftagent=folders(root / "ftagent"),
        agents=[name for name in folders(root / "harnesses") if name not in NOT_AGENTS],
        speaks=[room for room in rooms if room in speaks],
        decides=[room for room in rooms if room in free - speaks],
        computes=[room for room in rooms if room not in free],
        contracts=sum(section.startswith("importlinter:contract:") for section in contracts.sections()),
    )


def folders(package: Path) -> list[str]:
    """Subfolders that hold Python or an agent's declaration."""
    return sorted(
        path.name
        for path in package.iterdir()
        if path.is_dir() and (any(path.glob("*.py")) or (path / "harness.toml").exists())
    )


def draw_house() -> str:
    rooms = house()
    svg = Svg(980, 604, "The house: packages, processes and rooms")
    svg.text(20, 32, "The house: three packages, two processes, one wire", 16, bold=True)
    _box(svg, 20, 60, 250, 222, "ftagent", "what a person touches: no engine, no torch", rooms.ftagent, OTHER)
    _box(svg, 20, 326, 250, 208, "harnesses", "what each agent is: data and one adapter", rooms.agents, OTHER)
    svg.line(145, 282, 145, 322, arrow=True)
    svg.text(153, 307, "reads", 11, SOFT)
    svg.rect(390, 60, 570, 474, CARD, OURS, 8)
    svg.text(404, 82, "engine", 13.5, OURS, bold=True)
    svg.text(464, 82, "knows neither the launcher nor any agent", 11.5, SOFT)
    _box(svg, 404, 94, 542, 70, "front process", "HTTP, prompts, sessions, supervision: no torch", rooms.speaks, OURS)
    svg.line(675, 164, 675, 200, arrow=True)
    svg.line(660, 204, 660, 168, arrow=True)
    svg.text(684, 188, "token ids over a Unix socket, never text", 11, SOFT)
    svg.rect(404, 204, 542, 318, CARD, OURS, 8)
    svg.text(418, 228, "worker process", 13, OURS, bold=True)
    _box(svg, 416, 242, 518, 82, "decides", "which prefix, which slab, which request: no tensor", rooms.decides, PALE)
    _box(svg, 416, 338, 518, 108, "computes", "weights, experts, layers, devices: torch", rooms.computes, PALE)
    svg.rect(416, 460, 518, 46, TINT, GRID, 6)
    svg.text(430, 488, "csrc: C++ kernels for AVX2, AVX-512 and AVX-512 with BF16, equal bits", 11.5)
    svg.line(270, 128, 400, 128, arrow=True)
    svg.text(330, 104, "starts it,", 11, SOFT, "middle")
    svg.text(330, 118, "then HTTP", 11, SOFT, "middle")
    svg.text(330, 146, "loopback only", 11, ACCENT, "middle")
    svg.text(330, 162, "edits declared", 11, SOFT, "middle")
    svg.caption(
        f"drawn from the folders of this checkout and the {rooms.contracts} import contracts in .importlinter, which `make check` and a test hold · "
        "no package imports another where there is no arrow, and the way into the engine is HTTP, not an import",
        560,
    )
    return svg.render()


def _box(
    svg: Svg, x: float, y: float, width: float, height: float, name: str, told: str, rooms: list[str], color: str
) -> None:
    """A box with a title and chips, one for each room, in rows."""
    svg.rect(x, y, width, height, CARD, color, 8)
    svg.text(x + 14, y + 22, name, 13, bold=True)
    narrow = width < 400
    svg.text(x + (14 if narrow else 30 + 8.2 * len(name)), y + (38 if narrow else 22), told, 10.5, SOFT)
    left, top = x + 12, y + (50 if narrow else 34)
    for room in rooms:
        wide = 16 + 6.9 * len(room)
        if left + wide > x + width - 8:
            left, top = x + 12, top + ROW - 3
        svg.rect(left, top, wide, CHIP - 2, TINT, GRID, 5)
        svg.text(left + wide / 2, top + 15, room, 11, anchor="middle")
        left += wide + GAP - 2


def draw_path() -> str:
    """The path of one request, from the agent to an expert's weights and back."""
    svg = Svg(980, 330, "The path of a request through ft")
    svg.text(24, 32, "One request, from the agent to an expert and back", 16, bold=True)
    boxes = [
        (24, "your agent", ["claude · codex · opencode", "openclaw · pi · mini"], OTHER),
        (
            214,
            "front: HTTP",
            ["messages · chat · responses", "heartbeats, errors, usage", "in that agent's dialect"],
            OURS,
        ),
        (404, "front: prompt", ["conversation → tokens", "spans and edit points", "tool calls, grammar"], OURS),
        (594, "worker: cache", ["radix tree of prefixes", "checkpoints at edit points", "chunks beside decodes"], OURS),
        (784, "worker: experts", ["bank in host memory", "slots in the fast tier", "C++ kernels, row by row"], OURS),
    ]
    for x, title, lines, color in boxes:
        svg.rect(x, 64, 172, 112, CARD, color, 8)
        svg.text(x + 12, 85, title, 13.5, color if color != OTHER else SOFT, bold=True)
        svg.line(x, 94, x + 172, 94, color)
        for i, line in enumerate(lines):
            svg.text(x + 12, 116 + i * 19, line, 11)
    for (x, *_), label in zip(boxes[:-1], ["POST", "meaning", "tokens", "rows"], strict=True):
        svg.line(x + 172, 120, x + 190, 120, arrow=True)
        svg.text(x + 181, 58, label, 10.5, SOFT, "middle")
    svg.line(870, 190, 870, 216)
    svg.line(870, 216, 110, 216)
    svg.line(110, 216, 110, 184, arrow=True)
    svg.text(
        490, 234, "the next token, one step at a time: streamed as thinking, text and tool calls", 12, SOFT, "middle"
    )
    svg.frame(10, 44, 960, 224, ACCENT)
    svg.text(24, 260, "this machine, loopback only: no route to a paid endpoint", 11.5, ACCENT)
    svg.line(24, 282, 956, 282, GRID)
    svg.text(
        24,
        304,
        "Next turn: the agent sends the whole conversation again; the radix tree resumes at the deepest checkpoint and computes the new text only.",
        12,
        SOFT,
    )
    return svg.render()
