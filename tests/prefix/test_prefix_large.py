"""Prompts of which nine tenths stay as they are and the tail changes, up to the largest windows."""

import pytest

from engine.bench.bound import on_demand
from engine.bench.scenarios import Ask
from engine.bench.simulate import CHECKPOINTS, Machine, simulate
from engine.bench.toy import BASH, FRAME, GENERATION, HEAD, Words, language
from engine.prompt.conversation import Conversation, Message, Text
from engine.prompt.edits.policy import EditPolicy

WINDOW = 262_144
SIZES = [23_000, 112_000, 258_000]
REQUESTS = 3


def asks(tokens: int, exchanges: int, tail: int):
    """A system text and `exchanges` older messages, static; the last message is another one each time."""
    words = Words(1)
    system = (tokens - tail) // (exchanges + 1)
    messages = [Message("system", (Text(words.text(system - HEAD)),))]
    each = (tokens - tail - system) // max(1, exchanges)
    for i in range(exchanges):
        messages.append(Message("assistant" if i % 2 else "user", (Text(words.text(each - FRAME)),)))
    for _ in range(REQUESTS):
        last = Message("user", (Text(words.text(tail - FRAME - GENERATION)),))
        yield Ask(Conversation((*messages, last), (BASH,)), (Text("yes"),), tail)


@pytest.mark.parametrize(
    ("exchanges", "grid"), [(0, 1), (6, 1), (6, 64)], ids=["system text", "conversation", "conversation on a grid"]
)
@pytest.mark.parametrize("tokens", SIZES)
def test_case_33_the_tail_is_all_that_is_computed_again(tokens, exchanges, grid):
    tail = tokens // 10
    made = language()
    undeclared = EditPolicy.compose(None, made.template)
    result = simulate(asks(tokens, exchanges, tail), made, undeclared, Machine(grid=grid), window=WINDOW)
    assert all(abs(len(s.prompt) - tokens) <= exchanges + 1 for s in result.served)
    bounds = on_demand([s.prompt for s in result.served], [s.reply for s in result.served])
    over = [len(s.prompt) - s.cached - bound for s, bound in zip(result.served, bounds, strict=True)]
    assert all(0 <= more < grid for more in over), over
    assert all(bound <= tail for bound in bounds[1:]) and result.live <= CHECKPOINTS
