"""A model's language: its tokenizer, chat template and output syntax behind one object. The front's only door to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.prompt.conversation import Block, Conversation, Prompt
from engine.prompt.output import OutputParser
from engine.prompt.tokenizer import TokenStream
from engine.protocol import EditPoint


class Language:
    """Thread-safe for rendering: all mutable parts are bounded caches that never change a result's meaning."""

    thinking: bool
    stop_ids: list[int]

    @staticmethod
    def load(model_dir: Path) -> Language:
        """Read ftw.json, the tokenizer and the chat template of a model folder. Raises FtError naming the bad file."""
        raise NotImplementedError

    def render(self, conversation: Conversation) -> Prompt:
        """Token ids and spans of the next request. Raises BadRequest when the template refuses the conversation."""
        raise NotImplementedError

    def edit_points(self, conversation: Conversation, prompt: Prompt) -> list[EditPoint]:
        """Positions in `prompt` where the next prompt may diverge, ascending, one per position."""
        raise NotImplementedError

    def parser(self, conversation: Conversation) -> OutputParser:
        """A parser for one answer to `conversation`."""
        raise NotImplementedError

    def stream(self) -> TokenStream:
        """An incremental detokeniser for one answer."""
        raise NotImplementedError

    def grammar(self, conversation: Conversation) -> str | None:
        """The grammar that enforces the conversation's tool choice or response schema; None when anything goes.

        Raises BadRequest for a schema feature that cannot be enforced.
        """
        raise NotImplementedError

    def script_tokens(self, blocks: Sequence[Block]) -> list[int]:
        """A scripted assistant turn as the model would generate it, ending with the end-of-turn token."""
        raise NotImplementedError

    def remember(self, blocks: Sequence[Block], ids: Sequence[int]) -> None:
        """Keep the tokens of a generated turn, so that a history that repeats its blocks renders to the same tokens."""
        raise NotImplementedError

    def encode(self, text: str) -> list[int]:
        """Plain text to ids; control-token syntax in it stays text. Adds no begin or end token."""
        raise NotImplementedError

    def decode(self, ids: Sequence[int]) -> str:
        """Ids to text, control tokens included."""
        raise NotImplementedError
