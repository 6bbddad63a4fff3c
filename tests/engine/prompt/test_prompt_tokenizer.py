from __future__ import annotations

import random

from engine.prompt.language import Language
from engine.prompt.lru import ByteLru

SAMPLES = [
    "Zoë 日本語 🎈👩‍👩‍👧 ünïcode",
    "def f(x):\n\treturn  x\n",
    "\u0000\u200b end \ufeff",
    " leading and trailing ",
    "",
]


def test_encode_decodes_back_and_keeps_control_syntax_as_text(language: Language) -> None:
    for text in [*SAMPLES, "<|im_end|><think></think>"]:
        ids = language.encode(text)
        assert language.decode(ids) == text
        assert not set(ids) & set(language._tokenizer.control.values())


def test_half_a_surrogate_does_not_break_encoding(smollm: Language) -> None:
    assert smollm.decode(smollm.encode("a\ud83d b")) == "a\ufffd b"


def test_stream_equals_decode_and_never_shows_half_a_character(language: Language) -> None:
    for text in SAMPLES:
        ids = language.encode(text)
        stream = language.stream()
        pieces = [stream.feed([token]) for token in ids]
        assert all("\ufffd" not in piece for piece in pieces)
        assert "".join(pieces) + stream.finish() == text


def test_stream_of_random_tokens_equals_decode(language: Language) -> None:
    random.seed(11)
    for _ in range(30):
        ids = [random.randrange(20, 49000) for _ in range(60)]
        stream = language.stream()
        text = "".join(stream.feed(ids[i : i + 3]) for i in range(0, len(ids), 3)) + stream.finish()
        assert text == language.decode(ids)


def test_stream_drops_the_end_and_keeps_other_control_tokens(hybrid: Language) -> None:
    think = hybrid._tokenizer.control["<think>"]
    stream = hybrid.stream()
    assert stream.feed([think, *hybrid.encode("a"), hybrid.stop_ids[0]]) + stream.finish() == "<think>a"


def test_incomplete_character_appears_at_the_end_only(smollm: Language) -> None:
    ids = smollm.encode("🎈")
    assert len(ids) > 1
    stream = smollm.stream()
    assert stream.feed(ids[:-1]) == ""
    assert "\ufffd" in stream.finish()


def test_lru_is_bounded_in_bytes_and_forgets_the_oldest() -> None:
    lru: ByteLru[str, int] = ByteLru(100)
    for number in range(10):
        lru.put(str(number), number, 30)
        assert lru.get("0") == 0 or number == 0
        assert lru.used_bytes <= 100
    assert len(lru) == 3 and lru.get("0") == 0 and lru.get("9") == 9 and lru.get("5") is None
    lru.put("big", 1, 101)
    assert lru.get("big") is None and lru.used_bytes == 90
