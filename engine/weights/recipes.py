"""What is made of which stored tensors, and making it as soon as the last of them is there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.weights.choice import bias_of, is_fused
from engine.weights.convert import build_dense, expert_of
from engine.weights.map import DenseTensor, LayerExperts, WeightMap
from engine.weights.safetensors import SafetensorsSource
from engine.weights.scatter import ScatterWriter


@dataclass(slots=True)
class _Recipe:
    needs: frozenset[str]
    missing: int
    make: Callable[[], None]


class Recipes:
    """Everything of `weight_map` that `writer` does not have yet. Tensors are read from `source` when they have arrived."""

    def __init__(self, weight_map: WeightMap, source: SafetensorsSource, writer: ScatterWriter) -> None:
        self._source = source
        self._users: dict[str, list[_Recipe]] = defaultdict(list)
        self._open: Counter[str] = Counter()  # recipes that still need a stored tensor

        def dense(name: str, tensor: DenseTensor) -> Callable[[], None]:
            return lambda: writer.put_dense(name, build_dense(source, tensor))

        def expert(layer: LayerExperts, number: int) -> Callable[[], None]:
            return lambda: writer.put_expert(layer.layer, number, expert_of(source, layer, number))

        for name, tensor in weight_map.dense.items():
            if not writer.has_dense(name):
                self._add(tensor.sources, dense(name, tensor))
        for layer in weight_map.experts:
            for number in range(weight_map.geometry.experts):
                if not writer.has_expert(layer.layer, number):
                    self._add(_matrices(source, layer, number), expert(layer, number))

    def needs(self) -> list[str]:
        """Stored tensors that something is still to be made of."""
        return [name for name, count in self._open.items() if count]

    def wants(self, stored: str) -> bool:
        return self._open[stored] > 0

    def arrived(self, stored: str) -> list[str]:
        """Make what `stored` was the last missing part of; the stored tensors that nobody needs any more."""
        spent: list[str] = []
        for recipe in self._users.pop(stored, ()):
            recipe.missing -= 1
            if recipe.missing:
                continue
            recipe.make()
            for name in recipe.needs:
                self._open[name] -= 1
                if not self._open[name]:
                    spent.append(name)
        return spent

    def _add(self, names: Iterable[str], make: Callable[[], None]) -> None:
        needs = frozenset(stored for name in names for _, stored in self._source.stored(name))
        recipe = _Recipe(needs, len(needs), make)
        for stored in needs:
            self._users[stored].append(recipe)
            self._open[stored] += 1


def _matrices(source: SafetensorsSource, layer: LayerExperts, expert: int) -> list[str]:
    if is_fused(source, layer):
        names = [layer.fused_gate_up, layer.fused_down]
    else:
        names = [pattern.format(expert=expert) for pattern in (layer.gate, layer.up, layer.down)]
    return [*names, *(bias_of(name) for name in names)] if layer.bias else names
