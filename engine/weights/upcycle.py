"""Sparse upcycling: a dense llama model seen as a Mixture-of-Experts model that computes the same function.

After "Sparse Upcycling: Training Mixture-of-Experts from Dense Checkpoints" (Komatsuzaki et al., 2022). Every expert is the
layer's feed-forward network with its intermediate neurons in another order, which leaves its function unchanged but makes
any mix-up of gate, up and down rows visible. The router is random, so routing varies and its choice does not matter.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch

from engine.weights.source import TensorSource

_EXPERT = re.compile(r"model\.layers\.(\d+)\.block_sparse_moe\.experts\.(\d+)\.(w[123])\.weight")
_ROUTER = re.compile(r"model\.layers\.(\d+)\.block_sparse_moe\.gate\.weight")
_DENSE_NAME = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}


class UpcycledSource:
    """A `TensorSource` in Mixtral's names over a dense llama source. Deterministic in `seed` on every machine."""

    def __init__(self, dense: TensorSource, config: dict[str, Any], experts: int, top_k: int, seed: int = 0) -> None:
        self._dense, self._experts, self._seed = dense, experts, seed
        self._width, self._hidden = config["intermediate_size"], config["hidden_size"]
        kept = {name for name in dense.names if ".mlp." not in name}
        prefixes = [f"model.layers.{layer}.block_sparse_moe." for layer in range(config["num_hidden_layers"])]
        added = {f"{p}experts.{e}.{w}.weight" for p in prefixes for e in range(experts) for w in _DENSE_NAME}
        self._names = frozenset(kept | added | {f"{p}gate.weight" for p in prefixes})
        self.config = {
            **config,
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "num_local_experts": experts,
            "num_experts_per_tok": top_k,
            "sliding_window": None,
            "router_jitter_noise": 0.0,
        }

    @property
    def names(self) -> frozenset[str]:
        return self._names

    def read(self, name: str) -> torch.Tensor:
        if name not in self._names:
            raise KeyError(name)
        if found := _EXPERT.fullmatch(name):
            layer, expert, which = int(found[1]), int(found[2]), found[3]
            weight = self._dense.read(f"model.layers.{layer}.mlp.{_DENSE_NAME[which]}.weight").float()
            order = torch.from_numpy(self._random(layer, expert).permutation(self._width))
            return weight[:, order] if which == "w2" else weight[order]
        if found := _ROUTER.fullmatch(name):
            return self._router(int(found[1]))
        return self._dense.read(name).float()

    def read_expert(self, name: str, expert: int) -> torch.Tensor:
        return self.read(name)[expert]

    def kind(self, name: str) -> str:
        return "f32"

    def _router(self, layer: int) -> torch.Tensor:
        # Scaled so that the logits of a normalised token have a standard deviation near one.
        norm = self._dense.read(f"model.layers.{layer}.post_attention_layernorm.weight").float()
        scale = 1.0 / (float(norm.square().mean().sqrt()) * self._hidden**0.5)
        values = self._random(layer, self._experts).standard_normal((self._experts, self._hidden))
        return torch.from_numpy((values * scale).astype(np.float32))

    def _random(self, layer: int, stream: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, layer, stream])
