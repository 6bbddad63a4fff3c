"""Widths against Rich's own tables, bars against arithmetic, numbers as they are read."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ftagent.dashboard.theme import ASCII, DARK, MONOCHROME, PALETTES, UNICODE
from ftagent.dashboard.widgets.ansi import codes, rendered
from ftagent.dashboard.widgets.bars import bar, severity, shares, spark, stacked
from ftagent.dashboard.widgets.cells import Span, clean, cut, fit, fit_line, line_width, to_ascii, width, wrap
from ftagent.dashboard.widgets.tables import Column, table, window
from ftagent.dashboard.widgets.units import age, limit, of_size, seconds, size, tokens

WORDS = st.text(alphabet="abc de日本語한국é\u0301🙂─█\u200d\x1b\n", max_size=30)


@given(WORDS, st.integers(0, 20))
def test_cut_and_fit_take_the_cells_that_a_terminal_gives_them(text, cells):
    text = clean(text)
    assert width(text) == cell_len(text)
    assert cell_len(cut(text, cells)) <= cells
    assert cell_len(fit(text, cells)) == cells
    assert "\x1b" not in text and "\n" not in text


@given(st.lists(st.tuples(WORDS.map(clean), st.sampled_from(["text", "warn"])), max_size=5), st.integers(1, 40))
def test_a_line_is_exactly_as_wide_as_it_is_asked_for(spans, cells):
    line = tuple(Span(*one) for one in spans)
    fitted = fit_line(line, cells)
    assert line_width(fitted) == cells
    whole = "".join(span.text for span in line)
    assert "".join(s.text for s in fitted).startswith(whole) or width(whole) > cells
    ascii_only = to_ascii([fitted])[0]
    assert "".join(s.text for s in ascii_only).isascii()
    assert line_width(ascii_only) == cells


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=8), st.integers(8, 200))
def test_shares_add_up_and_nothing_that_is_there_vanishes(parts, cells):
    given_cells = shares(parts, cells)
    assert sum(given_cells) == (cells if sum(parts) > 0 else 0)
    assert all(many > 0 for part, many in zip(parts, given_cells, strict=True) if part > 0)
    assert all(many == 0 for part, many in zip(parts, given_cells, strict=True) if part == 0)


def test_a_bar_is_neither_empty_once_begun_nor_full_before_the_end():
    def drawn(share):
        return "".join(span.text for span in bar(share, 10, ASCII))

    assert [drawn(s) for s in (0.0, 0.001, 0.5, 0.999, 1.0)] == [
        "." * 10,
        "#" + "." * 9,
        "#" * 5 + "." * 5,
        "#" * 9 + ".",
        "#" * 10,
    ]
    assert drawn(None).strip() == ""


def test_limits_turn_amber_at_half_and_red_at_four_fifths():
    assert [severity(s) for s in (None, 0.49, 0.5, 0.8, 0.81)] == ["dim", "good", "warn", "warn", "bad"]


def test_a_part_of_a_stacked_bar_begins_with_its_letter():
    text = "".join(span.text for span in stacked([("D", 6, "a"), ("K", 3, "b"), ("x", 0, "c")], 9, UNICODE))
    assert text == "D█████K██"


def test_a_sparkline_leaves_out_what_is_not_known_and_ends_at_the_right():
    assert spark([1.0, None, 0.5], 5, ASCII) == "  % +"
    assert len(spark([float(i) for i in range(600)], 40, UNICODE)) == 40


def test_columns_of_low_rank_leave_first_and_the_selected_row_is_marked_by_a_sign():
    columns = (Column("NAME", 4, 10, 0), Column("MUCH", 4, 10, 1), Column("EXTRA", 5, 10, 9))
    rows = [["one", "1", "x"], ["two", "2", "y"]]
    wide = ["".join(s.text for s in one) for one in table(columns, rows, 40, 1)]
    narrow = ["".join(s.text for s in one) for one in table(columns, rows, 14, 1)]
    assert "EXTRA" in wide[0]
    assert "EXTRA" not in narrow[0]
    assert "MUCH" in narrow[0]
    assert [row[0] for row in wide] == [" ", " ", ">"]
    assert window(50, 40, 10) == (35, 45)


@pytest.mark.parametrize(
    ("shown", "meant"),
    [
        (tokens(None), "-"), (tokens(0), "0"), (tokens(999), "999"), (tokens(61_204), "61.2k"), (tokens(262_144), "262k"), (tokens(1_200_000), "1.2M"),
        (seconds(None), "-"), (seconds(0), "0s"), (seconds(0.02), "20ms"), (seconds(0.42), "0.42s"), (seconds(2.94), "2.9s"), (seconds(41), "41s"),
        (seconds(245), "4m05s"), (seconds(8040), "2h14m"), (limit(1800), "30m"), (limit(300), "5m"), (limit(95), "95s"), (age(187), "3m"), (age(200_000), "2d"),
        (size(None), "-"), (size(9.8 * 2**30), "9.8 GB"), (of_size(24 * 2**30, 32 * 2**30), "24/32 GB"),
    ],
)  # fmt: skip
def test_numbers_as_people_read_them(shown, meant):
    assert shown == meant


def test_every_role_has_a_look_and_monochrome_has_no_colour():
    for palette in PALETTES:
        assert palette.look("no such role") == palette.look("text")
        assert palette.look("warn+select") != palette.look("warn")
    roles = [*DARK.looks, *(f"{role}+select" for role in DARK.looks)]
    for role in roles:
        assert not any(
            code.startswith(("3", "4", "9", "10")) for code in codes(MONOCHROME.look(role), "", False).split(";")
        )


def test_the_first_frame_is_drawn_line_by_line():
    text = rendered([(Span("ab"),), (Span("cd", "bad"),)], MONOCHROME, False)
    assert text == "\x1b[1;1Hab\x1b[2;1H\x1b[1;7mcd\x1b[0m"
    assert "38;2;255;107;94" in rendered([(Span("x", "bad"),)], DARK, True)
    assert "38;5;203" in rendered([(Span("x", "bad"),)], DARK, False)


def test_words_are_wrapped_and_long_ones_broken():
    assert wrap("one two three", 7) == ["one two", "three"]
    assert wrap("abcdefghij", 4) == ["abcd", "efgh", "ij"]


def test_the_first_frame_needs_neither_textual_nor_rich():
    code = (
        "import sys; from ftagent.dashboard.app import Options, first_screen; from ftagent.dashboard.mock import frame\n"
        "assert 'Sessions' in first_screen(frame('four'), Options())\n"
        "print(*sorted({m.partition('.')[0] for m in sys.modules} & {'textual', 'rich', 'httpx', 'pydantic', 'numpy', 'torch'}))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
