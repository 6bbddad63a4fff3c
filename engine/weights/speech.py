"""How a model speaks, told from its chat template: the syntax of its calls, whether it thinks, and what its template does to
history. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

THINK, CALL = "<think>", "<tool_call>"


@dataclass(frozen=True, slots=True)
class Speech:
    """`dialect` is a name in engine/prompt/dialects, `template_family` one in engine/prompt/edits/templates ("": the default for
    `thinking`). `ends` are tokens that end a turn, whatever else the checkpoint says. `note` says what is not as the model's
    authors meant it."""

    dialect: str
    thinking: bool
    template_family: str = ""
    ends: tuple[str, ...] = ()
    note: str = ""


def speech_of(template: str) -> Speech:
    """What `template`, a chat template's text, shows."""
    if "<|channel|>" in template and "<|start|>" in template:
        return Speech("harmony", True, "gpt-oss", ends=("<|return|>", "<|call|>"))
    thinking = "enable_thinking" in template or THINK in template[max(template.rfind("add_generation_prompt"), 0) :]
    if CALL in template and "<function=" in template:
        family = "qwen3.6" if "preserve_thinking" in template else "qwen3.5"
        return Speech("qwen_xml", thinking, family if thinking else "")
    if CALL in template:
        # Templates that look for the last query keep only the thinking behind it.
        return Speech("hermes", thinking, "qwen3" if thinking and "last_query_index" in template else "")
    return Speech("hermes", thinking, note=_foreign(template))


def _foreign(template: str) -> str:
    """A sentence about a tool syntax that is not spoken here."""
    for name, mark in (("Mistral's", "[TOOL_CALLS]"), ("Llama's", "<|python_tag|>"), ("DeepSeek's", "<｜tool▁call")):
        if mark in template:
            return f"Tool calls in {name} own syntax are not read; they are taken in {CALL} tags only."
    return ""
