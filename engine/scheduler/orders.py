"""Memory by hand: the map, what a change would give, and the change itself, as the front asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.errors import BadRequest, NotFound, Unsupported
from engine.memory.balancer import BY_HAND, Balancer
from engine.memory.plan import Plan
from engine.memory.pools import Pools
from engine.memory.presets import share
from engine.memory.report import Now, memory_map, move_answer, side
from engine.memory.split import EXPERTS, KV, Split
from engine.scheduler.balancing import Balancing
from engine.scheduler.moved import Moved
from engine.scheduler.request import Request

CURVE_POINTS = 40
AGAIN = "set by hand, before the worker was restarted"

Answer = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for: sizes to pin (None: not pinned), and the slabs to share out; `why` is told of the move."""

    kv_tokens: int | None
    slots: int | None
    budget: int
    preset: str
    why: str = BY_HAND


class Orders:
    """Called from the loop, between steps. `answer` sends a message to the front; `running` are the requests inside, `process`
    what the worker holds, `resident` how many experts lie in slots, `picture` which, and how much each is used; `anchors` does
    with saved states what a person asks for."""

    def __init__(
        self,
        plan: Plan,
        pools: Pools,
        memory: Balancing,
        answer: Answer,
        running: Callable[[], Iterable[Request]],
        process: Callable[[], Mapping[str, Any]] = dict,
        resident: Callable[[], int] = lambda: 0,
        picture: Callable[[], list[dict[str, Any]]] = list,
        anchors: Callable[[Mapping[str, Any]], dict[str, Any]] = dict,
    ) -> None:
        self._plan, self._pools, self._memory = plan, pools, memory
        self._answer, self._running, self._process, self._resident = answer, running, process, resident
        self._picture, self._anchors = picture, anchors
        self._preset = plan.preset
        self._waiting: list[tuple[int, Split]] = []  # (n of a message, the split when it came)
        memory.arrived = self._arrived

    def handle(self, message: Mapping[str, Any]) -> None:
        """A `memory` message of the protocol."""
        n = int(message["n"])
        try:
            if message["op"] == "map":
                self._answer({"t": "memory", "n": n, "data": self._map()})
            elif message["op"] == "experts":
                self._answer({"t": "memory", "n": n, "data": self._experts()})
            elif message["op"] == "anchors":
                self._answer({"t": "memory", "n": n, "data": self._anchors(message)})
            elif message["op"] == "plan":
                self._answer({"t": "memory", "n": n, "data": self._predict(self._wish(message))})
            else:
                wish = self._wish(message)
                self._apply(n, replace(wish, why=AGAIN) if message.get("again") else wish)
        except (BadRequest, NotFound, Unsupported) as error:
            refusal = {"code": error.code, "message": error.message, "hint": error.hint}
            self._answer({"t": "memory", "n": n, "error": refusal})

    # Parts

    def _map(self) -> dict[str, Any]:
        memory, pools, curve = self._memory, self._pools, self._memory.outlook.curve
        split = memory.mover.split

        def rate(slots: int) -> float | None:
            return curve.misses(slots) / curve.asked if curve is not None and curve.asked else None

        now = Now(
            split,
            pools.arena.slabs - split.slabs - memory.lent,
            memory.lent,
            self._preset,
            memory.sizes.auto and memory.mover.experts_move and not memory.sizes.pins(),
            frozenset(memory.sizes.pins()),
            pools.pages.used * pools.page_tokens,
            0 if pools.states is None else pools.states.used,
            self._resident(),
            rate,
        )
        spare = None if memory.others.spare is None else memory.others.spare.to_json()
        told = memory_map(self._plan, now, spare, self._process() or None, memory.balancer.log)
        told["kv"] |= {"tokens": memory.kv_tokens, "window_tokens": memory.window_tokens}
        if told["experts"] is not None and memory.sizes.slots_pin is not None:
            told["experts"]["slots"] = min(memory.sizes.slots_pin, told["experts"]["slots"])
        return told

    def _experts(self) -> dict[str, Any]:
        """`ft.experts/1`. The curve is null before anything was routed, the optimum before steps tell what a slot is worth."""
        memory, curve, most = self._memory, self._memory.outlook.curve, self._plan.tier.experts
        points = None
        if curve is not None and curve.asked:
            slots = sorted({round(most * i / CURVE_POINTS) for i in range(CURVE_POINTS + 1)})
            points = [[n, round(curve.misses(n) / curve.asked, 5)] for n in slots]
        optimum = None
        if memory.outlook.known and memory.mover.experts_move:
            view = replace(memory.view(self._running(), pins={}), slabs=memory.start.slabs)
            proposal = Balancer(memory.balancer.tuning).propose(view)
            optimum = self._side(view.split if proposal is None else proposal.split)["moe_slots"]
        return {
            "schema": "ft.experts/1",
            "total": most,
            "layers": self._picture(),
            "curve": points,
            "curve_steps": 0 if curve is None else curve.steps,
            "optimum_slots": optimum,
        }

    def _wish(self, message: Mapping[str, Any]) -> Wish:
        """Raises BadRequest or Unsupported for what no split can give."""
        memory, plan, start = self._memory, self._plan, self._memory.start
        if message.get("auto"):
            return Wish(None, None, start.slabs, "auto")
        kv, slots, preset = message.get("kv_tokens"), message.get("moe_slots"), message.get("preset")
        if slots is not None:
            self._check_slots(int(slots))
        if preset:
            most = plan.tier.experts if memory.mover.experts_move else 0
            tier = replace(plan.tier, slabs=start.kv_slabs + start.experts_slabs, slots_most=most, kv_share=1)
            kv, slots = share(preset, tier, kv, slots)
        elif kv is None:
            kv = memory.sizes.kv_pin
        if not memory.mover.experts_move:
            slots = None
        elif slots is None and not preset:
            slots = memory.sizes.slots_pin
        return Wish(kv, slots, self._budget(kv, slots), preset or self._preset)

    def _check_slots(self, slots: int) -> None:
        tier = self._plan.tier
        if not self._memory.mover.experts_move:
            raise Unsupported("This engine has no expert slots that could change.", "Ask for --kv alone.")
        if not tier.slots_least <= slots <= tier.experts:
            raise BadRequest(
                f"{slots} expert slots: one token needs {tier.slots_least}, all experts together {tier.experts}.",
                f"Ask for {tier.slots_least} to {tier.experts}.",
            )

    def _budget(self, kv: int | None, slots: int | None) -> int:
        """Slabs to share out: what there was at the start, and of the arena's room what these sizes need beside it."""
        memory, outlook, mover = self._memory, self._memory.outlook, self._memory.mover
        state, least = mover.split.state_slabs, mover.least().experts_slabs
        kv_slabs = 1 if kv is None else outlook.kv_slabs(kv)
        experts = least if slots is None else mover.slabs_of(slots)
        most = mover.slabs - memory.lent
        if kv_slabs + state + experts > most:
            tokens = outlook.kv_tokens(most - state - experts)
            raise BadRequest(
                f"{kv or 0} tokens of KV and {slots or 0} expert slots need more than the {most} slabs there are.",
                f"With these slots there is room for {tokens} tokens of KV." if kv else "Ask for fewer slots.",
            )
        wanted = kv_slabs + state + (mover.split.experts_slabs if slots is None else experts)
        return min(most, max(memory.start.slabs, wanted if kv is not None else memory.start.slabs))

    def _pins(self, wish: Wish) -> dict[str, int]:
        pins = {} if wish.kv_tokens is None else {KV: self._memory.outlook.kv_slabs(wish.kv_tokens)}
        if wish.slots is not None:
            pins[EXPERTS] = self._memory.mover.slabs_of(wish.slots)
        return pins

    def _predict(self, wish: Wish) -> dict[str, Any]:
        memory = self._memory
        view = replace(memory.view(self._running(), pins=self._pins(wish)), slabs=wish.budget)
        proposal = Balancer(memory.balancer.tuning).propose(view)
        then = view.split if proposal is None else proposal.split
        told = memory.balancer.predict(view, then)
        known = memory.outlook.known
        after = self._side(then, told.to_json() if known else None)
        if wish.kv_tokens is not None:
            after["kv_tokens"] = min(wish.kv_tokens, after["kv_tokens"])
            after["window_tokens"] = min(after["window_tokens"], wish.kv_tokens)
        if wish.slots is not None and after["moe_slots"] is not None:
            after["moe_slots"] = min(wish.slots, after["moe_slots"])
        before = self._side(view.split, memory.balancer.predict(view, view.split).to_json() if known else None)
        return move_answer(before, after, seconds_to_apply=told.seconds_to_apply, why=self._gives_way(view.split, then))

    def _apply(self, n: int, wish: Wish) -> None:
        memory = self._memory
        self._answer_all(complete=False, waits_for="another change that was asked for since", moved=None)
        before = memory.mover.split
        self._preset = wish.preset
        memory.set_by_hand(wish.kv_tokens, wish.slots, wish.budget, wish.why)
        memory.consider(self._running())
        self._waiting.append((n, before))
        if memory.mover.target is None:
            self._arrived(Moved(before, before, before))
            memory.tell_changed()

    def _arrived(self, moved: Moved) -> None:
        waits_for = None
        if self._memory.sizes.unmet():
            held = self._memory.mover.held_pages * self._pools.page_tokens
            waits_for = f"requests that run, which hold {held} tokens of KV"
        self._answer_all(waits_for is None, waits_for, moved)

    def _answer_all(self, complete: bool, waits_for: str | None, moved: Moved | None) -> None:
        waiting, self._waiting = self._waiting, []
        for n, before in waiting:
            now = self._memory.mover.split
            told = move_answer(
                self._side(before),
                self._side(now),
                applied=True,
                complete=complete,
                waits_for=waits_for,
                why=self._gives_way(before, now),
                moved=None if moved is None else _moved(moved),
            )
            told["then"] |= {"kv_tokens": self._memory.kv_tokens, "window_tokens": self._memory.window_tokens}
            if self._memory.sizes.slots_pin is not None and told["then"]["moe_slots"] is not None:
                told["then"]["moe_slots"] = min(self._memory.sizes.slots_pin, told["then"]["moe_slots"])
            self._answer({"t": "memory", "n": n, "data": told})

    def _side(self, split: Split, predicted: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return side(self._plan, split, predicted)

    def _gives_way(self, before: Split, after: Split) -> str | None:
        experts, kv = before.experts_slabs - after.experts_slabs, before.kv_slabs - after.kv_slabs
        if experts > 0:
            return f"experts give {experts} slabs"
        return f"KV gives {kv} slabs" if kv > 0 else None


def _moved(moved: Moved) -> dict[str, Any]:
    names = ("dropped_experts", "evicted_pages", "moved_pages", "seconds")
    return {name: moved.to_json()[name] for name in names}
