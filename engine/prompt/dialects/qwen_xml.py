"""`<function=…>` and `<parameter=…>` in `<tool_call>` tags, reasoning in `<think>` tags: Qwen3-Coder and everything since Qwen3.5."""

from __future__ import annotations

from typing import ClassVar

from engine.prompt.dialects.contract import Layout
from engine.prompt.dialects.elements import Elements
from engine.prompt.dialects.hermes import DIALECT as HERMES
from engine.prompt.dialects.reading import Ahead, Mark, Maybe


class QwenXml(Elements):
    name = "qwen_xml"
    layout = Layout(between="\n\n", apart="\n")
    markers = HERMES.markers
    openings: ClassVar = HERMES.openings
    heads: ClassVar = (("<tool_call", Mark.SPACE, Maybe(">"), Mark.SPACE, Ahead(("<function=",))),)
    closings: ClassVar = HERMES.closings
    function = "\n<function={name}>\n"
    end = "</function>\n"
    parameter = "<parameter={key}>\n"
    value_end = "\n</parameter>\n"
    stop = "</function>"
    lines = True


DIALECT = QwenXml()
