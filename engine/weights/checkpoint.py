"""Opening what `models import` is given: a Hugging Face directory or a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.errors import NotFound, WeightsError
from engine.weights.config import architecture, read_config, text_config
from engine.weights.convert import ModelFacts
from engine.weights.gguf import GgufSource
from engine.weights.gguf_tokenizer import build_tokenizer
from engine.weights.safetensors import SafetensorsSource
from engine.weights.source import TensorSource
from engine.weights.speech import Speech, speech_of

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def open_checkpoint(path: Path, kv_dtype: str) -> tuple[TensorSource, ModelFacts]:
    """The tensors of a checkpoint and the facts about the model. Raises NotFound for no such path, WeightsError when a part is
    missing or damaged."""
    if path.is_dir():
        return SafetensorsSource(path), directory_facts(path, kv_dtype)
    if path.is_file():
        source = GgufSource(path)
        return source, _gguf_facts(source, path, kv_dtype)
    raise NotFound(f"{path} does not exist.", "Give a Hugging Face model directory or a GGUF file.")


def _gguf_facts(source: GgufSource, path: Path, kv_dtype: str) -> ModelFacts:
    template = source.metadata.get("tokenizer.chat_template")
    if not template:
        raise WeightsError(f"{path} has no chat template.", "Use a chat (instruct) model.")
    speech, tokenizer_json = speech_of(template), build_tokenizer(source.metadata).to_str()
    return ModelFacts(
        config=source.config,
        config_json=json.dumps(source.config, indent=2) + "\n",
        tokenizer_json=tokenizer_json,
        chat_template=template,
        eos_token_ids=_ends(_metadata_ends(source.metadata), tokenizer_json, speech),
        dialect=speech.dialect,
        thinking=speech.thinking,
        template_family=speech.template_family,
        notes=(speech.note,) if speech.note else (),
        kv_dtype=kv_dtype,
        source=path.name,
    )


def directory_facts(path: Path, kv_dtype: str) -> ModelFacts:
    """What the small files of a checkpoint say. Raises WeightsError when one is missing or damaged."""
    config_file, generation_file = path / "config.json", path / "generation_config.json"
    config = read_config(config_file)
    if not architecture(config):
        raise WeightsError(f"{config_file} names no model_type.", "Copy config.json again from its source.")
    generation = read_config(generation_file) if generation_file.is_file() else {}
    template = _template(path)
    tokenizer = path / "tokenizer.json"
    if not tokenizer.is_file():
        raise WeightsError(
            f"{tokenizer} is missing.", "Copy it from the model's source; other tokenizer files are not read."
        )
    speech, tokenizer_json = speech_of(template), tokenizer.read_text(encoding="utf-8")
    named = _ids(generation.get("eos_token_id", text_config(config).get("eos_token_id")))
    sampled = generation.get("do_sample", False)
    defaults = {key: generation[key] for key in _SAMPLING if generation.get(key) is not None} if sampled else {}
    return ModelFacts(
        config=config,
        config_json=config_file.read_text(encoding="utf-8"),
        tokenizer_json=tokenizer_json,
        chat_template=template,
        eos_token_ids=_ends(named, tokenizer_json, speech),
        dialect=speech.dialect,
        thinking=speech.thinking,
        template_family=speech.template_family,
        notes=(speech.note,) if speech.note else (),
        kv_dtype=kv_dtype,
        sampling_defaults=defaults,
        source=path.name,
    )


def _template(path: Path) -> str:
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    config_file = path / "tokenizer_config.json"
    found: Any = read_config(config_file).get("chat_template") if config_file.is_file() else None
    if isinstance(found, list):  # several named templates
        found = {entry.get("name"): entry.get("template") for entry in found}.get("default")
    if not isinstance(found, str) or not found:
        raise WeightsError(f"{path} has no chat template.", "Use a chat (instruct) model, or add chat_template.jinja.")
    return found


def _metadata_ends(metadata: dict[str, Any]) -> tuple[int, ...]:
    """End of sequence, of turn and of message, as far as the file names them."""
    found = (metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    return tuple(token for token in found if token is not None)


def _ends(named: tuple[int, ...], tokenizer_json: str, speech: Speech) -> tuple[int, ...]:
    """The ids that end a turn, each once: those the checkpoint names, then those of its syntax."""
    added = json.loads(tokenizer_json).get("added_tokens") or [] if speech.ends else []
    ids = {token["content"]: token["id"] for token in added}
    return tuple(dict.fromkeys([*named, *(ids[text] for text in speech.ends if text in ids)]))


def _ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (int(value),)
