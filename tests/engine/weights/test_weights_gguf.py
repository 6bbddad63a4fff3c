"""GGUF files against transformers' reader and the gguf package, and damaged ones against their message."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from engine.errors import Unsupported, WeightsError
from engine.weights.gguf import GgufSource
from engine.weights.wheel import smollm2_gguf

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, WIDTH, VOCAB = 4, 2, 16, 64, 96, 32
Q = gguf.GGMLQuantizationType


def _llama_cpp_permute(weights: np.ndarray, heads: int) -> np.ndarray:
    """convert_hf_to_gguf.py's reordering of q and k, written as llama.cpp writes it."""
    return (
        weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


def _hf_weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    shapes = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCAB, HIDDEN),
        "model.layers.0.input_layernorm.weight": (HIDDEN,),
        "model.layers.0.self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
        "model.layers.0.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "model.layers.0.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "model.layers.0.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
        "model.layers.0.post_attention_layernorm.weight": (HIDDEN,),
        "model.layers.0.mlp.gate_proj.weight": (WIDTH, HIDDEN),
        "model.layers.0.mlp.up_proj.weight": (WIDTH, HIDDEN),
        "model.layers.0.mlp.down_proj.weight": (HIDDEN, WIDTH),
    }
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


_GGUF_NAMES = {
    "model.embed_tokens.weight": ("token_embd.weight", Q.Q8_0),
    "model.norm.weight": ("output_norm.weight", Q.F32),
    "lm_head.weight": ("output.weight", Q.F16),
    "model.layers.0.input_layernorm.weight": ("blk.0.attn_norm.weight", Q.F32),
    "model.layers.0.self_attn.q_proj.weight": ("blk.0.attn_q.weight", Q.F32),
    "model.layers.0.self_attn.k_proj.weight": ("blk.0.attn_k.weight", Q.Q4_1),
    "model.layers.0.self_attn.v_proj.weight": ("blk.0.attn_v.weight", Q.BF16),
    "model.layers.0.self_attn.o_proj.weight": ("blk.0.attn_output.weight", Q.Q4_0),
    "model.layers.0.post_attention_layernorm.weight": ("blk.0.ffn_norm.weight", Q.F32),
    "model.layers.0.mlp.gate_proj.weight": ("blk.0.ffn_gate.weight", Q.Q4_1),
    "model.layers.0.mlp.up_proj.weight": ("blk.0.ffn_up.weight", Q.Q8_0),
    "model.layers.0.mlp.down_proj.weight": ("blk.0.ffn_down.weight", Q.Q4_0),
}


def _write(path: Path, arch: str = "llama", **extra: np.ndarray) -> dict[str, np.ndarray]:
    """A tiny llama GGUF. Returns the weights as they should read, after rounding to each tensor's type."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(50000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{i}" for i in range(VOCAB)])
    writer.add_token_merges(["t 0"])
    expected = {}
    for name, weights in _hf_weights().items():
        stored_name, kind = _GGUF_NAMES[name]
        heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2], 0)
        stored = _llama_cpp_permute(weights, heads) if heads else weights
        data = gguf.quants.quantize(stored, kind)
        writer.add_tensor(stored_name, data, raw_dtype=kind)
        expected[name] = gguf.quants.dequantize(gguf.quants.quantize(weights, kind), kind)
    for stored_name, values in extra.items():
        writer.add_tensor(stored_name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def test_every_type_reads_as_the_original_weights(tmp_path: Path) -> None:
    # Quantisation goes along rows and the reordering moves whole rows, so the rounded originals are the expectation.
    expected = _write(tmp_path / "m.gguf", **{"rope_freqs.weight": np.ones(8, np.float32)})
    source = GgufSource(tmp_path / "m.gguf")
    assert source.names == set(expected)
    for name, values in expected.items():
        assert np.array_equal(source.read(name).float().numpy(), values), name
    config = source.config
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (
        HEADS,
        KV_HEADS,
        HEAD_DIM,
    )
    assert config["rms_norm_eps"] == 1e-5
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": 50000.0}
    assert config["tie_word_embeddings"] is False


def _assert_reads_as_in_transformers(path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    source = GgufSource(path)
    config = load_gguf_checkpoint(str(path))["config"]
    with torch.device("meta"):
        shell = LlamaForCausalLM(LlamaConfig(**config))
    theirs = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=shell)["tensors"]
    assert source.names == set(theirs)
    for name in source.names:
        assert torch.equal(source.read(name).float(), torch.as_tensor(theirs[name]).float()), name
    ours = {**source.config, **source.config["rope_parameters"]}
    compared = config.keys() & ours.keys()
    assert {"hidden_size", "num_key_value_heads", "rope_theta", "max_position_embeddings"} <= compared
    for key in compared:
        assert ours[key] == pytest.approx(config[key]) if isinstance(ours[key], float) else ours[key] == config[key], (
            key
        )


def test_files_read_as_in_transformers(tmp_path: Path) -> None:
    _write(tmp_path / "m.gguf")
    _assert_reads_as_in_transformers(tmp_path / "m.gguf")


@pytest.mark.slow
def test_the_embedded_model_reads_as_in_transformers() -> None:
    with smollm2_gguf() as path:
        _assert_reads_as_in_transformers(path)


def test_faults_are_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with pytest.raises(WeightsError, match=r"m.gguf cannot be read: No such file"):
        GgufSource(path)
    path.write_bytes(b"PK\x03\x04 a zip")
    with pytest.raises(WeightsError, match=r"m.gguf is not a GGUF file"):
        GgufSource(path)
    _write(path)
    whole = path.read_bytes()
    for cut in (10, 300, len(whole) // 2, len(whole) - 100):
        path.write_bytes(whole[:cut])
        with pytest.raises(WeightsError, match=r"m.gguf is damaged or cut"):
            GgufSource(path)
    _write(path, arch="gemma3")
    with pytest.raises(Unsupported, match="'gemma3'"):
        GgufSource(path)
    _write(path, **{"blk.0.attn_sinks.weight": np.ones(4, np.float32)})
    with pytest.raises(Unsupported, match=r"'blk\.0\.attn_sinks\.weight'"):
        GgufSource(path)
