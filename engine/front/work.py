"""What a prefill must do whatever this machine is: how much a model multiplies for a token, and the experts a chunk must bring in."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from engine.weights.manifest import Manifest

CACHES = 32 << 20
SPREAD, TOGETHER = 5.5, 2.0  # measured: of 16 tokens


@dataclass(frozen=True, slots=True)
class Pool:
    """All routed experts of a model. `pair_share`: what attention of one token to one other multiplies, as a share of all else that is multiplied
    for a token; 0: not known."""

    experts: int
    bytes: int
    pair_share: float = 0.0

    @property
    def few_steps(self) -> float:
        """How many decode steps take about as long as a prefill of a few tokens, which reads the experts of all of them: where these do
        not fit into the processor's caches, that is most of it."""
        return SPREAD if self.bytes > CACHES else TOGETHER

    @staticmethod
    def of(manifest: Manifest) -> Pool:
        banks = manifest.banks
        experts, size = sum(bank.experts for bank in banks), sum(bank.bytes for bank in banks)
        return Pool(experts, size, _pair_share(manifest))


@dataclass(frozen=True, slots=True)
class Floor:
    """A chunk cannot take less than the experts that must be brought in for it."""

    chunk_tokens: int
    chunk_s: float

    def seconds(self, new: int) -> float:
        return math.ceil(new / self.chunk_tokens) * self.chunk_s

    @staticmethod
    def of(stats: dict[str, Any] | None, pool: Pool) -> Floor | None:
        """From the worker's snapshot: experts outside of the fast tier over the measured fill rate. None: nothing is brought in."""
        found = stats or {}
        experts, chunk = found.get("experts") or {}, (found.get("settings") or {}).get("chunk_tokens")
        rate, slots = (experts.get("rates") or {}).get("fill_bytes_per_s"), experts.get("slots")
        if not rate or not slots or not chunk or slots >= pool.experts:
            return None
        return Floor(int(chunk), pool.bytes * (1 - slots / pool.experts) / rate)


def _pair_share(manifest: Manifest) -> float:
    """By the matrices of the model, embeddings and head aside, which a prefill does not multiply; 0 where its configuration does not say
    how many heads ask."""
    geometry = manifest.geometry
    try:
        config = json.loads(manifest.path(manifest.config).read_text())
        heads = int((config.get("text_config") or config)["num_attention_heads"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0.0
    matrices = sum(
        math.prod(entry.shape)
        for entry in manifest.dense.values()
        if len(entry.shape) == 2 and geometry.vocab_size not in entry.shape
    )
    routed = geometry.moe_layers * geometry.top_k * 3 * geometry.hidden_size * geometry.expert_width
    token, pair = matrices + routed, 2 * geometry.attention_layers * heads * geometry.head_dim
    return pair / token if token else 0.0
