"""Sizes of a model, as the planner and the caches need them: plain numbers read from an FTW manifest."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Geometry:
    """All sizes are per model on one device; torch-free arithmetic over this is the start-up plan.

    `kv_token_bytes[dtype]`-style variation is left to the planner: `kv_values_per_token` counts K and V numbers of one
    token over all attention layers. `state_layer_bytes` holds the fp32 bytes of each linear layer's recurrent state and
    convolution window, in layer order; empty for pure attention models.
    """

    vocab_size: int
    hidden_size: int
    layers: int
    attention_layers: int
    kv_heads: int
    head_dim: int
    state_layer_bytes: tuple[int, ...]
    moe_layers: int
    experts: int  # per MoE layer; 0 for dense models
    top_k: int
    expert_width: int
    expert_bytes: int  # one expert in its final host layout, padded to the bank's stride
    bank_bytes: int  # all experts
    dense_bytes: int  # every other weight as held in memory
    max_window_tokens: int

    @property
    def kv_values_per_token(self) -> int:
        return 2 * self.attention_layers * self.kv_heads * self.head_dim

    @property
    def state_bytes(self) -> int:
        return sum(self.state_layer_bytes)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "state_layer_bytes": list(self.state_layer_bytes)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Geometry:
        return Geometry(**{**data, "state_layer_bytes": tuple(data["state_layer_bytes"])})
