"""Figures and screens in docs/: drawn from the kept results, and from nothing where there are none."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import clearing  # noqa: E402
import clearing_rows  # noqa: E402
import figures  # noqa: E402
import figures_data  # noqa: E402
import figures_house  # noqa: E402
import raster  # noqa: E402
import report  # noqa: E402
import svg  # noqa: E402
import tables  # noqa: E402


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in the place of bench/results."""
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    yield tmp_path


def put(folder: Path, name: str, row: dict[str, Any]) -> None:
    machine = {"cpu": "a processor", "cores": 2, "isa": "AVX2", "memory_bytes": 1 << 34}
    document = {"name": name, "date": "2026-01-01", "commit": "0123456789", "machine": machine, "rows": [row]}
    (folder / f"{name}.json").write_text(json.dumps(document))


def words(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter() if element.text]


@pytest.mark.parametrize("name", figures.DRAWN)
def test_a_figure_is_that_of_the_kept_results(name: str) -> None:
    picture, _ = figures.drawn(name)
    assert (figures.FIGURES / f"{name}.svg").read_text() == picture, "run `make figures`"


@pytest.mark.parametrize("name", sorted(set(figures.DRAWN) - {"house", "path"}))
def test_a_figure_without_its_result_names_the_command_that_makes_it(name: str, results: Path) -> None:
    picture, lacking = figures.drawn(name)
    assert lacking is not None
    assert lacking.command in words(picture)
    assert not [word for word in words(picture) if re.search(r"\d+(\.\d+)? (s|ms|tokens)", word)], (
        "a number from nowhere"
    )


def test_a_result_without_what_a_figure_shows_is_missing_too(results: Path) -> None:
    put(results, "memory", {"name": "memory.emulated.session", "value": 1.0})
    with pytest.raises(figures_data.Missing, match="has no series"):
        figures_data.series("memory", "memory.emulated.session")
    with pytest.raises(figures_data.Missing, match="has no row"):
        figures_data.row("memory", "memory.disk.session")


@pytest.mark.parametrize("name", sorted(set(figures.DRAWN) - {"house", "path"}))
def test_a_figure_names_its_file_date_and_commit(name: str) -> None:
    picture, lacking = figures.drawn(name)
    assert lacking is None, lacking
    told = " ".join(words(picture))
    result = re.search(r"bench/results/(\w+)\.json", told)
    assert result, told
    kept = json.loads((report.RESULTS / f"{result[1]}.json").read_text())
    assert kept["date"] in told
    assert kept["commit"] in told


def test_every_room_is_in_the_picture_of_the_house() -> None:
    told = words(figures_house.draw_house())
    for package in ("engine", "ftagent"):
        for room in figures_house.folders(ROOT / package):
            assert room in told, room
    rooms = figures_house.house()
    assert "kernels" in rooms.computes and "scheduler" in rooms.decides and "api" in rooms.speaks
    assert not set(rooms.speaks) & set(rooms.decides) | set(rooms.decides) & set(rooms.computes)


def test_every_colour_has_a_partner_on_dark_pages() -> None:
    for name in figures.DRAWN:
        picture, _ = figures.drawn(name)
        body = picture[picture.index("</style>") :]
        for color in set(re.findall(r"(?:fill|stroke)='(#\w+)'", body)):
            assert color in svg.DARK, f"{name}: {color}"
        assert "class='" in body


@pytest.mark.parametrize("screen", raster.main_screens(), ids=lambda path: path.stem)
def test_a_screen_has_a_png_of_its_present_svg(screen: Path) -> None:
    png = screen.with_suffix(".png").read_bytes()
    assert png.startswith(b"\x89PNG\r\n")
    assert raster.signature(png) == raster.digest(screen), "run `make figures`"


def test_a_signature_leaves_the_picture_as_it_is(tmp_path: Path) -> None:
    source = tmp_path / "a.svg"
    source.write_text("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 2 2'><rect width='2' height='2'/></svg>")
    png = raster.main_screens()[0].with_suffix(".png").read_bytes()
    plain = png[:33] + png[33 + 12 + len(raster.KEY) + 1 + 64 :]
    assert raster.signature(plain) is None
    assert raster.signed(plain, raster.signature(png) or "") == png
    assert raster.signature(raster.signed(plain, raster.digest(source))) == raster.digest(source)


def test_kept_output_is_shown_as_it_was_printed(results: Path) -> None:
    text = "<!--output:hostile:hostile.claude.dry_run-->\nold\n<!--/output-->"
    assert "python bench/keep.py hostile" in figures.refreshed(text)
    put(results, "hostile", {"name": "hostile.claude.dry_run", "value": 1, "text": "Plan: claude\n"})
    assert "```text\nPlan: claude\n```" in figures.refreshed(text)


def test_old_results_become_a_line_and_new_ones_stay() -> None:
    history = [{"role": "tool", "tool_call_id": str(n), "content": f"{n}\n" * (n + 1)} for n in range(8)]
    sent = clearing.cleared(history)
    assert sent[-clearing.KEPT_RESULTS :] == history[-clearing.KEPT_RESULTS :]
    assert [message["content"] for message in sent[:3]] == [
        f"Old environment output: ({n} lines omitted)" for n in (1, 2, 3)
    ]
    assert clearing.cleared(history[:5]) == history[:5]


def test_work_ahead_belongs_to_the_reply_before_it() -> None:
    made = clearing_rows.Played()
    made.times = [
        {"asked_s": 0.0, "first_s": 1.0, "replied_s": 2.0, "tool_end_s": 6.0},
        {"asked_s": 6.0, "first_s": 6.5, "replied_s": 7.0, "tool_end_s": 7.0},
    ]
    made.looks = [(1.5, 0, 0), (2.1, 1, 0), (3.0, 1, 0), (4.0, 1, 900), (6.2, 1, 900), (7.5, 2, 900)]
    assert clearing_rows.ahead_of(made) == [[2.1, 4.0, 900], [None, None, 0]]


def test_rows_hold_every_turn_and_compare_the_edited_ones() -> None:
    def record(number: int, ttft: float) -> dict[str, Any]:
        counts = {"prompt_tokens": 1000, "cached_tokens": 900, "replayed_tokens": 0, "new_tokens": 100}
        return {"id": f"r{number}", **counts, "anticipated_tokens": 50, "ttft_s": ttft}

    ours, demand = clearing_rows.Played(), clearing_rows.Played()
    for played, ttft in ((ours, 0.5), (demand, 2.0)):
        played.records = [record(n, ttft) for n in range(2)]
        played.edited = [False, True]
        played.times = [{"asked_s": 0.0, "first_s": 1.0, "replied_s": 2.0, "tool_end_s": 3.0}] * 2
    peer = {"r0": {"cached": 900, "prefill_s": 1.0}, "r1": {"cached": 100, "prefill_s": 4.0}}
    rows = {row["name"]: row for row in clearing_rows.rows_of(ours, demand, peer, {"scripted": True})}
    assert (rows["clearing.ttft"]["value"], rows["clearing.ttft"]["baseline"]) == (0.5, 4.0)
    assert rows["clearing.on_demand"]["value"] == 2.0
    assert rows["clearing.computed"]["value"] == 200
    assert rows["clearing.computed"]["baseline"] == 1000
    assert [
        dict(zip(clearing_rows.TURN_COLUMNS, turn, strict=True))["edited"] for turn in rows["clearing.ttft"]["series"]
    ] == [0, 1]
    assert len(rows["clearing.timeline"]["series"]) == 2


def test_work_that_was_not_measured_says_what_measures_it(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"name": "agent.w2.wall", "value": 33.0, "baseline": 52.0, "ratio": 0.63, "model": "m"}
    decode = {"name": "agent.w2.decode", "value": 45.8, "baseline": None, "ratio": None, "model": "m"}
    monkeypatch.setattr(tables, "kept", lambda: [row, decode])
    lines = tables.workloads().splitlines()[2:]
    assert len(lines) == 4
    assert "python bench/keep.py agent --workload w3" in lines[2] and "claude" in lines[2]
    assert "| m | - | - s, - s | - s | - | 45.8 | - | 33.0 s | 52.0 s |" in lines[1]


def test_what_only_reading_would_give_is_the_bound_beside_the_other_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"name": "decode.a.bf16", "value": 20.0, "baseline": 16.0, "ratio": 1.25}
    bound = {"name": "decode.a.bf16.bound", "value": 20.0, "baseline": 24.0, "bytes_per_token": 1e9}
    monkeypatch.setattr(tables, "kept", lambda: [found, bound])
    assert tables.ceilings().splitlines()[2:] == ["| `decode.a.bf16` | 1,000 MB | 24 GB/s | 1.50 | 1.25 |"]


def test_a_caption_names_every_run_of_a_result_that_was_kept_in_parts() -> None:
    machine = {"cpu": "a", "cores": 2, "isa": "AVX2", "memory_bytes": 1 << 34}
    run = {"date": "2026-01-01", "commit": "aaaa", "machine": machine}
    rows = [{"name": "x"}, {"name": "y", "run": run}]
    told = report.origin({"name": "agent", "date": "2026-02-02", "commit": "bbbb", "machine": machine, "rows": rows})
    assert told.startswith("bench/results/agent.json · 2026-02-02 · commit bbbb · a, 2 cores")
    assert "; 2026-01-01 · commit aaaa · a, 2 cores" in told


def test_turns_of_an_agent_are_drawn_with_their_limit_and_edits(results: Path) -> None:
    columns = ["prompt_tokens", "ttft_s", "peer_s", "watchdog_s", "edit"]
    turns = [[1000, 2.0, 3.0, 300.0, ""], [1500, 0.2, 4.0, 300.0, "clear"]]
    more = {"value": 2, "model": "m", "agent": "pi", "series_columns": columns, "series": turns}
    put(results, "agent", {"name": "agent.w2.turns", **more})
    picture, lacking = figures.drawn("turns")
    assert lacking is None
    told = words(picture)
    assert {"agent gives up: 300 s", "edit", "ft", "llama.cpp"} <= set(told)
    assert picture.count("<circle") == 4
