"""GLM-4.7 and later: as GLM-4.5, without line breaks between the tags."""

from __future__ import annotations

from engine.prompt.dialects.contract import Layout
from engine.prompt.dialects.glm import Glm


class Glm47(Glm):
    name = "glm_47"
    layout = Layout(thinking=("", ""), answer="", between="")
    function = "{name}"
    parameter = "<arg_key>{key}</arg_key><arg_value>"
    value_end = "</arg_value>"


DIALECT = Glm47()
