"""Decode speed of the default model against transformers on the same weights: `python bench/decode_transformers.py [--json] [--quick]`.

Both sides hold the same numbers: transformers gets our weights dequantised, once in bf16 and once in fp32, and runs its
fastest expert implementation, which is found first. Rounds alternate, so that a busy machine slows every side; each row
gives medians over rounds and their ratio. The fp32 side must choose the same tokens as ours, or the numbers are for
different work.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from engine.kernels.contract import ExpertShape, Packed, packed_bytes
from engine.memory.plan import Settings
from engine.memory.planner import plan_model
from engine.protocol import Sampling
from engine.runner.load import Loaded, load
from engine.scheduler.step import SampleSpec, Slice
from engine.weights.ftw import Weights, read_weights

EXPERT_IMPLEMENTATIONS = ("eager", "batched_mm", "grouped_mm")


class Ours:
    """One sequence in our engine; every call decodes on from where the last one stopped."""

    def __init__(self, loaded: Loaded, prompt: list[int], room: int) -> None:
        self._loaded, self._position = loaded, len(prompt)
        self._pages = loaded.pools.pages.alloc(-(-(len(prompt) + room) // loaded.pools.page_tokens))
        self._token = self._step(prompt, 0)
        self.tokens = [self._token]

    def decode(self, n: int) -> float:
        """Tokens per second over `n` steps."""
        start = time.perf_counter()
        for _ in range(n):
            self._token = self._step([self._token], self._position)
            self.tokens.append(self._token)
            self._position += 1
        return n / (time.perf_counter() - start)

    def _step(self, tokens: list[int], start: int) -> int:
        part = Slice(0, tokens, start, self._pages, sample=SampleSpec(Sampling(), tokens))
        return self._loaded.runner.step([part], frozenset)[0].token


class Theirs:
    """The same sequence in transformers, decoded with whichever expert implementation is fastest on this machine."""

    def __init__(self, model: Any, prompt: list[int]) -> None:
        self._model, self._cache = model, DynamicCache(config=model.config)
        model.set_experts_implementation("eager")  # the others gather weights per prompt token and take minutes
        self.tokens = [self._forward(prompt)]
        speed = {}
        for name in EXPERT_IMPLEMENTATIONS:
            model.set_experts_implementation(name)
            self.decode(1)
            speed[name] = self.decode(3)
        self.experts = max(speed, key=lambda name: speed[name])
        model.set_experts_implementation(self.experts)

    def decode(self, n: int) -> float:
        """Tokens per second over `n` steps."""
        start = time.perf_counter()
        for _ in range(n):
            self.tokens.append(self._forward(self.tokens[-1:]))
        return n / (time.perf_counter() - start)

    @torch.inference_mode()
    def _forward(self, tokens: list[int]) -> int:
        ids = torch.tensor([tokens])
        logits = self._model(ids, cache=self._cache, use_cache=True, logits_to_keep=1).logits
        return int(logits[0, -1].argmax())


def transformers_model(directory: Path, loaded: Loaded, weights: Weights) -> Any:
    """A transformers Mixtral in fp32 that holds the dequantised weights."""
    ops, geometry = loaded.runner.model.ops, loaded.manifest.geometry
    config = AutoConfig.from_pretrained(directory)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    heads = config.num_attention_heads * geometry.head_dim
    sizes = [heads, geometry.kv_heads * geometry.head_dim, geometry.kv_heads * geometry.head_dim]

    def dense(name: str) -> torch.Tensor:
        tensor = weights.dense[name]
        return ops.unpack(tensor) if isinstance(tensor, Packed) else tensor.clone()

    state = {"model.embed_tokens.weight": dense("embedding"), "model.norm.weight": dense("norm")}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    for layer, bank in sorted(weights.banks.items()):
        ours, hf = f"layers.{layer}", f"model.layers.{layer}"
        for part, tensor in zip("qkv", dense(f"{ours}.attention.qkv").split(sizes), strict=True):
            state[f"{hf}.self_attn.{part}_proj.weight"] = tensor
        state[f"{hf}.self_attn.o_proj.weight"] = dense(f"{ours}.attention.out")
        state[f"{hf}.input_layernorm.weight"] = dense(f"{ours}.mixer_norm")
        state[f"{hf}.post_attention_layernorm.weight"] = dense(f"{ours}.ffn_norm")
        state[f"{hf}.mlp.gate.weight"] = dense(f"{ours}.moe.router")
        format, hidden, width = loaded.manifest.banks[0].format, geometry.hidden_size, geometry.expert_width
        down_at = ExpertShape(hidden, width, format).down_offset
        for name, at, n, k in (("gate_up", 0, 2 * width, hidden), ("down", down_at, hidden, width)):
            size = packed_bytes(n, k, format)
            experts = [ops.unpack(Packed(expert[at : at + size], format, n, k)) for expert in bank]
            state[f"{hf}.mlp.experts.{name}_proj"] = torch.stack(experts)
    model.load_state_dict(state, assign=True, strict=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # its tables are not weights and are still on meta
    return model.eval()


def bf16_of(model: Any) -> Any:
    """A bf16 copy; its rotary tables stay fp32, as transformers keeps them when it loads a bf16 checkpoint."""
    made = copy.deepcopy(model).to(torch.bfloat16)
    made.model.rotary_emb = type(made.model.rotary_emb)(made.config)
    return made


def compare(directory: Path, rounds: int, steps: int, context: int, threads: int) -> list[dict[str, Any]]:
    """One row per precision of transformers, and the count of equal tokens."""
    torch.set_num_threads(threads)
    total = steps * (rounds + 1)
    made = plan_model(directory, Settings(kv_tokens=context + total + 64, max_running=1))
    loaded = load(directory, made, threads)
    fp32 = transformers_model(directory, loaded, read_weights(loaded.manifest))
    prompt = torch.randint(100, 40_000, (context,), generator=torch.Generator().manual_seed(1)).tolist()
    ours = Ours(loaded, prompt, total)
    theirs = {"bf16": Theirs(bf16_of(fp32), prompt), "fp32": Theirs(fp32, prompt)}
    speeds: dict[str, list[float]] = {"ours": [], "bf16": [], "fp32": []}
    for round_ in range(rounds + 1):
        measured = {"ours": ours.decode(steps), **{name: side.decode(steps) for name, side in theirs.items()}}
        if round_:  # the first one warms up
            for name, value in measured.items():
                speeds[name].append(value)
    value = statistics.median(speeds["ours"])
    rows = []
    for name, side in theirs.items():
        baseline = statistics.median(speeds[name])
        rows.append(
            {
                "name": f"decode.{directory.name}.transformers-{name}",
                "experts": side.experts,
                "value": round(value, 2),
                "unit": "tokens/s",
                "baseline": round(baseline, 2),
                "ratio": round(value / baseline, 3),
                "samples": rounds,
            }
        )
    pairs = list(zip(ours.tokens, theirs["fp32"].tokens, strict=False))
    equal = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    row = {
        "name": f"decode.{directory.name}.tokens-equal-to-fp32",
        "value": equal,
        "unit": "tokens",
        "baseline": len(pairs),
    }
    return [*rows, {**row, "ratio": round(equal / len(pairs), 3), "samples": 1}]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-moe", help="name in --models-dir, or a directory")
    parser.add_argument("--models-dir", type=Path, default=Path.home() / ".local/share/ft/models")
    parser.add_argument("--context", type=int, default=256, help="tokens of prompt")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="3 rounds of 8 tokens instead of 9 of 24")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    directory = Path(args.model) if "/" in args.model else args.models_dir / args.model
    rounds, steps = (3, 8) if args.quick else (9, 24)
    rows = compare(directory, rounds, steps, args.context, args.threads)
    if args.json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        print(f"{row['name']:<62}{row['value']:>9} {row['unit']:<9} baseline {row['baseline']:>8}  x{row['ratio']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
