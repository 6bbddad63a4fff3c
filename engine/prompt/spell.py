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
    answered, index = False, 0
    for block, following in zip(blocks, [*blocks[1:], None], strict=False):
        if isinstance(block, Text) and block.text:
            runs.append([*pieces(layout.text, control), (block.text, False)])
        elif isinstance(block, ToolCall):
            name, arguments = full_name(block.namespace, block.name), block.arguments or "{}"
            apart = layout.between if not index or layout.apart is None else layout.apart
            runs += [pieces(apart, control)] if answered else []
            start = pieces(("" if index else layout.calls[0]) + layout.call + calls.open, control)
            behind = "" if isinstance(following, ToolCall) else layout.calls[1]
            body = dialect.call_parts(name, arguments, index)
            index = index + 1 if isinstance(following, ToolCall) else 0
            written = [part for text, own in body for part in (pieces(text, control) if own else [(text, False)])]
            runs.append([*start, *written, *pieces(calls.close + behind, control)])
        else:
            continue
        answered = True
    if layout.end and not any(isinstance(block, ToolCall) for block in blocks[-1:]):
        runs.append(pieces(layout.end, control))
    return runs
