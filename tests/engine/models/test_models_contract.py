"""What every file of engine/models promises, checked against transformers on tiny random weights."""

from __future__ import annotations

from collections.abc import Callable, Set
from itertools import pairwise

import pytest
import torch

from engine import models
from engine.errors import Unsupported
from engine.protocol import Sampling
from engine.runner.load import Loaded
from engine.scheduler.step import SampleSpec, Slice

NOBODY: Callable[[], Set[int]] = frozenset
# Both sides compute in fp32; on hybrids with random decays, ours was seen to differ from float64 by 0.7e-4 and theirs by 1.5e-4.
FP32_ERROR = 3e-4


class Sequence:
    """One sequence in a loaded model: its pages, its live state, what it has absorbed and the logits of that."""

    def __init__(self, loaded: Loaded, seq: int, tokens: list[int]) -> None:
        self.loaded, self.seq, self.tokens, self.done = loaded, seq, list(tokens), 0
        self.pages: list[int] = []
        self.state = -1
        if loaded.pools.states is not None:
            self.state = loaded.pools.states.alloc()
            loaded.runner.zero_state(self.state)

    def slice(self, n: int, snapshots: tuple[tuple[int, int], ...] = ()) -> Slice:
        """The next `n` tokens; counts them as absorbed."""
        start, self.done = self.done, self.done + n
        needed = -(-self.done // self.loaded.pools.page_tokens) - len(self.pages)
        self.pages += self.loaded.pools.pages.alloc(needed)
        chunk = self.tokens[start : self.done]
        spec = SampleSpec(Sampling(), self.tokens[: self.done])
        return Slice(self.seq, chunk, start, list(self.pages), self.state, list(snapshots), spec)

    def close(self) -> None:
        for page in self.pages:
            self.loaded.pools.pages.release(page)
        if self.loaded.pools.states is not None:
            self.loaded.pools.states.release(self.state)


def logits(loaded: Loaded, slices: list[Slice], dropped: Callable[[], list[int]] = list) -> torch.Tensor:
    """Logits of every row of the step."""
    ids, batch = loaded.runner.batches.build(slices)
    with torch.inference_mode():
        return loaded.runner.model.forward(ids, batch, torch.arange(ids.shape[0]), dropped)


def alone(loaded: Loaded, tokens: list[int], chunks: list[int]) -> torch.Tensor:
    """Logits [tokens, vocab] of a sequence run by itself in the given chunks."""
    sequence = Sequence(loaded, 0, tokens)
    rows = torch.cat([logits(loaded, [sequence.slice(n)]) for n in chunks])
    sequence.close()
    return rows


def greedy(loaded: Loaded, prompt: list[int], chunks: list[int], n: int) -> list[int]:
    """`n` tokens by the runner itself."""
    sequence = Sequence(loaded, 0, prompt)
    for chunk in chunks:
        (sampled,) = loaded.runner.step([sequence.slice(chunk)], NOBODY)
    output = [sampled.token]
    while len(output) < n:
        sequence.tokens.append(output[-1])
        (sampled,) = loaded.runner.step([sequence.slice(1)], NOBODY)
        output.append(sampled.token)
    sequence.close()
    return output


@pytest.fixture(scope="module")
def exact(checkpoint) -> Loaded:
    return checkpoint.load("exact")


@pytest.fixture(scope="module", params=["exact", "small"])
def loaded(checkpoint, exact, request) -> Loaded:
    return exact if request.param == "exact" else checkpoint.load(request.param)


@pytest.mark.parametrize("kernels", ["cpu", "reference"])
def test_prefill_logits_are_those_of_transformers(checkpoint, exact, kernels):
    tokens = checkpoint.tokens(100, seed=1)
    with torch.inference_mode():
        expected = checkpoint.oracle(input_ids=torch.tensor([tokens])).logits[0]
    model = exact if kernels == "cpu" else checkpoint.load("exact", kernels)
    assert expected.std() > 0.3, "the oracle's logits are too small for the comparison to mean anything"
    torch.testing.assert_close(alone(model, tokens, [100]), expected, atol=FP32_ERROR, rtol=0)


def test_greedy_tokens_are_those_of_transformers(checkpoint, exact):
    prompt = checkpoint.tokens(90, seed=2)
    with torch.inference_mode():
        whole = checkpoint.oracle.generate(
            torch.tensor([prompt]), max_new_tokens=64, min_new_tokens=64, do_sample=False, eos_token_id=None
        )
    for chunks in ([90], [1, 7, 64, 18], [64, 1, 1, 24]):
        assert greedy(exact, prompt, chunks, 64) == whole[0, 90:].tolist()


def test_chunks_do_not_change_a_bit(checkpoint, loaded):
    tokens = checkpoint.tokens(150, seed=1)
    whole = alone(loaded, tokens, [150])
    for chunks in ([1] * 150, [1, 7, 64, 65, 13], [63, 64, 23]):
        assert torch.equal(alone(loaded, tokens, chunks), whole)


def test_a_mixed_batch_gives_each_sequence_its_own_bits(checkpoint, loaded):
    prompts = [checkpoint.tokens(n, seed=n) for n in (70, 33, 100, 5)]
    expected = [alone(loaded, prompt, [len(prompt)]) for prompt in prompts]
    sequences = [Sequence(loaded, i, prompt) for i, prompt in enumerate(prompts)]
    found: list[list[torch.Tensor]] = [[], [], [], []]
    for step in ([30, 32, 7, 4], [1, 1, 64, 1], [39, 0, 29, 0]):
        parts = [(i, n) for i, n in enumerate(step) if n]
        rows = logits(loaded, [sequences[i].slice(n) for i, n in parts])
        for (i, _), part in zip(parts, rows.split([n for _, n in parts]), strict=True):
            found[i].append(part)
    for sequence, rows, want in zip(sequences, found, expected, strict=True):
        assert torch.equal(torch.cat(rows), want)
        sequence.close()


def test_dropped_rows_leave_the_others_as_they_are(checkpoint, loaded):
    prompts = [checkpoint.tokens(40, seed=s) for s in (11, 12, 13)]
    expected = alone(loaded, prompts[1], [40])
    for when in (1, 2, 3):  # asked before each block; the middle sequence stays
        sequences = [Sequence(loaded, i, prompt) for i, prompt in enumerate(prompts)]
        asked: list[int] = []

        def dropped(asked: list[int] = asked, when: int = when) -> list[int]:
            asked.append(1)
            return [0] if len(asked) == when else [0, 2] if len(asked) > when else []

        rows = logits(loaded, [sequence.slice(40) for sequence in sequences], dropped)
        survivors = rows[:40]
        assert torch.equal(survivors, expected)
        for sequence in sequences:
            sequence.close()


def test_aborted_requests_get_no_token_and_an_empty_step_stops(checkpoint, loaded):
    sequences = [Sequence(loaded, i, checkpoint.tokens(20, seed=i)) for i in range(2)]
    want = greedy(loaded, sequences[1].tokens, [20], 1)
    sampled = loaded.runner.step([s.slice(20) for s in sequences], lambda: {0, 99})
    assert [(s.seq, s.token) for s in sampled] == [(1, want[0])]
    for s in sequences:
        s.done = 0
    assert loaded.runner.step([s.slice(20) for s in sequences], lambda: {0, 1}) == []
    for s in sequences:
        s.close()


def test_resuming_from_a_snapshot_equals_computing_cold(checkpoint, loaded):
    pools, runner = loaded.pools, loaded.runner
    prompt, other = checkpoint.tokens(90, seed=21), checkpoint.tokens(40, seed=22)
    points = [17, 40, 41, 64]
    first = Sequence(loaded, 0, prompt)
    saved = {p: pools.states.alloc() for p in points} if pools.states is not None else {}
    for begin, end in pairwise([0, 41, 90]):
        inside = tuple((p, saved[p]) for p in points if saved and begin < p <= end)
        logits(loaded, [first.slice(end - begin, inside)])
    for point in points:
        tokens = prompt[:point] + other
        cold = alone(loaded, tokens, [len(tokens)])[point:]
        resumed = Sequence(loaded, 1, tokens)
        resumed.done = point
        whole, rest = divmod(point, pools.page_tokens)
        resumed.pages = pools.pages.alloc(whole + (rest > 0))
        for i, page in enumerate(resumed.pages):
            runner.copy_page(first.pages[i], page, pools.page_tokens if i < whole else rest)
        if saved:
            runner.copy_state(saved[point], resumed.state)
        assert torch.equal(logits(loaded, [resumed.slice(40)]), cold)
        resumed.close()
    for state in saved.values():
        pools.states.release(state)
    first.close()


def test_offloading_experts_does_not_change_a_bit(checkpoint, loaded):
    geometry = loaded.manifest.geometry
    if not geometry.experts:
        assert loaded.experts is None
        return
    kind = loaded.manifest.name
    everything = geometry.moe_layers * geometry.experts
    tokens = checkpoint.tokens(80, seed=31)
    whole = alone(loaded, tokens, [60, *[1] * 20])
    for slots in (everything, everything // 2, geometry.top_k + 1):
        offloaded = checkpoint.load(kind, moe_backend="offload", moe_slots=slots)
        assert torch.equal(alone(offloaded, tokens, [60, *[1] * 20]), whole)
        assert sum(offloaded.experts.misses) > 0
        if slots == everything:
            before = list(offloaded.experts.misses)
            alone(offloaded, tokens, [80])
            assert offloaded.experts.misses == before, "with a slot for every expert nothing is copied twice"


def test_the_geometry_counts_what_the_model_holds(checkpoint, exact):
    config = checkpoint.oracle.config
    text = getattr(config, "text_config", config)
    kinds = getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers
    geometry = exact.manifest.geometry
    assert (geometry.layers, geometry.vocab_size) == (text.num_hidden_layers, text.vocab_size)
    assert geometry.attention_layers == len(kinds) - kinds.count("linear_attention")
    assert len(geometry.state_layer_bytes) == kinds.count("linear_attention")
    assert (geometry.kv_heads, geometry.hidden_size) == (text.num_key_value_heads, text.hidden_size)


def test_an_unknown_architecture_is_refused_by_name():
    with pytest.raises(Unsupported, match="gpt_neox"):
        models.get("gpt_neox")
