"""The requests that run and those that have ended, as far as their records tell, within bounds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ftagent.dashboard.model import InFlight, Turn
from ftagent.dashboard.records import Pace, in_flight_of, turn_of

Json = Mapping[str, Any]
TURNS = 512


class Requests:
    """`name_of` a session, by its id."""

    def __init__(self, name_of: Callable[[str], str]) -> None:
        self._name_of = name_of
        self._running: dict[str, Json] = {}
        self._paces: dict[str, Pace] = {}
        self._turns: OrderedDict[str, Turn] = OrderedDict()
        self._lines: OrderedDict[str, None] = OrderedDict()  # seen, newest last
        self.newest: OrderedDict[str, Turn] = OrderedDict()  # finished turn of each session

    @property
    def busy(self) -> bool:
        return bool(self._running)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Oldest first."""
        return tuple(self._turns.values())

    def turn(self, request: str) -> Turn | None:
        return self._turns.get(request)

    def lost(self) -> None:
        """Nothing runs any more, as far as anybody knows."""
        self._running.clear()
        self._paces.clear()

    def record(self, record: Json) -> None:
        """One that is new, or newer than what is known of its request."""
        id_, session = str(record["id"]), str(record.get("session") or "")
        if record.get("end") is None:
            self._running[id_] = record
        else:
            self._running.pop(id_, None)
            self._paces.pop(id_, None)
        line = str(record.get("line"))
        known = self._turns.get(id_)
        first = known.why.endswith("first of its line") if known is not None else line not in self._lines
        self._lines[line] = None
        turn = turn_of(record, self._name_of(session), first)
        self._turns[id_] = turn
        if turn.ended is not None and not turn.side and turn.kind is None:
            self.newest[session] = turn
            self.newest.move_to_end(session)
        for kept in (self._turns, self.newest, self._lines):
            while len(kept) > TURNS:
                kept.popitem(last=False)

    def running(self, told: Iterable[Json], now: float) -> None:
        """All records without an end."""
        self._running = {str(record["id"]): record for record in told}
        for gone in [id_ for id_ in self._paces if id_ not in self._running]:
            del self._paces[gone]
        for id_, record in self._running.items():
            if record.get("prefill_done"):
                self.progress(id_, int(record["prefill_done"]), now)

    def progress(self, request: str, position: int, at: float) -> None:
        """So many tokens of its prompt are there."""
        if request in self._running:
            self._running[request] = {**self._running[request], "prefill_done": position}
            self._pace(request).computed(at, position)

    def wrote(self, told: Sequence[Json], now: float) -> None:
        """`told`: the requests inside the worker, as /v1/stats has them."""
        for one in told:
            record = self._running.get(str(one.get("rid")))
            if record is not None and one.get("decoding") and record.get("prompt_tokens"):
                self._pace(str(one["rid"])).wrote(now, int(one["tokens"]) - int(record["prompt_tokens"]))

    def in_flight(
        self, names: Mapping[str, str], agents: Mapping[str, str | None], now: float, spread: float | None
    ) -> tuple[InFlight, ...]:
        """`names` and `agents` by session id; `spread`: the p95 of forecasts over their median."""
        return tuple(
            in_flight_of(
                record, names.get(str(record.get("session")), ""), agents.get(str(record.get("session"))),
                self._pace(id_), now, spread,
            )
            for id_, record in self._running.items()
        )  # fmt: skip

    def _pace(self, request: str) -> Pace:
        return self._paces.setdefault(request, Pace())
