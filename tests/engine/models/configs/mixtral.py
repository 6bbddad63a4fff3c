"""Tiny Mixtrals: the default model's shape, and one whose experts outnumber a token's choice by far, over a sliding window."""

from transformers import MixtralConfig

_SIZES = {
    "vocab_size": 211,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "max_position_embeddings": 1024,
}
CONFIGS = {
    "yarn-tied": MixtralConfig(
        **_SIZES,
        head_dim=16,
        num_local_experts=8,
        num_experts_per_tok=2,
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 100000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 128,
        },
    ),
    "top-3-of-16": MixtralConfig(**_SIZES, num_local_experts=16, num_experts_per_tok=3, sliding_window=40),
}
