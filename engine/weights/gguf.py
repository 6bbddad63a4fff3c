"""GGUF files of the llama family: tensors under Hugging Face names, the configuration, the tokenizer and the template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from engine.errors import Unsupported, WeightsError

_MAGIC = b"GGUF"
_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_DERIVED = {"rope_freqs.weight"}  # tables that follow from the configuration


class GgufSource:
    """A `TensorSource` over a GGUF file; tensors are dequantised to fp32 when read.

    `config` is the equivalent Hugging Face configuration. Raises WeightsError when the file is missing, cut or not GGUF, and
    Unsupported for architectures other than dense llama.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader = _open(path)
        self.metadata: dict[str, Any] = {key: field.contents() for key, field in self._reader.fields.items()}
        kind = self.metadata.get("general.architecture")
        if kind != "llama" or self.metadata.get("llama.expert_count"):
            raise Unsupported(
                f"{path} holds a {kind!r} model; of GGUF files, dense llama models are read.",
                "Import the Hugging Face safetensors directory of the model instead.",
            )
        self._tensors = {_hf_name(t.name): t for t in self._reader.tensors if t.name not in _DERIVED}
        self.config = self._config()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._tensors)

    def read(self, name: str) -> torch.Tensor:
        tensor = self._tensors[name]
        try:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        except (NotImplementedError, ValueError) as error:
            raise WeightsError(f"{self._path}: {tensor.name} cannot be dequantised ({error}).") from error
        values = np.array(values, dtype=np.float32)  # a copy: plain fp32 tensors come as views of the mapped file
        if name.endswith("self_attn.q_proj.weight"):
            values = unpermute(values, self.config["num_attention_heads"])
        elif name.endswith("self_attn.k_proj.weight"):
            values = unpermute(values, self.config["num_key_value_heads"])
        return torch.from_numpy(np.ascontiguousarray(values))

    def read_expert(self, name: str, expert: int) -> torch.Tensor:
        return self.read(name)[expert]

    def kind(self, name: str) -> str:
        return str(self._tensors[name].tensor_type.name)

    def _config(self) -> dict[str, Any]:
        meta = self.metadata
        try:
            heads, hidden = meta["llama.attention.head_count"], meta["llama.embedding_length"]
            return {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "hidden_act": "silu",
                "hidden_size": hidden,
                "intermediate_size": meta["llama.feed_forward_length"],
                "num_hidden_layers": meta["llama.block_count"],
                "num_attention_heads": heads,
                "num_key_value_heads": meta.get("llama.attention.head_count_kv", heads),
                "head_dim": meta.get("llama.attention.key_length", hidden // heads),
                "max_position_embeddings": meta["llama.context_length"],
                "rms_norm_eps": _short_float(meta["llama.attention.layer_norm_rms_epsilon"]),
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": _short_float(meta.get("llama.rope.freq_base", 10000.0)),
                },
                "vocab_size": len(meta["tokenizer.ggml.tokens"]),
                "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
                "eos_token_id": meta.get("tokenizer.ggml.eos_token_id"),
                "tie_word_embeddings": "lm_head.weight" not in self._tensors,
            }
        except KeyError as error:
            raise WeightsError(f"{self._path} lacks the metadata key {error}.", "Get the file again.") from error


def unpermute(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Undo llama.cpp's reordering of q and k rows [heads * head_dim, hidden]: it interleaves the two halves of each head,
    because its rotation pairs neighbours; ours, like the original, pairs halves."""
    rows, *rest = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, *rest)
    return pairs.swapaxes(1, 2).reshape(weight.shape)


class _Reader(gguf.GGUFReader):  # type: ignore[misc]  # the package is untyped
    """The package's reader on a plain view of the mapped file: slices of numpy's memmap cost several times as much, and reading
    a vocabulary makes half a million of them."""

    @property
    def data(self) -> np.ndarray[Any, Any]:
        return self._data

    @data.setter
    def data(self, mapped: np.ndarray[Any, Any]) -> None:
        self._data = mapped.view(np.ndarray)


def _open(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror}.", "Check the path.") from error
    if magic != _MAGIC:
        raise WeightsError(f"{path} is not a GGUF file.", "Give a .gguf file or a Hugging Face model directory.")
    try:
        return _Reader(path)
    except Exception as error:  # the reader lets numpy's and struct's errors through on damaged files
        raise WeightsError(f"{path} is damaged or cut ({error}).", "Copy the file again from its source.") from error


def _hf_name(name: str) -> str:
    if name in _TOP:
        return _TOP[name]
    block, _, rest = name.removeprefix("blk.").partition(".")
    part, _, suffix = rest.rpartition(".")
    if part not in _LAYER:
        raise Unsupported(f"The GGUF tensor {name!r} is of no known kind.", "Import the safetensors directory instead.")
    return f"model.layers.{block}.{_LAYER[part]}.{suffix}"


def _short_float(value: float) -> float:
    """The decimal that was meant: metadata floats are 32 bits wide, so 1e-5 reads as 9.999999747378752e-06."""
    return float(str(np.float32(value)))
