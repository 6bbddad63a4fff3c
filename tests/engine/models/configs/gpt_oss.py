"""Tiny gpt-oss models: windows in every other layer as published, and in an order of their own."""

from transformers import GptOssConfig

_SIZES = {
    "vocab_size": 229,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_local_experts": 10,
    "num_experts_per_tok": 4,
}
CONFIGS = {
    "yarn": GptOssConfig(
        **_SIZES,
        num_hidden_layers=4,
        sliding_window=24,
        max_position_embeddings=4096,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 128,
        },
    ),
    "own-order": GptOssConfig(
        **_SIZES,
        num_hidden_layers=3,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        sliding_window=7,
        attention_bias=False,
        tie_word_embeddings=True,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
}
