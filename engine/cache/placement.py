"""Where a request's prefill snapshots the recurrent state."""

from __future__ import annotations

from collections.abc import Iterable

from engine.cache.claims import WEIGHTS, within_quota
from engine.cache.radix import Match
from engine.protocol import EditPoint


def snapshots(
    match: Match, prompt_tokens: int, edit_points: Iterable[EditPoint], grid: int = 1, ends: bool = True
) -> list[tuple[int, str]]:
    """(position, kind) to snapshot while computing [match.resume_at, prompt_tokens), ascending, one kind per position.

    Edit points that the resume skips, that are checkpointed already or over their quota are left out; the heaviest kind
    wins a position.
    Positions are moved down to the `grid`. Without a declared prompt end, the one before the last token is one, so that
    the same prompt sent again computes one token; not so for a beginning of a prompt (`ends` false). Where the prompt leaves what is cached at an undeclared place, that
    place is one too: whoever forked there once will do so again.
    """
    wanted = [(point.position, point.kind) for point in within_quota(edit_points)]
    if ends and not any(kind == "prompt" for _, kind in wanted):
        wanted.append((prompt_tokens - 1, "prompt"))
    if match.forks:
        wanted.append((match.tokens, "live"))
    present = {checkpoint.position for checkpoint in match.line}
    kinds: dict[int, str] = {}
    for position, kind in wanted:
        on_grid = position // grid * grid
        if match.resume_at < on_grid <= prompt_tokens and on_grid not in present:
            kinds[on_grid] = max(kind, kinds.get(on_grid, kind), key=WEIGHTS.__getitem__)
    return sorted(kinds.items())
