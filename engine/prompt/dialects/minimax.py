"""MiniMax M2: `<invoke name="…">` and `<parameter name="…">` in one `<minimax:tool_call>` for all calls; reasoning in `<think>`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from engine.prompt.dialects.contract import Layout, Markers
from engine.prompt.dialects.elements import Elements
from engine.prompt.dialects.reading import Ahead, Mark, Maybe
from engine.prompt.dialects.tagged import THINK

_SECTION, _SECTION_END = "<minimax:tool_call>", "</minimax:tool_call>"
_INVOKE = "<invoke name="


class MiniMax(Elements):
    name = "minimax"
    layout = Layout(between="\n", calls=(f"{_SECTION}\n", f"\n{_SECTION_END}"))
    markers: Mapping[str, Markers] = {
        "thinking": THINK,
        "tool_call": Markers("<invoke", "</invoke>"),
        "tool_result": Markers("<response>", "</response>"),
        "tools": Markers("<tools>", "</tools>"),
    }
    openings: ClassVar = (_SECTION[:-1], _INVOKE)
    heads: ClassVar = ((Maybe(_SECTION[:-1]), Maybe(">"), Mark.SPACE, Ahead((_INVOKE,)), "<invoke", Mark.BODY),)
    closings: ClassVar = (_SECTION_END,)
    function = ' name="{name}">\n'
    parameter = '<parameter name="{key}">'
    value_end = "</parameter>\n"
    stop = "</invoke>"


DIALECT = MiniMax()
