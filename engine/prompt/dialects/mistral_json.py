"""Mistral v3 to v7: `[TOOL_CALLS]` and one list of calls, reasoning in `<think>` tags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engine.prompt.dialects.contract import Lark, Layout, Markers, Pieces
from engine.prompt.dialects.mistral import CALLS, Mistral
from engine.prompt.dialects.tagged import THINK


class MistralJson(Mistral):
    name = "mistral_json"
    layout = Layout(between="", apart=", ", calls=(f"{CALLS}[", "]"))
    markers: Mapping[str, Markers] = {
        **Mistral.markers,
        "thinking": THINK,
        "tool_call": Markers('{"name": ', "}"),
    }

    def call_parts(self, name: str, arguments: str, index: int = 0) -> Pieces:
        return [(f'{json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}', False)]

    def call_grammar(self, name: str, parameters: dict[str, Any], lark: Lark) -> str:
        head = json.dumps(name, ensure_ascii=False) + ', "arguments": '
        return f"{lark.text(head)} {lark.json(parameters)}"


DIALECT = MistralJson()
