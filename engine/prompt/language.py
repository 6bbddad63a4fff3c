"""A model's language: its tokenizer, chat template and output syntax behind one object. The front's only door to them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.errors import BadRequest, FtError
from engine.prompt import grammar
from engine.prompt.conversation import Block, Conversation, Message, Prompt, Text, Thinking, ToolCall, ToolResult
from engine.prompt.dialects import find
from engine.prompt.dialects.contract import Dialect
from engine.prompt.echo import EchoMemory
from engine.prompt.edits import template as templates
from engine.prompt.edits.places import shared
from engine.prompt.edits.turn import Prediction
from engine.prompt.output import OutputParser
from engine.prompt.render import Renderer
from engine.prompt.spell import spell
from engine.prompt.spelling import Spelling
from engine.prompt.template import ChatTemplate
from engine.prompt.tokenizer import Tokenizer, TokenStream
from engine.weights.manifest import load_manifest, remedy

_UNKNOWN = "…"
_UNLIKE = (_UNKNOWN, "a", "\n\n")  # texts of which no two start with the same token or join the same one before


class Language:
    """Thread-safe: all mutable parts are bounded caches that never change a result's meaning.

    `thinking` says whether the model thinks unless told otherwise; `stop_ids` are its end-of-turn tokens;
    `template` what its chat template does to history.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        dialect: Dialect,
        stop_ids: Sequence[int],
        thinking: bool,
        preserve_thinking: bool = True,
        family: str = "",
    ) -> None:
        self.thinking = thinking
        self.stop_ids = list(stop_ids)
        self._tokenizer = tokenizer
        self._dialect = dialect
        self._echo = EchoMemory(tokenizer, self.stop_ids, dialect.markers)
        ends = [text for token in self.stop_ids if (text := tokenizer.token(token))]
        declared = templates.find(family, thinking)
        self._renderer = Renderer(
            tokenizer, template, dialect, self._echo, ends, thinking, preserve_thinking, declared.switch
        )
        if not self._keeps_thinking():
            declared = replace(declared, switch=None)
        self.template = declared.serving(preserve_thinking, Spelling(self._renderer.render, tokenizer.encode))

    @staticmethod
    def load(model_dir: Path, preserve_thinking: bool = True) -> Language:
        """Read ftw.json, the tokenizer and the chat template of a model folder. Raises FtError naming the bad file.

        `preserve_thinking` asks templates that know the switch to keep the reasoning of earlier turns.
        """
        manifest = load_manifest(model_dir)
        tokenizer = Tokenizer.load(manifest.path(manifest.tokenizer))
        variables = _variables(manifest.path(manifest.config), tokenizer, manifest.eos_token_ids)
        template = ChatTemplate.load(manifest.path(manifest.chat_template), variables)
        return Language(
            tokenizer,
            template,
            find(manifest.dialect),
            manifest.eos_token_ids,
            manifest.thinking,
            preserve_thinking,
            manifest.template_family,
        )

    @property
    def vocab_size(self) -> int:
        """One more than the highest token id."""
        return self._tokenizer.size

    @property
    def longest_token(self) -> int:
        """No token stands for more characters than these."""
        return self._tokenizer.longest

    def _keeps_thinking(self) -> bool:
        """Whether the switch that should keep the thinking of earlier turns does so in this very template."""
        query = Message("user", (Text("q"),))
        answer = Message("assistant", (Thinking("t"), Text("a")))
        try:
            prompt = self.render(Conversation((query, answer, query), preserve_thinking=True))
        except BadRequest:
            return False
        return any(span.kind == "thinking" for span in prompt.spans)

    def render(self, conversation: Conversation) -> Prompt:
        """Token ids and spans of the next request. Raises BadRequest when the template refuses the conversation."""
        return self._renderer.render(conversation)

    def certain(self, prediction: Prediction) -> list[int]:
        """The tokens of the predicted prompt up to the first unknown one. Raises BadRequest as `render` does.

        What comes next is unknown, but not its kind: with a placeholder of that kind behind the known part, the
        template makes its own edits, such as dropping the thinking of earlier turns.
        """
        if not prediction.expects:
            prompt = self.render(prediction.conversation)
            return prompt.tokens[: max((span.end for span in prompt.spans if span.block >= 0), default=0)]
        if not prediction.begins:
            prompt, start = self._next(prediction, _UNKNOWN)
            return prompt.tokens[:start]
        begins = prediction.begins.rstrip(" ")  # a space joins the word behind it
        first, *others = (self._next(prediction, begins + unlike)[0].tokens for unlike in _UNLIKE)
        return first[: min(shared(first, other) for other in others)]

    def _next(self, prediction: Prediction, text: str) -> tuple[Prompt, int]:
        """The predicted prompt with `text` in the place of what comes first behind the known part, and where that starts."""
        known, unknown = prediction.conversation, _placeholder(prediction, text)
        messages = [*known.messages, unknown]
        if known.messages and known.messages[-1].role == unknown.role == "user":
            last = messages[-2]  # the known part ends inside a user message
            messages[-2:] = [Message("user", last.blocks + unknown.blocks)]
        place = (len(messages) - 1, len(messages[-1].blocks) - 1)
        if prediction.then:
            messages.append(Message("user", (Text(_UNKNOWN),)))
        prompt = self.render(replace(known, messages=tuple(messages)))
        starts = (span.start for span in prompt.spans if (span.message, span.block) == place)
        return prompt, next(starts, prompt.end)

    def parser(self, conversation: Conversation) -> OutputParser:
        """A parser for one answer to `conversation`. Without tools, or with tool choice none, tool syntax is text."""
        return self._dialect.parser(
            conversation.tools,
            thinking_open=self._renderer.thinking_open(conversation),
            calls=may_call(conversation),
        )

    def stream(self) -> TokenStream:
        """An incremental detokeniser for one answer."""
        return TokenStream(self._tokenizer, self.stop_ids)

    def grammar(self, conversation: Conversation) -> str | None:
        """The grammar that enforces the conversation's tool choice or response schema; None when anything goes.

        Raises BadRequest for a choice of an unknown tool or a schema feature that cannot be enforced.
        """
        thinking_open = self._renderer.thinking_open(conversation)
        return grammar.compile_grammar(conversation, self._dialect, self._tokenizer.control, thinking_open)

    def script_tokens(self, blocks: Sequence[Block], conversation: Conversation | None = None) -> list[int]:
        """A scripted assistant turn as the model would generate it, ending with the end-of-turn token.

        `conversation` is what it answers; without it, one with the model's default for thinking.
        """
        thinking_open = self._renderer.thinking_open(conversation or Conversation(()))
        runs = spell(blocks, self._dialect, thinking_open, self._tokenizer.control)
        return [token for run in runs for token in self._tokenizer.encode_pieces(run)] + self.stop_ids[:1]

    def remember(
        self, blocks: Sequence[Block], ids: Sequence[int], prompt: Sequence[int] = (), calls: bool = True
    ) -> None:
        """Keep the tokens of a generated turn, so that a history that repeats its blocks renders to the same tokens.

        `blocks` are what the client was sent, with its tool-call ids; `ids` all tokens after the generation prefix;
        `prompt` the tokens of the request, which tell apart turns that say the same; `calls`: it could call tools.
        """
        self._echo.remember(blocks, ids, prompt, calls)

    def encode(self, text: str) -> list[int]:
        """Plain text to ids; control-token syntax in it stays text. Adds no begin or end token."""
        return list(self._tokenizer.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Ids to text, control tokens included."""
        return self._tokenizer.decode(ids)

    def encode_controls(self, text: str) -> list[int]:
        """Ids of text in which control-token syntax is meant: what a model wrote, or a template."""
        return self._tokenizer.encode_pieces(self._tokenizer.split(text))

    def respelled(self, ids: Sequence[int]) -> str:
        """`ids` as text for a tokenizer that takes control-token syntax at its word: where plain text spells a control token, a
        zero-width space breaks the spelling."""
        return self._tokenizer.respelled(ids)


def may_call(conversation: Conversation) -> bool:
    """Whether an answer to it may be a call."""
    return bool(conversation.tools) and conversation.tool_choice.mode != "none"


def _placeholder(prediction: Prediction, text: str) -> Message:
    if prediction.expects == "assistant":
        return Message("assistant", (Text(text),))
    if prediction.expects != "tool_result":
        return Message("user", (Text(text),))
    last = prediction.conversation.messages[-1:]
    calls = [block.id for message in last for block in message.blocks if isinstance(block, ToolCall)]
    return Message("tool", (ToolResult(calls[0] if calls else "", (Text(text),)),))


def _variables(config: Path, tokenizer: Tokenizer, stop_ids: Sequence[int]) -> dict[str, Any]:
    """The token texts that templates refer to by name."""
    try:
        data = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FtError(f"{config} cannot be read as JSON ({error}).", remedy(config.parent)) from None
    data = data if isinstance(data, dict) else {}
    ids = {"bos_token": data.get("bos_token_id"), "eos_token": next(iter(stop_ids), None), "pad_token": None}
    return {name: tokenizer.token(token) or "" if isinstance(token, int) else "" for name, token in ids.items()}
