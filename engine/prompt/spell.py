"""A turn as the model would write it, for scripts: the answer's text with its control tokens told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.prompt.conversation import Block, Text, Thinking, ToolCall
from engine.prompt.dialects.contract import Dialect, full_name


def spell(
    blocks: Sequence[Block], dialect: Dialect, thinking_open: bool, control: Mapping[str, int]
) -> list[list[tuple[str, bool]]]:
    """A turn as the model would generate it, without the end: for each run of text its (piece, is a control token).

    Reasoning comes first, whatever its place among the blocks, because models reason before they answer.
    """

    def mark(text: str) -> tuple[str, bool]:
        return text, text in control

    runs: list[list[tuple[str, bool]]] = []
    marks = dialect.markers["thinking"]
    reasoning = "\n".join(block.text for block in blocks if isinstance(block, Thinking) and not block.opaque)
    if reasoning or thinking_open:
        opening = [] if thinking_open else [mark(marks.open), ("\n", False)]
        runs += [[*opening, (reasoning + "\n", False), mark(marks.close)], [("\n\n", False)]]
    calls = dialect.markers["tool_call"]
    answered = False
    for block in blocks:
        if isinstance(block, Text) and block.text:
            runs.append([(block.text, False)])
        elif isinstance(block, ToolCall):
            body = dialect.call_body(full_name(block.namespace, block.name), block.arguments or "{}")
            runs += [[("\n", False)]] if answered else []
            runs.append([mark(calls.open), (body, False), mark(calls.close)])
        else:
            continue
        answered = True
    return runs
