"""Rows of benchmarks, how runs are kept, and the report over them."""

import json
import re
from pathlib import Path

import pytest

from engine.bench import report, runs
from engine.bench.rows import hand_on, line, row, show
from engine.errors import BadRequest, NotFound
from ftagent.commands.bench import BENCHMARKS

FIELDS = {"name", "value", "unit", "baseline", "ratio", "samples"}


def test_row_is_medians_and_their_ratio() -> None:
    made = row("decode.a.bf16", "tokens/s", [1.0, 30.0, 29.0], [15.0, 14.0, 100.0], threads=2)
    assert made == {
        "name": "decode.a.bf16", "value": 29.0, "unit": "tokens/s", "baseline": 15.0,
        "ratio": 1.933, "samples": 3, "threads": 2,
    }  # fmt: skip


def test_row_without_baseline_has_no_ratio() -> None:
    made = row("x", "s", [0.123456])
    assert set(made) == FIELDS and made["baseline"] is None and made["ratio"] is None and made["value"] == 0.1235
    assert "ratio" not in line(made)


def test_rows_are_shown_and_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("FT_BENCH_ROWS", str(tmp_path / "rows.json"))
    rows = [row("a", "s", [1.0], [2.0]), row("b", "s", [1.0], note="no llama.cpp here")]
    show(rows, as_json=True)
    assert json.loads(capsys.readouterr().out) == rows == json.loads((tmp_path / "rows.json").read_text())
    show(rows, as_json=False)
    assert "(no llama.cpp here)" in capsys.readouterr().out


def test_nothing_is_handed_on_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FT_BENCH_ROWS", raising=False)
    hand_on([row("a", "s", [1.0])])


def test_the_launcher_lists_what_the_engine_can_measure() -> None:
    assert set(BENCHMARKS) == {*runs.listing(), "report"}


@pytest.mark.parametrize("name", sorted(runs.SCRIPTS))
def test_every_script_is_there(name: str) -> None:
    assert Path(runs.command(name)[-1]).is_file()


def test_experts_measure_misses_when_routing_is_named() -> None:
    assert runs.command("experts")[-1].endswith("kernels.py")
    assert runs.command("experts", ["--replay=x"])[-1].endswith("experts_miss.py")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(NotFound, match="nosuch"):
        runs.command("nosuch")


def kept(folder: Path, name: str, date: str, rows: list) -> None:
    folder.mkdir(exist_ok=True)
    document = runs.document(name, rows, {"arguments": []}) | {"date": date}
    (folder / f"{name}-{date}.json").write_text(json.dumps(document))


def test_a_kept_run_says_what_was_measured_where(tmp_path: Path) -> None:
    path = runs.keep(tmp_path / "bench", "decode", [row("decode.a.bf16", "tokens/s", [30.0])], ["--quick"])
    document = json.loads(path.read_text())
    assert document["settings"] == {"arguments": ["--quick"]} and document["machine"]["cores"] > 0
    assert re.fullmatch(r"[0-9a-f]{10}\+?|ftagent .*", document["commit"])


def test_the_newest_row_of_each_name_counts(tmp_path: Path) -> None:
    kept(tmp_path, "one", "2026-01-01", [row("a", "s", [1.0]), row("b", "s", [1.0])])
    kept(tmp_path, "two", "2026-01-02T10:00:00Z", [row("b", "s", [2.0])])
    found = report.latest([tmp_path, tmp_path / "absent"])
    assert (found["a"]["value"], found["b"]["value"]) == (1.0, 2.0)
    assert found["b"]["date"] == "2026-01-02T10:00:00Z"


def test_a_damaged_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"schema": "other"}')
    assert report.latest([tmp_path]) == {}
    (tmp_path / "x.json").write_text('{"schema": "ft.bench/1", "rows": [')
    with pytest.raises(BadRequest, match=r"x\.json"):
        report.latest([tmp_path])


def entry(rows: list, name: str) -> dict:
    run = {"date": "2026-01-01", "commit": "c", "machine": {"cpu": "x", "cores": 2}, "settings": {}}
    return next(e for e in report.entries({r["name"]: {**r, **run} for r in rows}) if e["name"] == name)


@pytest.mark.parametrize(
    ("ours", "theirs", "bound", "reached"),
    [
        (130.0, 100.0, 200.0, True),
        (110.0, 100.0, 200.0, False),
        (110.0, 100.0, 120.0, True),
        (110.0, None, 200.0, None),
    ],
)
def test_decode_reaches_by_ratio_or_by_bound(
    ours: float, theirs: float | None, bound: float, reached: bool | None
) -> None:
    rows = [
        row("decode.a.mxfp4", "tokens/s", [ours], [theirs] if theirs else []),
        row("decode.a.mxfp4.bound", "tokens/s", [ours], [bound]),
    ]
    assert entry(rows, "decode.a.mxfp4")["reached"] is reached


def test_some_ratios_must_stay_below() -> None:
    assert entry([row("split.ratio.25-57", "ms", [1.02], [1.0])], "split.ratio.25-57")["reached"] is True
    assert entry([row("split.ratio.25-57", "ms", [1.04], [1.0])], "split.ratio.25-57")["reached"] is False


def test_what_is_not_measured_is_listed(capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "KEPT", tmp_path)
    assert report.main([], None) == 0
    out = capsys.readouterr().out
    for name in ("decode.b.nvfp4", "prefill4096.a.q4_0", "load.ftw", "experts.miss.frequency.37"):
        assert re.search(rf"{re.escape(name)} +not measured", out)


def test_every_kept_result_of_the_project_is_read(capsys) -> None:
    assert report.main(["--json", "--all"], None) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"figure", "reach", "aim", "reached"} <= set(rows[0])
    assert any(r["value"] is not None for r in rows)


def test_parts_that_are_measured_apart_are_kept_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    import report as keeping

    monkeypatch.setattr(keeping, "RESULTS", tmp_path)
    first = [row("agent.w1.decode", "t/s", [1.0]), row("agent.w3.old", "s", [1.0]), row("agent.w3.wall", "s", [1.0])]
    keeping.keep("agent", first, scripted=True, settings={"arguments": ["all"]})
    keeping.keep("agent", [row("agent.w3.wall", "s", [2.0])], settings={"arguments": ["w3"]})
    keeping.keep("agent", [row("agent.w2.wall", "s", [3.0])], settings={"arguments": ["w2"]})
    names = [made["name"] for made in json.loads((tmp_path / "agent.json").read_text())["rows"]]
    assert names == ["agent.w1.decode", "agent.w2.wall", "agent.w3.wall"], "what w3 no longer says is gone"
    found = report.latest([tmp_path])
    assert [found[name]["settings"]["arguments"] for name in names] == [["all"], ["w2"], ["w3"]]
    assert found["agent.w3.wall"]["value"] == 2.0
    keeping.keep("speed", [row("a", "s", [1.0])])
    keeping.keep("speed", [row("b", "s", [1.0])])
    assert [made["name"] for made in json.loads((tmp_path / "speed.json").read_text())["rows"]] == ["b"]
