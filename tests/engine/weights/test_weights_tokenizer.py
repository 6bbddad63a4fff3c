"""The tokenizer rebuilt from GGUF metadata, against transformers' own conversion and known facts."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from engine.errors import Unsupported
from engine.weights.gguf import GgufSource
from engine.weights.gguf_tokenizer import add_special_tokens, build_tokenizer
from engine.weights.wheel import smollm2_gguf

TEXTS = [
    "The capital of France is",
    "don't I'LL you're\t\r\n  end  ",
    "def f(x):\n    return {'a': [x, -x]}  # naïve\n\n\n",
    "héllo 世界 🎉👩‍👩‍👧 עברית العربية ½ Ⅷ",
    "<|im_start|>user\nhi<|im_end|>\n",
    "   leading and trailing   ",
    "",
]


@pytest.fixture(scope="module")
def metadata() -> dict[str, Any]:
    with smollm2_gguf() as path:
        return GgufSource(path).metadata


@pytest.fixture(scope="module")
def tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    return build_tokenizer(metadata)


@pytest.fixture(scope="module")
def theirs(metadata: dict[str, Any]) -> Tokenizer:
    """transformers' conversion. It leaves out smollm's rule that every digit stands alone."""
    from transformers.integrations.gguf import convert_gguf_tokenizer

    described = {key: metadata[f"tokenizer.ggml.{key}"] for key in ("tokens", "merges", "token_type")}
    described |= {"tokenizer_type": "gpt2", "pre_tokenizer_type": metadata["tokenizer.ggml.pre"]}
    converted: Tokenizer = convert_gguf_tokenizer("llama", described)[0]
    return converted


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def test_ids_equal_transformers(tokenizer: Tokenizer, theirs: Tokenizer) -> None:
    # Cutting by hand around each digit gives transformers' conversion the rule it leaves out.
    for text in [*TEXTS, "a  b\n\n 12345 x=42;", "v1.0.9 (2024-11-02) 0x7f 3,141.59", "1 2  3\n4"]:
        pieces = [piece for piece in re.split(r"([0-9½Ⅷ])", text) if piece]
        expected = [i for piece in pieces for i in _ids(theirs, piece)]
        assert _ids(tokenizer, text) == expected, text


# The published vocabulary has no token for these; its own tokenizer drops them as well.
_UNWRITABLE = "\x04\x06\x13\x14\x16\x1d"
_WRITABLE = st.characters(max_codepoint=0x3FFFF, exclude_characters=_UNWRITABLE, exclude_categories=["Cs"])


@given(st.text(_WRITABLE, max_size=60))
def test_text_survives(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(_ids(tokenizer, text), skip_special_tokens=False) == text


def test_known_facts(tokenizer: Tokenizer) -> None:
    assert tokenizer.get_vocab_size() == 49152
    assert _ids(tokenizer, "<|im_start|>") == [1]
    assert _ids(tokenizer, "<|im_end|>") == [2]
    assert _ids(tokenizer, "x<|endoftext|>y")[1] == 0
    assert tokenizer.decode([1, 2]) == ""
    assert len(_ids(tokenizer, "12345")) == 5
    assert _ids(Tokenizer.from_str(tokenizer.to_str()), TEXTS[3]) == _ids(tokenizer, TEXTS[3])


def test_characters_without_a_token_never_become_a_control_token(tokenizer: Tokenizer, theirs: Tokenizer) -> None:
    for character in [*_UNWRITABLE, "\U00050000"]:
        ids = _ids(tokenizer, f"a{character}b")
        assert ids == _ids(theirs, f"a{character}b")
        assert min(ids) > 16


def test_added_tokens_are_single_ids(metadata: dict[str, Any]) -> None:
    tokenizer = build_tokenizer(metadata)
    before = _ids(tokenizer, "plain text")
    add_special_tokens(tokenizer, ["<think>", "</think>"])
    assert _ids(tokenizer, "a<think>\nb</think>")[1] == 49152
    assert _ids(tokenizer, "a<think>\nb</think>")[-1] == 49153
    assert _ids(tokenizer, "plain text") == before


def test_other_vocabularies_are_refused(metadata: dict[str, Any]) -> None:
    for change in ({"tokenizer.ggml.model": "bert"}, {"tokenizer.ggml.pre": "unheard-of"}):
        with pytest.raises(Unsupported, match="cannot be rebuilt"):
            build_tokenizer({**metadata, **change})


@pytest.fixture(scope="module")
def rebuilt(metadata: dict[str, Any]) -> Any:
    """A tokenizer of the published vocabulary cut by another model's pre-tokenizer, and transformers' own of the same."""

    def build(pre: str) -> tuple[Tokenizer, Tokenizer]:
        from transformers.integrations.gguf import convert_gguf_tokenizer
        from transformers.models.qwen2 import Qwen2Tokenizer
        from transformers.models.qwen3_5 import Qwen3_5Tokenizer

        described = {key: metadata[f"tokenizer.ggml.{key}"] for key in ("tokens", "merges", "token_type")}
        described |= {"tokenizer_type": "gpt2", "pre_tokenizer_type": pre}
        theirs: Tokenizer = convert_gguf_tokenizer("llama", described)[0]
        if original := {"qwen2": Qwen2Tokenizer, "qwen35": Qwen3_5Tokenizer}.get(pre):
            vocabulary = {token: i for i, token in enumerate(described["tokens"])}
            merges = [tuple(merge.split(" ")) for merge in described["merges"]]
            own = original(vocab=vocabulary, merges=merges).backend_tokenizer
            theirs.normalizer, theirs.pre_tokenizer = own.normalizer, own.pre_tokenizer
        return build_tokenizer({**metadata, "tokenizer.ggml.pre": pre}), theirs

    return build


MORE_TEXTS = [
    *TEXTS,
    "12345 3,141.59 v1.0.9 0x7f",
    "HelloWorld camelCase XMLHttpRequest I'LL they'RE 'tis",
    "a/b\n/c//d\r\n\r\n  x",
    "e\u0301te\u0301 \u0e01\u0e33 \u0915\u094d\u0937 \u212b",
]


@pytest.mark.parametrize("pre", ["qwen2", "qwen35", "llama-bpe", "gpt-4o"])
def test_other_pre_tokenizers_cut_as_their_models_do(rebuilt: Any, pre: str) -> None:
    ours, theirs = rebuilt(pre)
    if pre == "llama-bpe":
        theirs.model.ignore_merges = True
    for text in MORE_TEXTS:
        assert _ids(ours, text) == _ids(theirs, text), text
    different = [text for text in MORE_TEXTS if _ids(ours, text) != _ids(rebuilt("gpt-2")[0], text)]
    assert different, "the texts do not tell this pre-tokenizer from GPT-2's"


def test_sentencepiece_vocabularies_are_rebuilt_from_their_scores() -> None:
    from tokenizers import SentencePieceBPETokenizer
    from transformers.integrations.gguf import convert_gguf_tokenizer

    trained = SentencePieceBPETokenizer()
    text = [*MORE_TEXTS, "the cat sat on the mat and the other cats chatted", "def test(self): return self.test"] * 3
    trained.train_from_iterator(text, vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"])
    pieces = sorted(trained.get_vocab(), key=trained.get_vocab().__getitem__)
    byte_tokens = [f"<0x{value:02X}>" for value in range(256)]
    tokens = [*pieces[:3], *byte_tokens, *pieces[3:]]
    scores = [0.0] * 259 + [float(-i) for i in range(len(pieces) - 3)]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(pieces) - 3)
    described = {"tokens": tokens, "scores": scores, "token_type": kinds, "tokenizer_type": "llama"}
    # transformers' Llama tokenizer leaves out the prefix before a leading space, which SentencePiece does not.
    theirs = convert_gguf_tokenizer("phi3", described)[0]
    ours = build_tokenizer(
        {f"tokenizer.ggml.{key}": value for key, value in described.items()} | {"tokenizer.ggml.model": "llama"}
    )
    for sample in [*MORE_TEXTS, "the cats", "  two  spaces", "\u4f60\u597d <s> </s>"]:
        assert _ids(ours, sample) == _ids(theirs, sample), sample
        assert ours.decode(_ids(ours, sample), skip_special_tokens=False) == theirs.decode(
            _ids(theirs, sample), skip_special_tokens=False
        )
    assert _ids(ours, "<s>x</s>")[0] == 1
