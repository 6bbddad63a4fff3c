"""Mistral since v11: `[TOOL_CALLS]NAME[ARGS]{…}` for each call, reasoning in `[THINK]`. The list of older versions (mistral_json) is
read as well."""

from __future__ import annotations

import string
from collections.abc import Mapping
from hashlib import blake2b
from typing import ClassVar

from engine.prompt.conversation import Tool
from engine.prompt.dialects.contract import Layout, Markers
from engine.prompt.dialects.hermes import named_call
from engine.prompt.dialects.json_scan import JsonScan, strict_value
from engine.prompt.dialects.prefixed import Prefixed
from engine.prompt.dialects.reading import Ahead, Field, Head, Mark, Maybe
from engine.prompt.dialects.tagged import Calls, Scan

CALLS, _ARGUMENTS, _ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_LETTERS = string.ascii_letters + string.digits


class Mistral(Prefixed):
    name = "mistral"
    layout = Layout(thinking=("", ""), answer="", between="")
    markers: Mapping[str, Markers] = {
        "thinking": Markers("[THINK]", "[/THINK]"),
        "tool_call": Markers(CALLS, ""),
        "tool_result": Markers("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        "tools": Markers("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    }
    around = ("", _ARGUMENTS, "")
    openings: ClassVar = (CALLS,)
    heads: ClassVar = (
        (CALLS, Mark.SPACE, Mark.BODY, "[", Mark.SPACE, Ahead(("{",))),
        (CALLS, Mark.SPACE, Field("name"), _ID, Field("id"), _ARGUMENTS, Mark.SPACE, Ahead(("{",))),
        (CALLS, Mark.SPACE, Field("name"), Maybe(_ARGUMENTS), Mark.SPACE, Ahead(("{",))),
    )

    def read(self, text: str, head: Head, scan: Scan, tools: Mapping[str, Tool]) -> Calls | None:
        assert isinstance(scan, JsonScan)
        if "name" in head.fields:
            return super().read(text, head, scan, tools)
        if scan.depth or not scan.ended:
            return None
        entries = strict_value(text[scan.start : scan.position], unique=True)
        calls = [named_call(entry) for entry in entries] if isinstance(entries, list) else []
        found = [call for call in calls if call is not None]
        return found if found and len(found) == len(calls) else None

    def call_id(self, call_id: str, name: str, index: int) -> str:
        """Nine letters or digits: its templates refuse anything else."""
        number = int.from_bytes(blake2b(call_id.encode("utf-8", "replace"), digest_size=8).digest())
        return "".join(_LETTERS[number // len(_LETTERS) ** place % len(_LETTERS)] for place in range(9))

    def result_body(self, text: str) -> str:
        return text


DIALECT = Mistral()
