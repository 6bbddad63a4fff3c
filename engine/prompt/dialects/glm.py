"""GLM-4.5 and later: the name behind `<tool_call>`, then pairs of `<arg_key>` and `<arg_value>`; reasoning in `<think>` tags."""

from __future__ import annotations

from typing import ClassVar

from engine.prompt.dialects.contract import Layout
from engine.prompt.dialects.elements import Elements
from engine.prompt.dialects.hermes import DIALECT as HERMES
from engine.prompt.dialects.reading import Ahead, Field, Mark, Maybe

_KEY, _END = "<arg_key>", "</tool_call>"


class Glm(Elements):
    name = "glm"
    layout = Layout(thinking=("", ""), answer="\n")
    markers = HERMES.markers
    openings: ClassVar = HERMES.openings
    heads: ClassVar = (("<tool_call", Maybe(">"), Mark.SPACE, Field("name"), Mark.SPACE, Ahead((_KEY, _END[:-1]))),)
    function = "{name}\n"
    parameter = "<arg_key>{key}</arg_key>\n<arg_value>"
    value_end = "</arg_value>\n"
    stop = _END


DIALECT = Glm()
