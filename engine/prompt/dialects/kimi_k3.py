"""Kimi K3: every tag is `<|open|>…<|sep|>` or `<|close|>…<|sep|>`; reasoning, response and calls are elements of one message, and an
argument's tag says its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from engine.prompt.dialects.contract import Layout, Markers
from engine.prompt.dialects.elements import Elements
from engine.prompt.dialects.reading import Ahead, Mark, Maybe

_CALL = "<|open|>call"


def _open(tag: str) -> str:
    return f"<|open|>{tag}<|sep|>"


def _close(tag: str) -> str:
    return f"<|close|>{tag}<|sep|>"


class KimiK3(Elements):
    name = "kimi_k3"
    layout = Layout(
        thinking=("", ""),
        answer=_open("response"),
        between="",
        calls=(_close("response") + _open("tools"), _close("tools") + _close("message")),
        end=_close("response") + _close("message"),
        ends=("<|end_of_msg|>",),
    )
    markers: Mapping[str, Markers] = {
        "thinking": Markers(_open("think"), _close("think")),
        "tool_call": Markers(_CALL, _close("call")),
        "tool_result": Markers("<tool_result>", "</tool_result>"),
        "tools": Markers("<tools>", "</tools>"),
    }
    openings: ClassVar = (_open("tools"), f"{_CALL} tool=")
    heads: ClassVar = ((Maybe(_open("tools")), Mark.SPACE, _CALL, Mark.BODY, Ahead((" tool=",))),)
    closings: ClassVar = (_close("tools"), _close("message"))
    silent: ClassVar = (_open("response"), _close("response"), _close("message"))
    function = ' tool="{name}" index="{index}"<|sep|>'
    parameter = '<|open|>argument key="{key}" type="{type}"<|sep|>'
    value_end = _close("argument")
    stop = _close("call")
    escapes: ClassVar[Mapping[str, str]] = {"&": "&amp;", '"': "&quot;"}

    def type_of(self, value: Any) -> str:
        if value is None:
            return "null"
        names = ((str, "string"), (bool, "boolean"), (int | float, "number"), (dict, "object"))
        return next((name for kind, name in names if isinstance(value, kind)), "array")


DIALECT = KimiK3()
