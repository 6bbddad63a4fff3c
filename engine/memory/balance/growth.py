"""How conversations grow: what each will need by the end of its next turn, and whether there will be one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.memory.balance.view import Line

WEIGHT = 0.3  # of the newest turn in running means
FIRST_GROWTH = 1024.0  # tokens of a turn, before one was seen
FIRST_STEPS = 200.0  # tokens of an answer
FIRST_GAP_S = 60.0  # from the end of a turn of a conversation to the end of the next one
LEAST_GAP_S = 1.0
PATIENCE_TURNS = (
    3.0  # after so many turns of others a line is still expected; then, the longer it rests, the longer it will
)
PATIENCE = 30.0  # the same in its own usual gaps
DONE = 0.002  # how likely a thread that has handed over its result goes on in one turn's time
MOST_LINES = 64  # of which the longest unused is forgotten first


@dataclass(slots=True)
class _Seen:
    born: int  # lines are numbered as they come
    tokens: int
    used_s: float
    used_turn: int
    growth: float | None = None  # None: no second turn yet
    gap_s: float = FIRST_GAP_S
    done: bool = False
    returned: bool = False  # it was thought to be done, and went on


class Growth:
    """Told when each turn of a conversation ends. `line` names a conversation, "<session>" or "<session>/<thread>"; "" is not
    remembered. A thread is done once a conversation of its session that was there before it goes on without it."""

    def __init__(self) -> None:
        self.steps_per_turn = FIRST_STEPS
        self._seen: dict[str, _Seen] = {}  # least recently used first
        self._born = self._turns = 0

    def ended(self, line: str, tokens: int, output_tokens: int, now_s: float) -> None:
        """A request of `line` is over; `tokens` of it, prompt and answer, are cached."""
        if output_tokens > 0:
            self.steps_per_turn += WEIGHT * (output_tokens - self.steps_per_turn)
        self._turns += 1
        if not line:
            return
        seen = self._seen.pop(line, None)
        if seen is None:
            self._born += 1
            seen = _Seen(self._born, tokens, now_s, self._turns)
        else:
            grown = max(0, tokens - seen.tokens)
            seen.growth = grown if seen.growth is None else seen.growth + WEIGHT * (grown - seen.growth)
            seen.gap_s += WEIGHT * (max(0.0, now_s - seen.used_s) - seen.gap_s)
            seen.tokens, seen.used_s, seen.used_turn = tokens, now_s, self._turns
            seen.returned, seen.done = seen.returned or seen.done, False
        self._seen[line] = seen
        self._hand_over(line, seen)
        while len(self._seen) > MOST_LINES:
            del self._seen[next(iter(self._seen))]

    def lines(self, now_s: float, running: Mapping[str, int]) -> tuple[Line, ...]:
        """Every conversation remembered; `running` are the tokens that lines in a step or in the queue have by now."""
        made = [
            Line(max(tokens, self._tokens(line)), self._growth(line), 1.0, running=True)
            for line, tokens in running.items()
        ]
        for line in running:
            if line in self._seen:
                self._hand_over(line, self._seen[line])
        for line, seen in self._seen.items():
            if line not in running:
                made.append(Line(seen.tokens, self._growth(line), self._reuse(seen, now_s)))
        return tuple(made)

    def _hand_over(self, line: str, seen: _Seen) -> None:
        session = line.partition("/")[0]
        for other, thread in self._seen.items():
            if "/" in other and other.partition("/")[0] == session and thread.born > seen.born:
                thread.done = not thread.returned

    def _reuse(self, seen: _Seen, now_s: float) -> float:
        if seen.done:
            return DONE
        rested_s, expected_s = max(0.0, now_s - seen.used_s), PATIENCE * max(LEAST_GAP_S, seen.gap_s)
        by_turns = PATIENCE_TURNS / max(PATIENCE_TURNS, 1 + self._turns - seen.used_turn)
        return min(by_turns, expected_s / max(expected_s, rested_s))

    def _tokens(self, line: str) -> int:
        return self._seen[line].tokens if line in self._seen else 0

    def _growth(self, line: str) -> float:
        growth = self._seen[line].growth if line in self._seen else None
        return FIRST_GROWTH if growth is None else growth
