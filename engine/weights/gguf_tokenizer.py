"""A `tokenizers` tokenizer from GGUF metadata: byte-level BPE as GPT-2 has it, with the model's pre-tokenizer, or SentencePiece's
BPE as Llama 2 and Mixtral have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from engine.errors import Unsupported, WeightsError

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4


def build_tokenizer(metadata: dict[str, Any], file: Path | str = "The GGUF file") -> Tokenizer:
    """The tokenizer described by `tokenizer.ggml.*`. Control tokens are special, each a single id.

    Raises Unsupported for other vocabularies, and for a pre-tokenizer not known here; WeightsError naming `file` for lists that
    contradict each other.
    """
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "default")
    if kind != "llama" and not (kind == "gpt2" and isinstance(pre, str) and pre in _PRE_TOKENIZERS):
        raise Unsupported(
            f"The GGUF tokenizer {kind!r} with pre-tokenizer {pre!r} cannot be rebuilt here.",
            "Import the Hugging Face directory of the model, which has tokenizer.json.",
        )
    if fault := _fault(metadata, "merges" if kind == "gpt2" else "scores"):
        raise WeightsError(f"{file}: {fault}.", "Get the file again from its source.")
    tokens = metadata["tokenizer.ggml.tokens"]
    tokenizer = _sentencepiece(metadata) if kind == "llama" else _byte_level(metadata, pre)
    kinds = metadata.get("tokenizer.ggml.token_type", [_NORMAL] * len(tokens))
    tokenizer.add_special_tokens(
        [_added(token, special=True) for token, k in zip(tokens, kinds, strict=True) if k == _CONTROL]
    )
    tokenizer.add_tokens(
        [_added(token, special=False) for token, k in zip(tokens, kinds, strict=True) if k == _USER_DEFINED]
    )
    return tokenizer


def _fault(metadata: dict[str, Any], order: str) -> str:
    """What is wrong with the vocabulary or what puts it together, its merges or scores; "" if nothing."""
    prefix = "tokenizer.ggml"
    for key in ("tokens", order):
        if not isinstance(metadata.get(f"{prefix}.{key}"), list):
            return f"{prefix}.{key} is missing or no list"
    tokens, ranks = metadata[f"{prefix}.tokens"], metadata[f"{prefix}.{order}"]
    if not tokens or not all(isinstance(token, str) for token in tokens):
        return f"{prefix}.tokens is empty or holds something else than texts"
    beside = {"token_type": metadata.get(f"{prefix}.token_type"), **({"scores": ranks} if order == "scores" else {})}
    for key, values in beside.items():
        if values is not None and not (
            isinstance(values, list)
            and len(values) == len(tokens)
            and all(type(value) in (int, float) for value in values)
        ):
            return f"{prefix}.{key} does not have a number for each of the {len(tokens)} tokens"
    unknown = metadata.get(f"{prefix}.unknown_token_id", 0)
    if type(unknown) is not int or not 0 <= unknown < len(tokens):
        return f"{prefix}.unknown_token_id is {unknown!r}, and there are {len(tokens)} tokens"
    known = set(tokens)
    for merge in ranks if order == "merges" else ():
        parts = merge.split(" ") if isinstance(merge, str) else []
        if len(parts) != 2 or not known.issuperset((*parts, "".join(parts))):
            return f"{prefix}.merges has {merge!r}, whose parts or whole are not in the vocabulary"
    return ""


def _byte_level(metadata: dict[str, Any], pre: str) -> Tokenizer:
    vocabulary = {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    pairs = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    ignore_merges = pre in _WHOLE_WORDS_FIRST
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, fuse_unk=False, ignore_merges=ignore_merges))
    if pre in _NFC:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(_PRE_TOKENIZERS[pre]())
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(metadata: dict[str, Any]) -> Tokenizer:
    """Pieces join in the order of their scores, a space is written as U+2581, and what has no piece is spelled in bytes."""
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = _merges(vocabulary, dict(zip(tokens, scores, strict=True)))
    unknown = tokens[metadata.get("tokenizer.ggml.unknown_token_id", 0)]
    bpe = models.BPE(vocab=vocabulary, merges=merges, fuse_unk=True, byte_fallback=True, unk_token=unknown)
    tokenizer = Tokenizer(bpe)
    prefix = [normalizers.Prepend(_SPACE)] if metadata.get("tokenizer.ggml.add_space_prefix", True) else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", _SPACE)])
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return tokenizer


def _merges(vocabulary: dict[str, int], scores: dict[str, float]) -> list[tuple[str, str]]:
    """Every way to put a piece together from two others, best pieces first."""
    found: list[tuple[float, int, int, str, str]] = []
    for piece, score in scores.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                found.append((-score, vocabulary[left], vocabulary[right], left, right))
    found.sort(key=lambda merge: merge[0])
    return [(left, right) for _, _, _, left, right in found]


def add_special_tokens(tokenizer: Tokenizer, tokens: list[str]) -> None:
    """Append `tokens` as special ones, each a single new id. Mutates `tokenizer`."""
    tokenizer.add_special_tokens([_added(token, special=True) for token in tokens])


def _added(token: str, special: bool) -> AddedToken:
    return AddedToken(token, special=special, normalized=False)


_SPACE = "\u2581"


def _split(pattern: str) -> list[Any]:
    cut = pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)
    return [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)]


def _gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_REST}"
)
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}"
)
_PRE_TOKENIZERS = {
    "smollm": lambda: [pre_tokenizers.Digits(individual_digits=True), _gpt2()],
    "gpt-2": lambda: [_gpt2()],
    "qwen2": lambda: _split(_QWEN2),
    "qwen35": lambda: _split(_QWEN35),
    "llama-bpe": lambda: _split(_LLAMA3),
    "gpt-4o": lambda: _split(_O200K),
}
_NFC = frozenset({"qwen2", "qwen35"})
_WHOLE_WORDS_FIRST = frozenset({"llama-bpe"})
