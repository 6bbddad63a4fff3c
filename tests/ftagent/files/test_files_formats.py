"""Edits of single keys: the key has its value, every other byte is where it was, and what cannot be proven is refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftagent.errors import Refused
from ftagent.files.formats import edited, load
from ftagent.files.keys import Edit, applied

JSON5 = """{
  // head
  "a": 1, // one
  "models": {
    "providers": { "x": {"k": "v"} }, /* c */
  },
  'z': [1,2,],
  last: 'q' // end
}
"""
YAML = """# head
model:
  name: x   # the name
  list:
    - a
    - b

# tail
other: "q"
block: |
  text
  more
"""
TOML = '# head\nport = 1 # one\n\n[a]\nb = 2\n# in a\n[c.d]\ne="x"\n'
TEXTS = {"json5": JSON5, "yaml": YAML, "toml": TOML}
CASES = [
    ("json5", ("a",), 5, '  "a": 1, // one', '  "a": 5, // one'),
    ("json5", ("models", "providers", "ft"), {"u": 1}, '"v"} }', '"v"}, "ft": {\n      "u": 1\n    } }'),
    ("json5", ("new",), True, "last: 'q' // end\n", "last: 'q', // end\n  \"new\": true\n"),
    ("yaml", ("model", "name"), "new", "name: x   #", 'name: "new"   #'),
    ("yaml", ("model", "url"), "http://h", "    - b\n", '    - b\n  url: "http://h"\n'),
    ("yaml", ("model", "list"), ["c"], "list:\n    - a\n    - b", 'list: ["c"]'),
    ("yaml", ("block",), "s", "block: |\n  text\n  more\n", 'block: "s"\n'),
    ("yaml", ("p", "q"), {"r": 1}, "  more\n", "  more\np:\n  q:\n    r: 1\n"),
    ("toml", ("port",), 5, "port = 1 # one", "port = 5 # one"),
    ("toml", ("new",), "v", "# one\n", '# one\nnew = "v"\n'),
    ("toml", ("c", "d", "e"), "y", 'e="x"', 'e="y"'),
]


@pytest.mark.parametrize(("format_", "key", "value", "old", "new"), CASES)
def test_only_the_key_changes(format_, key, value, old, new) -> None:
    text = TEXTS[format_]
    assert text.count(old) == 1
    assert edited(Path("f"), text, format_, [Edit(key, value)]) == text.replace(old, new)
    windows = text.replace("\n", "\r\n")
    assert edited(Path("f"), windows, format_, [Edit(key, value)]) == text.replace(old, new).replace("\n", "\r\n")


@pytest.mark.parametrize(("format_", "key", "value", "old", "new"), [case for case in CASES if "new" in case[1]])
def test_what_was_added_can_be_taken_out_again(format_, key, value, old, new) -> None:
    with_it = edited(Path("f"), TEXTS[format_], format_, [Edit(key, value)])
    without = edited(Path("f"), with_it, format_, [Edit(key, remove=True)])
    assert load(without, format_) == load(TEXTS[format_], format_)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab\n\"'\\ü{,:", max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab'/ü", max_size=2), inner, max_size=3),
    max_leaves=8,
)
_DOCUMENT = st.dictionaries(st.text("ab'/ü", max_size=2), _JSON, max_size=3)


@settings(max_examples=150, deadline=None)
@given(
    _DOCUMENT,
    st.lists(st.text("abü", max_size=2), min_size=1, max_size=3),
    _JSON,
    st.booleans(),
    st.sampled_from([None, 2, "\t"]),
)
def test_any_json_document(document, names, value, remove, indent) -> None:
    """Against a model: what Python's own parser reads afterwards is the document with that one key changed."""
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    edit = Edit(tuple(names), value, remove)
    try:
        new = edited(Path("f"), text, "json", [edit])
    except Refused as error:
        assert "is no table" in error.message
        return
    assert json.loads(new) == applied(document, edit)


@pytest.mark.parametrize(
    ("format_", "text", "place"),
    [
        ("json", '{"a": 1,}', ":1:9:"),
        ("json5", "{\n  a: 1,\n  b: }\n", ":3:6:"),
        ("json5", "{ a: 'x", ":1:6:"),
        ("json5", '{"a": {"b": 1, "b": 2}}', ":1:16:"),
        ("json5", "[1]", ""),
        ("yaml", "a: [1\nb: 2\n", ":2:2:"),
        ("yaml", "a: 1\na: 2\n", ":2:1:"),
        ("yaml", "x: &one {b: 1}\na: *one\n", ""),
        ("yaml", "a: 1\n---\nb: 2\n", ""),
        ("toml", "a = = 1\n", ":1:5:"),
        ("toml", "a = 1\n", ""),
    ],
)
def test_refused_with_its_place(format_, text, place) -> None:
    with pytest.raises(Refused) as caught:
        edited(Path("/x/f"), text, format_, [Edit(("a", "b"), 3)])
    assert caught.value.exit_code == 4
    assert f"/x/f{place}" in caught.value.message
    assert "--isolated" in caught.value.hint


def test_a_comment_that_would_go_is_a_refusal() -> None:
    with pytest.raises(Refused, match="comment"):
        edited(Path("f"), "a:\n  # why\n  b: 1\n", "yaml", [Edit(("a",), 1)])
    with pytest.raises(Refused, match="comment"):
        edited(Path("f"), '{"a": {\n// why\n"b": 1}}', "jsonc", [Edit(("a",), 1)])


def test_a_byte_order_mark_stays() -> None:
    assert edited(Path("f"), '\ufeff{"a":1}', "json", [Edit(("a",), 2)]) == '\ufeff{"a":2}'
