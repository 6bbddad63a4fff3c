"""Tiny Llamas: every optional part of the architecture in one of them."""

from transformers import LlamaConfig

_SIZES = {
    "vocab_size": 199,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}
CONFIGS = {
    "yarn-tied": LlamaConfig(
        **_SIZES,
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 128,
        },
    ),
    "biases": LlamaConfig(**_SIZES, attention_bias=True, mlp_bias=True, head_dim=32),
    "llama3": LlamaConfig(
        **_SIZES,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 128,
        },
    ),
}
