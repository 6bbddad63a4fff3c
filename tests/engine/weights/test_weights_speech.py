"""What a chat template gives away, in templates that have the tell-tale parts of each family's."""

from __future__ import annotations

import pytest

from engine.prompt.edits import template
from engine.weights.speech import Speech, speech_of

TURN = "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
PROMPT = "{%- if add_generation_prompt %}<|im_start|>assistant\n"
HERMES = "{%- for c in m.tool_calls %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}"
XML = "<tool_call>\n<function={{ c.name }}>\n<parameter={{ k }}>\n{{ v }}\n</parameter>\n</function>\n</tool_call>"
OFF = "{%- if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
SPLIT = (
    "{%- if '</think>' in content %}{% set reasoning = content.split('</think>')[0].split('<think>')[-1] %}{% endif %}"
)
HARMONY = "{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}"

CASES = {
    "qwen3_moe": (TURN + HERMES + "{% set ns.last_query_index = 1 %}" + PROMPT + OFF, Speech("hermes", True, "qwen3")),
    "qwen3_moe-instruct": (TURN + SPLIT + HERMES + PROMPT + "{% endif %}", Speech("hermes", False)),
    "qwen3_moe-thinking": (TURN + SPLIT + HERMES + PROMPT + "<think>\n{% endif %}", Speech("hermes", True)),
    "qwen3_moe-coder": (TURN + XML + PROMPT + "{% endif %}", Speech("qwen_xml", False)),
    "qwen3_5_moe": (
        TURN + XML + "{% set ns.last_query_index = 1 %}" + PROMPT + OFF,
        Speech("qwen_xml", True, "qwen3.5"),
    ),
    "qwen3_5_moe-3.6": (TURN + XML + "{% if preserve_thinking %}" + PROMPT + OFF, Speech("qwen_xml", True, "qwen3.6")),
    "gpt_oss": (
        HARMONY + "{%- if add_generation_prompt %}<|start|>assistant{% endif %}",
        Speech("harmony", True, "gpt-oss", ends=("<|return|>", "<|call|>")),
    ),
    "llama": ("{{ bos_token }}" + TURN + PROMPT + "{% endif %}", Speech("hermes", False)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_template_gives_its_speech_away(name: str) -> None:
    text, expected = CASES[name]
    assert speech_of(text) == expected
    assert template.find(expected.template_family, expected.thinking).thinking in ("all", "after_query")
