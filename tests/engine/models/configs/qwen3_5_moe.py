"""Tiny Qwen3.5 MoEs: text only, and inside a multimodal checkpoint."""

from transformers import Qwen3_5MoeConfig, Qwen3_5MoeTextConfig

_SIZES = {
    "vocab_size": 223,
    "hidden_size": 64,
    "num_hidden_layers": 5,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention", "full_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "moe_intermediate_size": 40,
    "shared_expert_intermediate_size": 56,
    "num_experts": 12,
    "num_experts_per_tok": 4,
    "max_position_embeddings": 1024,
}
_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1]}
_VISION = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 16,
}
CONFIGS = {
    "text": Qwen3_5MoeTextConfig(**_SIZES, rope_parameters=_ROPE),
    "multimodal": Qwen3_5MoeConfig(
        text_config={**_SIZES, "rope_parameters": _ROPE, "attention_bias": True},
        vision_config=_VISION,
        image_token_id=1,
        video_token_id=2,
        vision_start_token_id=3,
        vision_end_token_id=4,
    ),
}
