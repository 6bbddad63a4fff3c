"""A throttled runner holds prefills back, decodes not, and lets go of those who left."""

from engine.protocol import Sampling
from engine.scheduler.step import SampleSpec, Slice
from engine.scheduler.throttle import Throttled, chunk_of


class Inner:
    def __init__(self):
        self.stepped = []

    def step(self, slices, aborted):
        self.stepped.append([s.seq for s in slices if s.seq not in aborted()])
        return []

    copy_page = copy_state = zero_state = read_page = write_page = read_state = write_state = None


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def held(slices, gone_at=None):
    """(seconds that a step of `slices` takes at 10 tokens a second, the rows that are computed)."""
    clock, inner = Clock(), Inner()
    runner = Throttled(inner, 10, clock, clock.sleep)
    runner.step(slices, lambda: {1} if gone_at is not None and clock.now >= gone_at else set())
    return round(clock.now, 3), inner.stepped[0]


def spec(index):
    return SampleSpec(Sampling(), [], index=index)


def test_prompt_tokens_take_their_time_and_generated_ones_none():
    prefill = Slice(1, [5] * 40, 0, [0])
    last = Slice(1, [5] * 20, 40, [0], sample=spec(0))
    decode = Slice(2, [7], 9, [1], sample=spec(3))
    assert held([prefill]) == (4.0, [1])
    assert held([last]) == (2.0, [1])
    assert held([decode]) == (0.0, [2])
    assert held([decode, prefill]) == (4.0, [2, 1])


def test_a_step_with_nobody_left_ends_at_once():
    prefill, decode = Slice(1, [5] * 40, 0, [0]), Slice(2, [7], 9, [1], sample=spec(3))
    seconds, rows = held([prefill], gone_at=0.5)
    assert seconds < 0.6 and rows == []
    assert held([prefill, decode], gone_at=0.5) == (4.0, [2])


def test_the_scheduler_serves_the_same_over_it(bench):
    b = bench(True, pages=60)
    clock = Clock()
    b.scheduler._runner = Throttled(b.runner, 100, clock, clock.sleep)
    reply, usage = b.ask([1, 2, 3] * 20)
    assert usage["output"] == len(reply) == 4
    assert clock.now >= 0.6


def test_no_step_is_held_back_for_long():
    assert [chunk_of(512, rate) for rate in (5, 22.5, 100, 512, 5000)] == [16, 22, 100, 512, 512]
    assert chunk_of(64, 100) == 64
