"""Kimi K2 to K2.6: a section of calls, each named `functions.NAME:INDEX`, which is also its id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from engine.prompt.dialects.contract import Layout, Markers
from engine.prompt.dialects.prefixed import Prefixed
from engine.prompt.dialects.reading import Ahead, Field, Mark, Maybe
from engine.prompt.dialects.tagged import THINK

_SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_SINGULAR, _SINGULAR_END = "<|tool_call_section_begin|>", "<|tool_call_section_end|>"  # as some checkpoints write them
_CALL, _ARGUMENTS, _CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_NAMED = (Mark.SPACE, Field("name"), Mark.SPACE, _ARGUMENTS, Mark.SPACE)
_NUMBER = re.compile(r":\d+$")


class Kimi(Prefixed):
    name = "kimi"
    layout = Layout(thinking=("", ""), answer="", between="", calls=(_SECTION, _SECTION_END))
    markers: Mapping[str, Markers] = {
        "thinking": THINK,
        "tool_call": Markers(_CALL, _CALL_END),
        "tool_result": Markers("<tool_result>", "</tool_result>"),
        "tools": Markers("<tools>", "</tools>"),
    }
    around = ("functions.", ":{index}" + _ARGUMENTS, "")
    openings: ClassVar = (_SECTION, _SINGULAR, _CALL)
    heads: ClassVar = ((Maybe(_SECTION), Maybe(_SINGULAR), Mark.SPACE, _CALL, *_NAMED, Ahead(("{",))),)
    closings: ClassVar = (_CALL_END, _SECTION_END, _SINGULAR_END)

    def plain_name(self, name: str) -> str:
        return _NUMBER.sub("", name).removeprefix("functions.")

    def call_id(self, call_id: str, name: str, index: int) -> str:
        return f"functions.{name}:{index}"  # all that its template shows of a call besides the arguments


DIALECT = Kimi()
