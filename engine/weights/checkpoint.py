"""Opening what `models import` is given: a Hugging Face directory or a GGUF file."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError
from tokenizers import Tokenizer

from engine.errors import NotFound, WeightsError
from engine.prompt.template import compile_template
from engine.weights.agreement import check_agreement
from engine.weights.config import architecture, read_config, text_config
from engine.weights.convert import ModelFacts
from engine.weights.gguf import GgufSource
from engine.weights.gguf_tokenizer import build_tokenizer
from engine.weights.safetensors import SafetensorsSource
from engine.weights.source import TensorSource
from engine.weights.speech import Speech, speech_of
from engine.weights.store import mode_of

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def open_checkpoint(path: Path, kv_dtype: str) -> tuple[TensorSource, ModelFacts]:
    """The tensors of a checkpoint and the facts about the model, which agree. Raises NotFound for no such path, WeightsError when
    a part is missing or damaged or contradicts another."""
    if stat.S_ISDIR(mode_of(path)):
        shards, facts = SafetensorsSource(path), directory_facts(path, kv_dtype)
        check_agreement(shards, facts.config, path / "config.json")
        return shards, facts
    if stat.S_ISREG(mode_of(path)):
        source = GgufSource(path)
        facts = _gguf_facts(source, path, kv_dtype)
        check_agreement(source, source.config, path, source.spell)
        return source, facts
    raise NotFound(f"{path} does not exist.", "Give a Hugging Face model directory or a GGUF file.")


def _gguf_facts(source: GgufSource, path: Path, kv_dtype: str) -> ModelFacts:
    template = source.metadata.get("tokenizer.chat_template")
    if not template:
        raise WeightsError(f"{path} has no chat template.", "Use a chat (instruct) model.")
    _check_template(template, path)
    speech, tokenizer_json = speech_of(template), build_tokenizer(source.metadata, path).to_str()
    return ModelFacts(
        config=source.config,
        config_json=json.dumps(source.config, indent=2) + "\n",
        tokenizer_json=tokenizer_json,
        chat_template=template,
        eos_token_ids=_ends(_metadata_ends(source.metadata, path), tokenizer_json, speech),
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
    speech, tokenizer_json = speech_of(template), _text(tokenizer)
    try:
        Tokenizer.from_str(tokenizer_json)
    except Exception as error:  # the package raises nothing narrower
        raise WeightsError(f"{tokenizer} is not a tokenizer.", "Copy it again from the model's source.") from error
    ends = generation if "eos_token_id" in generation else text_config(config)
    named = _ids(ends.get("eos_token_id"), generation_file if ends is generation else config_file)
    sampled = generation.get("do_sample", False)
    defaults = {key: generation[key] for key in _SAMPLING if generation.get(key) is not None} if sampled else {}
    return ModelFacts(
        config=config,
        config_json=_text(config_file),
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
        return _check_template(_text(file), file)
    config_file = path / "tokenizer_config.json"
    found: Any = read_config(config_file).get("chat_template") if config_file.is_file() else None
    if isinstance(found, list):  # several named templates
        entries = [entry for entry in found if isinstance(entry, dict)]
        found = next((entry.get("template") for entry in entries if entry.get("name") == "default"), None)
    if not isinstance(found, str) or not found:
        raise WeightsError(f"{path} has no chat template.", "Use a chat (instruct) model, or add chat_template.jinja.")
    return _check_template(found, config_file)


def _check_template(template: object, file: Path) -> str:
    """The template, which compiles. Raises WeightsError naming `file`."""
    if not isinstance(template, str):
        raise WeightsError(f"{file}: the chat template is not a text.", "Get the file again from its source.")
    try:
        compile_template(template)
    except (TemplateError, RecursionError) as error:
        line = f"line {error.lineno}: " if isinstance(error, TemplateSyntaxError) else ""
        raise WeightsError(
            f"{file}: the chat template does not compile ({line}{error}).", "Get the file again from its source."
        ) from error
    return template


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise WeightsError(f"{file} is not UTF-8.", "Copy it again from the model's source.") from None


def _metadata_ends(metadata: dict[str, Any], path: Path) -> tuple[int, ...]:
    """End of sequence, of turn and of message, as far as the file names them."""
    found = (metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    return _ids([token for token in found if token is not None], path, len(metadata["tokenizer.ggml.tokens"]))


def _ends(named: tuple[int, ...], tokenizer_json: str, speech: Speech) -> tuple[int, ...]:
    """The ids that end a turn, each once: those the checkpoint names, then those of its syntax."""
    added = json.loads(tokenizer_json).get("added_tokens") or [] if speech.ends else []
    ids = {token["content"]: token["id"] for token in added}
    return tuple(dict.fromkeys([*named, *(ids[text] for text in speech.ends if text in ids)]))


def _ids(value: Any, file: Path, vocabulary: int = 1 << 31) -> tuple[int, ...]:
    if value is None:
        return ()
    ids = value if isinstance(value, list) else [value]
    for token in ids:
        if type(token) is not int or not 0 <= token < vocabulary:
            raise WeightsError(
                f"{file} says that token {token!r} ends a turn, which is not in the vocabulary.",
                "Get the file again from its source.",
            )
    return tuple(ids)
