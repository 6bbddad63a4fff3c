"""DeepSeek V4: as V3.2, with another name for the section."""

from __future__ import annotations

from collections.abc import Mapping

from engine.prompt.dialects.contract import Layout, Markers
from engine.prompt.dialects.deepseek_v32 import SECTIONS, DeepSeekV32, section


class DeepSeekV4(DeepSeekV32):
    name = "deepseek_v4"
    layout = Layout(thinking=("", ""), answer="", between="", apart="\n", calls=section(SECTIONS[1]))
    markers: Mapping[str, Markers] = {
        **DeepSeekV32.markers,
        "tool_result": Markers("<tool_result>", "</tool_result>"),
    }


DIALECT = DeepSeekV4()
