"""DeepSeek V3.1: a section of calls, each a name and its arguments. V3 and R1 write more around them (deepseek_v3), and are read
here as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from engine.prompt.dialects.contract import Layout, Markers
from engine.prompt.dialects.prefixed import Prefixed
from engine.prompt.dialects.reading import Ahead, Field, Mark, Maybe
from engine.prompt.dialects.tagged import THINK

SECTION, SECTION_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEPARATOR, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_BEGIN = (Maybe(SECTION), Mark.SPACE, CALL, Mark.SPACE)
_BODY = (Mark.SPACE, Maybe("```json"), Mark.SPACE, Ahead(("{",)))


class DeepSeek(Prefixed):
    name = "deepseek"
    layout = Layout(thinking=("", ""), answer="", between="", calls=(SECTION, SECTION_END))
    markers: Mapping[str, Markers] = {
        "thinking": THINK,
        "tool_call": Markers(CALL, CALL_END),
        "tool_result": Markers("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
        "tools": Markers("<tools>", "</tools>"),
    }
    around = ("", SEPARATOR, "")
    openings: ClassVar = (SECTION, CALL)
    heads: ClassVar = (
        (*_BEGIN, "function", SEPARATOR, Field("name"), *_BODY),
        (*_BEGIN, Field("name"), Mark.SPACE, SEPARATOR, *_BODY),
    )
    closings: ClassVar = ("```", CALL_END, SECTION_END)

    def result_body(self, text: str) -> str:
        return text


DIALECT = DeepSeek()
