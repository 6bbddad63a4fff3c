"""DeepSeek V3 and R1: as V3.1, with the kind of tool before the name and the arguments in a fence."""

from __future__ import annotations

from engine.prompt.dialects.contract import Layout
from engine.prompt.dialects.deepseek import SECTION, SECTION_END, SEPARATOR, DeepSeek


class DeepSeekV3(DeepSeek):
    name = "deepseek_v3"
    layout = Layout(thinking=("\n", "\n"), answer="\n\n", between="", calls=(SECTION, SECTION_END))
    around = (f"function{SEPARATOR}", "\n```json\n", "\n```")


DIALECT = DeepSeekV3()
