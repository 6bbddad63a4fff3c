"""DeepSeek V3.2: elements in DSML tags, each argument's tag saying whether it is a string; one section for all calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from engine.prompt.dialects.contract import Layout, Markers
from engine.prompt.dialects.elements import Elements
from engine.prompt.dialects.reading import Ahead, Mark, Maybe
from engine.prompt.dialects.tagged import THINK

_DSML = "｜DSML｜"
_INVOKE = f"<{_DSML}invoke"
SECTIONS = ("function_calls", "tool_calls")  # of V3.2 and of V4; both are read


def section(name: str) -> tuple[str, str]:
    return f"\n\n<{_DSML}{name}>\n", f"\n</{_DSML}{name}>"


class DeepSeekV32(Elements):
    name = "deepseek_v32"
    layout = Layout(thinking=("", ""), answer="", between="", apart="\n", calls=section(SECTIONS[0]))
    markers: Mapping[str, Markers] = {
        "thinking": THINK,
        "tool_call": Markers(_INVOKE, f"</{_DSML}invoke>"),
        "tool_result": Markers("<result>", "</result>"),
        "tools": Markers("<functions>", "</functions>"),
    }
    openings: ClassVar = (*(section(name)[0].strip() for name in SECTIONS), f"{_INVOKE} name=")
    heads: ClassVar = (
        (*(Maybe(section(name)[0].strip()) for name in SECTIONS), Mark.SPACE, _INVOKE, Mark.BODY, Ahead((" name=",))),
    )
    closings: ClassVar = tuple(section(name)[1].strip() for name in SECTIONS)
    function = ' name="{name}">\n'
    parameter = f'<{_DSML}parameter name="{{key}}" string="{{type}}">'
    value_end = f"</{_DSML}parameter>\n"
    empty = "\n"
    stop = f"</{_DSML}invoke>"

    def result_body(self, text: str) -> str:
        return text

    def type_of(self, value: Any) -> str:
        return "true" if isinstance(value, str) else "false"


DIALECT = DeepSeekV32()
