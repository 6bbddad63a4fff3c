"""Tiny Qwen3 MoEs: as published, and with dense layers between, raw router weights, biases and a sliding window."""

from transformers import Qwen3MoeConfig

_SIZES = {
    "vocab_size": 227,
    "hidden_size": 64,
    "intermediate_size": 72,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "moe_intermediate_size": 40,
    "num_experts": 12,
    "num_experts_per_tok": 4,
    "max_position_embeddings": 1024,
}
CONFIGS = {
    "renormalised": Qwen3MoeConfig(**_SIZES, num_hidden_layers=3, norm_topk_prob=True, rope_theta=1000000.0),
    "dense-between": Qwen3MoeConfig(
        **_SIZES,
        num_hidden_layers=5,
        norm_topk_prob=False,
        decoder_sparse_step=2,
        mlp_only_layers=[1],
        attention_bias=True,
        use_sliding_window=True,
        sliding_window=24,
        tie_word_embeddings=True,
    ),
}
