"""A runner whose memory is hashes: a page slot holds a hash of every token up to it, a state a hash of every token absorbed,
and the sampled token is a hash of all of them. A wrong resume, a stale page or a mixed-up state changes the output."""

import hashlib


def mix(*parts):
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def kv_chain(tokens, before=0):
    values = []
    for token in tokens:
        before = mix("kv", before, token)
        values.append(before)
    return values


def state_after(tokens, state=1):
    for token in tokens:
        state = mix("state", state, token)
    return state


def choose(kv, state, mask, vocab):
    value = mix("token", kv, state)
    allowed = [t for t in range(vocab) if mask is None or mask[t // 8] >> (t % 8) & 1]
    return allowed[value % len(allowed)]


def cold(tokens, max_tokens, vocab, hybrid, stop_ids=(), forced=None):
    """What a request must yield, computed from its tokens alone: (emitted tokens, reason)."""
    tokens, out = list(tokens), []
    if forced is not None:
        for i, token in enumerate(forced):
            last = i + 1 == len(forced)
            if last and token in stop_ids:
                return out, "stop"
            out.append(token)
            if last:
                return out, "stop"
            if len(out) == max_tokens:
                return out, "length"
        return out, "stop"
    while True:
        token = choose(kv_chain(tokens), state_after(tokens) if hybrid else None, None, vocab)
        tokens.append(token)
        if token in stop_ids:
            return out, "stop"
        out.append(token)
        if len(out) == max_tokens:
            return out, "length"


class FakeRunner:
    """`layers` is how often a step asks whom to drop; `on_layer` is called before each time, `fail_next` raises once."""

    def __init__(self, page_tokens, vocab, hybrid=False, layers=3, on_layer=lambda: None):
        self.page_tokens, self.vocab, self.hybrid, self.layers, self.on_layer = (
            page_tokens,
            vocab,
            hybrid,
            layers,
            on_layer,
        )
        self.pages, self.states = {}, {}
        self.steps, self.computed_tokens, self.copied_pages, self.batch_sizes = 0, 0, 0, []
        self.fail_next = None

    def step(self, slices, aborted):
        self.steps += 1
        self.batch_sizes.append([len(s.tokens) for s in slices])
        if self.fail_next is not None:
            failure, self.fail_next = self.fail_next, None
            raise failure
        assert len({s.seq for s in slices}) == len(slices)
        written = [p for s in slices for p in s.pages[s.start // self.page_tokens :]]
        assert len(set(written)) == len(written), "two rows write one page"
        dropped = set()
        for _ in range(self.layers):
            self.on_layer()
            dropped |= set(aborted())
        return [r for s in slices if (r := self._row(s, s.seq in dropped)) is not None]

    def _row(self, s, dropped):
        assert s.tokens and len(s.pages) == -(-(s.start + len(s.tokens)) // self.page_tokens)
        assert (s.state >= 0) == self.hybrid
        if dropped:
            for position in range(s.start, s.start + len(s.tokens)):
                self._write(s, position, "undefined")
            if self.hybrid:
                self.states[s.state] = "undefined"
                self.states.update((state, "undefined") for _, state in s.snapshots)
            return None
        self.computed_tokens += len(s.tokens)
        before = self._read(s, s.start - 1) if s.start else 0
        for i, value in enumerate(kv_chain(s.tokens, before)):
            self._write(s, s.start + i, value)
        if self.hybrid:
            for position, state in s.snapshots:
                assert s.start < position <= s.start + len(s.tokens) and state != s.state
                self.states[state] = state_after(s.tokens[: position - s.start], self.states[s.state])
            self.states[s.state] = state_after(s.tokens, self.states[s.state])
        if s.sample is None:
            return None
        assert list(s.sample.history[s.start :]) == list(s.tokens)
        kv = [self._read(s, position) for position in range(s.start + len(s.tokens))]
        token = s.sample.forced
        if token is None:
            token = choose(kv, self.states[s.state] if self.hybrid else None, s.sample.mask, self.vocab)
        from engine.scheduler.step import Sampled

        return Sampled(s.seq, token, -1.0, [(token, -1.0)])

    def _read(self, s, position):
        return self.pages[s.pages[position // self.page_tokens], position % self.page_tokens]

    def _write(self, s, position, value):
        self.pages[s.pages[position // self.page_tokens], position % self.page_tokens] = value

    def copy_page(self, source, target, tokens):
        self.copied_pages += 1
        for i in range(self.page_tokens):
            self.pages[target, i] = self.pages[source, i] if i < tokens else "undefined"

    def copy_state(self, source, target):
        self.states[target] = self.states[source]

    def zero_state(self, target):
        self.states[target] = 1
