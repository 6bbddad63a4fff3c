"""A turn as the model would write it, for scripts: the answer's text with its control tokens told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.prompt.conversation import Block, Text, Thinking, ToolCall
from engine.prompt.dialects.contract import Dialect, full_name, pieces


def spell(
    blocks: Sequence[Block], dialect: Dialect, thinking_open: bool, control: Mapping[str, int]
) -> list[list[tuple[str, bool]]]:
    """A turn as the model would generate it, without the end: for each run of text its (piece, is a control token).

    Reasoning comes first, whatever its place among the blocks, because models reason before they answer.
    """

    runs: list[list[tuple[str, bool]]] = []
    marks, layout = dialect.markers["thinking"], dialect.layout
    reasoning = "\n".join(block.text for block in blocks if isinstance(block, Thinking) and not block.opaque)
    if reasoning or thinking_open:
        before, behind = layout.thinking
        opening = [] if thinking_open else pieces(marks.open + before, control)
        runs += [[*opening, (reasoning + behind, False), *pieces(marks.close, control)], pieces(layout.answer, control)]
    calls = dialect.markers["tool_call"]
    answered = False
    for block in blocks:
        if isinstance(block, Text) and block.text:
            runs.append([*pieces(layout.text, control), (block.text, False)])
        elif isinstance(block, ToolCall):
            name = full_name(block.namespace, block.name)
            head, body = dialect.call_head(name), dialect.call_body(name, block.arguments or "{}")
            runs += [pieces(layout.between, control)] if answered else []
            start = pieces(layout.call + calls.open + head, control)
            runs.append([*start, (body[len(head) :], False), *pieces(calls.close, control)])
        else:
            continue
        answered = True
    return runs
