"""A language in which the token count of a text is known by looking at it: every word of three letters is one token.

It goes through the real tokenizer library, template engine and dialect, so that sessions are rendered, remembered and cut
like those of any model.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping
from typing import Any

from engine.prompt.conversation import Block, Tool, ToolCall
from engine.prompt.dialects import find
from engine.prompt.language import Language
from engine.prompt.template import ChatTemplate
from engine.prompt.tokenizer import Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
CONTROL = (
    "<|im_start|>",
    "<|im_end|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
)
FRAME = 3  # tokens around the text of a message: start, role, end
GENERATION = 4  # start, role, <think>, newline
HEAD = 132  # tokens of a system message with `BASH` among them, its text apart
THINK_CLOSE = 4  # newline, </think>, two newlines
SUMMARY_HEAD = "you ran out and all was cut now use the sum you had got for all ask"
CALL_HEAD = '\n{"name": "bash", "arguments": {"command": "'
CALL_TAIL = '"}}\n'
TEMPLATE = """
{%- set ns = namespace(query=-1) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.query = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- set system = messages[0].content if messages[0].role == 'system' else '' -%}
{%- if tools or system -%}
{{- '<|im_start|><|system|>' }}{% for t in tools or [] %}{{ (t | tojson) + '\n' }}{% endfor %}{{ system + '<|im_end|>' }}
{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{{- '<|im_start|><|assistant|>' -}}
{%- if m.reasoning_content and (preserve_thinking or loop.index0 > ns.query) -%}
{{- '<think>\n' + m.reasoning_content + '\n</think>\n\n' -}}
{%- endif -%}
{{- m.content or '' -}}
{%- for c in m.tool_calls or [] -%}
{{- ('\n' if m.content or not loop.first else '') + '<tool_call>\n{"name": ' + (c.function.name | tojson) -}}
{{- ', "arguments": ' + (c.function.arguments | tojson) + '}\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>' -}}
{%- elif not (loop.first and m.role == 'system') -%}
{{- '<|im_start|><|' + m.role + '|>' + m.content + '<|im_end|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|><|assistant|>' + ('' if enable_thinking is defined and not enable_thinking else '<think>\n') -}}
{%- endif -%}
"""
BASH = Tool(
    "bash",
    "Run a command.",
    {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)


def tokenizer() -> Tokenizer:
    """Three letters, with or without a space before them, are one token; so is any other character."""
    words = ["".join(w) for w in itertools.product(LETTERS, repeat=3)]
    entries = [*CONTROL, "?" * 4, *(chr(c) for c in (9, 10, 13, *range(32, 127))), *words, *(f" {w}" for w in words)]
    vocab = {entry: i for i, entry in enumerate(entries)}
    added = [
        {
            "id": vocab[text],
            "content": text,
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for text in CONTROL
    ]
    return Tokenizer(
        json.dumps(
            {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "added_tokens": added,
                "normalizer": None,
                "pre_tokenizer": {
                    "type": "Split",
                    "pattern": {"Regex": r" ?[a-z]{3}|[\s\S]"},
                    "behavior": "Isolated",
                    "invert": False,
                },
                "post_processor": None,
                "decoder": {"type": "Fuse"},
                "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "?" * 4},
            }
        )
    )


def language(preserve_thinking: bool = True, template: str = TEMPLATE) -> Language:
    """`preserve_thinking` False: the template drops the thinking before the last user message."""
    made = tokenizer()
    return Language(
        made,
        ChatTemplate(template, {}),
        find("hermes"),
        [made.control["<|im_end|>"]],
        thinking=True,
        preserve_thinking=preserve_thinking,
        family="chatml-think",
    )


class Words:
    """Texts of exact token counts. The first word of each is its own, so that two texts part at their first token."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311  (filler, not a secret)
        self._firsts = ["".join(w) for w in itertools.product(LETTERS, repeat=3)]
        self._random.shuffle(self._firsts)

    def text(self, tokens: int) -> str:
        """`tokens` words with single spaces."""
        words = ("".join(self._random.choices(LETTERS, k=3)) for _ in range(tokens - 1))
        return " ".join([self._firsts.pop(), *words])

    def call(self, call_id: str, tokens: int) -> ToolCall:
        """A call of bash that takes `tokens` with its markers and the newline before it."""
        used = 3 + len(_pieces(CALL_HEAD)) + len(_pieces(CALL_TAIL))
        arguments: Mapping[str, Any] = {"command": self.text(tokens - used)}
        return ToolCall(call_id, "bash", json.dumps(arguments))


def count(blocks: tuple[Block, ...], made: Language) -> int:
    """Tokens of a reply as the model generates it, with the end of turn."""
    return len(made.script_tokens(blocks))


def _pieces(text: str) -> list[int]:
    return list(_SHARED.encode(text))


_SHARED = tokenizer()
