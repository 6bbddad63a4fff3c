"""A `tokenizers` tokenizer from GGUF metadata: byte-level BPE as GPT-2 has it, with the model's pre-tokenizer."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engine.errors import Unsupported, WeightsError

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4


def build_tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    """The tokenizer described by `tokenizer.ggml.*`. Control tokens are special, each a single id.

    Raises Unsupported for vocabularies other than byte-level BPE with a pre-tokenizer known here.
    """
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise Unsupported(
            f"The GGUF tokenizer {kind!r} with pre-tokenizer {pre!r} cannot be rebuilt here.",
            "Import the Hugging Face directory of the model, which has tokenizer.json.",
        )
    try:
        tokens, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
    except KeyError as error:
        raise WeightsError(f"The GGUF file lacks {error}.", "Copy the file again from its source.") from error
    vocabulary = {token: i for i, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(_PRE_TOKENIZERS[pre]())
    tokenizer.decoder = decoders.ByteLevel()
    kinds = metadata.get("tokenizer.ggml.token_type", [_NORMAL] * len(tokens))
    tokenizer.add_special_tokens(
        [_added(token, special=True) for token, k in zip(tokens, kinds, strict=True) if k == _CONTROL]
    )
    tokenizer.add_tokens(
        [_added(token, special=False) for token, k in zip(tokens, kinds, strict=True) if k == _USER_DEFINED]
    )
    return tokenizer


def add_special_tokens(tokenizer: Tokenizer, tokens: list[str]) -> None:
    """Append `tokens` as special ones, each a single new id. Mutates `tokenizer`."""
    tokenizer.add_special_tokens([_added(token, special=True) for token in tokens])


def _added(token: str, special: bool) -> AddedToken:
    return AddedToken(token, special=special, normalized=False)


def _byte_level() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)


_PRE_TOKENIZERS = {
    "smollm": lambda: [pre_tokenizers.Digits(individual_digits=True), _byte_level()],
    "gpt-2": lambda: [_byte_level()],
}
