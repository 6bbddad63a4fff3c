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
    for marks, speak in _OWN_MARKS:
        if all(mark in template for mark in marks):
            return speak(template, thinking)
    if CALL in template and "<function=" in template:
        family = "qwen3.6" if "preserve_thinking" in template else "qwen3.5"
        return Speech("qwen_xml", thinking, family if thinking else "")
    if CALL in template:
        # Templates that look for the last query keep only the thinking behind it.
        return Speech("hermes", thinking, "qwen3" if thinking and "last_query_index" in template else "")
    return Speech("hermes", thinking)


def _deepseek(template: str, thinking: bool) -> Speech:
    thinks = THINK in template
    return Speech("deepseek_v3" if "```json" in template else "deepseek", thinks, "deepseek-v3" if thinks else "")


def _dsml(template: str, thinking: bool) -> Speech:
    if "function_calls" in template:
        return Speech("deepseek_v32", True, "deepseek-v3.2")
    return Speech("deepseek_v4", True, "deepseek-v4")


def _kimi(template: str, thinking: bool) -> Speech:
    keeps = "preserve_thinking" in template
    return Speech(
        "kimi", THINK in template, ("kimi-k2.6" if keeps else "kimi-k2") if THINK in template else "", ("<|im_end|>",)
    )


def _kimi_k3(template: str, thinking: bool) -> Speech:
    return Speech("kimi_k3", True, "kimi-k3", ends=("<|end_of_msg|>",))


def _glm(template: str, thinking: bool) -> Speech:
    dialect = "glm_47" if "</arg_key><arg_value>" in template else "glm"
    return Speech(dialect, thinking, "glm-4.x" if thinking else "", ends=("<|user|>", "<|observation|>"))


def _minimax(template: str, thinking: bool) -> Speech:
    return Speech("minimax", True, "minimax-m2", ends=("[e~[",))


def _mistral(template: str, thinking: bool) -> Speech:
    named = "[ARGS]" in template
    return Speech("mistral" if named else "mistral_json", "[THINK]" in template or (thinking and not named))


def _llama(template: str, thinking: bool) -> Speech:
    return Speech("llama", thinking, ends=("<|eot_id|>", "<|eom_id|>"))


# Marks of a call that no other syntax has.
_OWN_MARKS = (
    (("｜DSML｜", "invoke"), _dsml),
    (("<｜tool▁call▁begin｜>",), _deepseek),
    (("<|open|>", "<|sep|>"), _kimi_k3),
    (("<|tool_call_begin|>",), _kimi),
    (("<arg_key>",), _glm),
    (("<minimax:tool_call>", "<invoke name="), _minimax),
    (("[TOOL_CALLS]",), _mistral),
    (("<|python_tag|>",), _llama),
    (("<|start_header_id|>", '"parameters": '), _llama),
)
