"""Text to ids and back. Two views of one tokenizer: control tokens on for template text, off for everybody else's."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from tokenizers import Tokenizer as HfTokenizer

from engine.errors import FtError
from engine.prompt.lru import ByteLru
from engine.weights.manifest import remedy

_CACHE_BYTES = 256 << 20
_REPLACEMENT = "\ufffd"
_BREAK = "\u200b"


class Tokenizer:
    """`control` maps the text of every control token to its id, `size` is one more than the highest id, and no token stands
    for more than `longest` characters. Encoding never adds begin or end tokens.

    Added tokens that are only whitespace are no control tokens: they are how the model spells indentation.
    """

    def __init__(self, data: str) -> None:
        self._full = HfTokenizer.from_str(data)
        parsed = json.loads(data)
        added = parsed.get("added_tokens") or []
        self.control: dict[str, int] = {t["content"]: t["id"] for t in added if t["content"].strip()}
        parsed["added_tokens"] = [t for t in added if not t["content"].strip()]
        self._plain = HfTokenizer.from_str(json.dumps(parsed))
        longest_first = sorted(self.control, key=len, reverse=True)
        vocabulary = self._full.get_vocab()
        self.size = 1 + max(vocabulary.values(), default=-1)
        self.longest = max(map(len, vocabulary), default=1)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        self._cache: ByteLru[str, list[int]] = ByteLru(_CACHE_BYTES)

    @staticmethod
    def load(path: Path) -> Tokenizer:
        """Raises FtError naming the file when it is missing or no tokenizer."""
        try:
            return Tokenizer(path.read_text(encoding="utf-8"))
        except Exception as error:  # the tokenizers library raises bare Exception
            raise FtError(
                f"{path} cannot be read as a tokenizer ({_first_line(error)}).", remedy(path.parent)
            ) from None

    def encode(self, text: str) -> list[int]:
        """Ids of `text` as plain text: `<|im_start|>` and the like are spelled out. Do not mutate the result."""
        if not text:
            return []
        ids = self._cache.get(text)
        if ids is None:
            # Of the library's ways to encode, only this one lets other threads run meanwhile.
            ids = self._plain.encode_batch_fast([_encodable(text)], add_special_tokens=False)[0].ids
            self._cache.put(text, ids, 2 * len(text) + 36 * len(ids) + 200)
        return ids

    def split(self, text: str) -> list[tuple[str, bool]]:
        """Cut template text into (piece, is a control token)."""
        if self._pattern is None:
            return [(text, False)] if text else []
        pieces: list[tuple[str, bool]] = []
        position = 0
        for match in self._pattern.finditer(text):
            if match.start() > position:
                pieces.append((text[position : match.start()], False))
            pieces.append((match.group(), True))
            position = match.end()
        if position < len(text):
            pieces.append((text[position:], False))
        return pieces

    def has_control(self, text: str) -> bool:
        return self._pattern is not None and self._pattern.search(text) is not None

    def encode_pieces(self, pieces: Sequence[tuple[str, bool]]) -> list[int]:
        """Ids of (text, is a control token) pieces; neighbouring plain pieces are tokenised as one text."""
        ids: list[int] = []
        plain: list[str] = []
        for text, control in pieces:
            if control:
                ids += self.encode("".join(plain))
                plain.clear()
                ids.append(self.control[text])
            else:
                plain.append(text)
        return ids + self.encode("".join(plain))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, control tokens included."""
        return str(self._full.decode(list(ids), skip_special_tokens=False))

    def respelled(self, ids: Sequence[int]) -> str:
        """Text of `ids` in which only those that are control tokens read as such; see `Language.respelled`."""
        controls = set(self.control.values())
        text, plain = "", 0
        for position, token in enumerate([*ids, None]):
            if token is not None and token not in controls:
                continue
            run = self.decode(ids[plain:position])
            if self._pattern is not None:
                run = self._pattern.sub(lambda match: match[0][:1] + _BREAK + match[0][1:], run)
            text += run + (self.decode([token]) if token is not None else "")
            plain = position + 1
        return text

    def token(self, token_id: int) -> str | None:
        """The vocabulary entry of one id, or None."""
        value = self._full.id_to_token(token_id)
        return None if value is None else str(value)


class TokenStream:
    """Incremental detokeniser of one answer. Control tokens stay text; the ids in `dropped` give none."""

    def __init__(self, tokenizer: Tokenizer, dropped: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._dropped = frozenset(dropped)
        # Some decoders treat the first token differently, so each piece is decoded behind the previous one.
        self._context: list[int] = []
        self._pending: list[int] = []

    def feed(self, ids: Sequence[int]) -> str:
        """The text that is complete after `ids`; never half a character."""
        text = ""
        for token in ids:
            if token in self._dropped:
                continue
            self._pending.append(token)
            piece = self._piece()
            if piece and not piece.endswith(_REPLACEMENT):
                text += piece
                self._advance()
        return text

    def finish(self) -> str:
        """What is left; bytes that never became a character appear as U+FFFD."""
        piece = self._piece()
        self._advance()
        return piece

    def _piece(self) -> str:
        if not self._pending:
            return ""
        before = self._tokenizer.decode(self._context)
        return self._tokenizer.decode(self._context + self._pending)[len(before) :]

    def _advance(self) -> None:
        self._context, self._pending = self._pending, []


def _encodable(text: str) -> str:
    """JSON can escape half a character; as UTF-8 that becomes U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
