"""The shortest way we know from any point of a constrained answer to its end."""

from __future__ import annotations

from collections.abc import Sequence

from llguidance import LLMatcher, LLTokenizer

LONGEST_END = 256
# A token taken freely can lengthen the way by what it opens: a property with an object that has required ones.
SPARE = 40
_IN_TEXT, _BETWEEN = '"}]', '}]"0'


def way_out(matcher: LLMatcher, tokenizer: LLTokenizer, control: Sequence[int], ends: Sequence[str] = ()) -> list[int]:
    """Tokens that complete the answer: strings are closed, lists and objects end, what is required is as short as can be.

    `control` are the control tokens of the grammar, which are taken wherever they may come; `ends` what ends its free texts. Empty when no end is found
    within LONGEST_END tokens, or when the answer may already end. Leaves `matcher` as it is.
    """
    copy, way = matcher.deep_copy(), list[int]()
    ids = {mark: tokenizer.tokenize_str(mark)[0] for mark in {*_IN_TEXT, *_BETWEEN, "?", "\n"}}
    while not copy.is_stopped() and not copy.is_accepting():
        if len(way) >= LONGEST_END:
            return []
        step = copy.compute_ff_tokens()
        if not step:
            mask = bytes(copy.compute_bitmask())
            # No string of JSON has a raw line break, and no syntax a question mark.
            step = _end_text(copy, tokenizer, control, ends) if _may(mask, ids["?"]) and _may(mask, ids["\n"]) else []
            step = step or [_choose(mask, ids, control)]
        if step[0] < 0 or copy.try_consume_tokens(step) != len(step):
            return []
        way += step
    return way


def _end_text(matcher: LLMatcher, tokenizer: LLTokenizer, control: Sequence[int], ends: Sequence[str]) -> list[int]:
    """Tokens that end the free text the matcher is in; empty when none of `ends` does or a control token already may."""
    if any(_may(bytes(matcher.compute_bitmask()), token) for token in control):
        return []
    # A part of an end may stand there already.
    for tail in (end[start:] for end in ends for start in reversed(range(len(end)))):
        copy, way = matcher.deep_copy(), list[int](tokenizer.tokenize_str(tail))
        if copy.try_consume_tokens(way) != len(way):
            continue
        mask = bytes(copy.compute_bitmask())
        if any(_may(mask, token) for token in control) or not _may(mask, tokenizer.tokenize_str("?")[0]):
            return way
    return []


def _may(mask: bytes, token: int) -> bool:
    return bool(mask[token // 8] >> token % 8 & 1)


def _choose(mask: bytes, ids: dict[str, int], control: Sequence[int]) -> int:
    """One allowed token, -1 when there is none. The highest ids are the longest pieces of what is spelled out."""

    marks = _IN_TEXT if _may(mask, ids["?"]) else _BETWEEN  # no syntax of JSON has a question mark
    wanted = [*control, *(ids[mark] for mark in marks)]
    found = next((token for token in wanted if _may(mask, token)), -1)
    if found < 0 and (last := len(mask.rstrip(b"\0"))):
        found = 8 * (last - 1) + mask[last - 1].bit_length() - 1
    return found
