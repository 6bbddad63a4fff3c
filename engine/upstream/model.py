"""The language of a model whose weights are elsewhere: tokenizer, chat template and configuration are enough."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from engine.errors import FtError, WeightsError
from engine.prompt.dialects import find
from engine.prompt.language import Language
from engine.prompt.template import ChatTemplate
from engine.prompt.tokenizer import Tokenizer
from engine.weights.manifest import MANIFEST_FILE, load_manifest
from engine.weights.speech import speech_of

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    language: Language
    sampling_defaults: dict[str, Any] = field(default_factory=dict)
    window: int = 0  # the longest the model was made for
    note: str = ""  # what is not as the model's authors meant it


def load(directory: Path) -> Model:
    """From a model folder of ours, or from a published one without its weights: `tokenizer.json`, `config.json`,
    `chat_template.jinja` or the template in `tokenizer_config.json`, and `generation_config.json` where there is one.

    Raises WeightsError naming what is missing.
    """
    if (directory / MANIFEST_FILE).is_file():
        manifest = load_manifest(directory)
        return Model(
            manifest.name,
            _load(lambda: Language.load(directory)),
            dict(manifest.sampling_defaults),
            manifest.window_tokens,
        )
    return _load(lambda: _published(directory))


T = TypeVar("T")


def _load(read: Callable[[], T]) -> T:
    try:
        return read()
    except WeightsError:
        raise
    except FtError as error:
        raise WeightsError(error.message, error.hint) from error


def _published(directory: Path) -> Model:
    tokenizer = Tokenizer.load(directory / "tokenizer.json")
    config = _json(directory / "config.json") or {}
    words, generation = (
        _json(directory / "tokenizer_config.json") or {},
        _json(directory / "generation_config.json") or {},
    )
    source = _template(directory, words)
    speech = speech_of(source)
    ends = _ids(tokenizer, generation.get("eos_token_id"), config.get("eos_token_id"), words.get("eos_token"))
    ends += [tokenizer.control[end] for end in speech.ends if end in tokenizer.control]
    ends = list(dict.fromkeys(ends))
    if not ends:
        raise WeightsError(
            f"Nothing in {directory} says which token ends an answer.", "Add its generation_config.json."
        )
    texts = {name: _text(words.get(name)) for name in ("bos_token", "eos_token", "pad_token")}
    texts["eos_token"] = texts["eos_token"] or tokenizer.token(ends[0]) or ""
    try:
        template = ChatTemplate(source, texts)
    except Exception as error:
        raise WeightsError(f"The chat template in {directory} cannot be used ({error}).") from None
    language = Language(tokenizer, template, find(speech.dialect), ends, speech.thinking, True, speech.template_family)
    defaults = {name: generation[name] for name in _SAMPLING if isinstance(generation.get(name), int | float)}
    if generation.get("do_sample") is False:
        defaults = {}
    inner = config.get("text_config")
    longest = config.get("max_position_embeddings") or (
        inner.get("max_position_embeddings") if isinstance(inner, dict) else 0
    )
    return Model(directory.name, language, defaults, longest if isinstance(longest, int) else 0, speech.note)


def _template(directory: Path, words: dict[str, Any]) -> str:
    path = directory / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    given = words.get("chat_template")
    if isinstance(given, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in given if isinstance(entry, dict)}
        given = named.get("tool_use") or named.get("default")
    if not isinstance(given, str):
        raise WeightsError(
            f"{path} is missing, and tokenizer_config.json holds no template.", "Copy it from the model."
        )
    return given


def _json(path: Path) -> dict[str, Any] | None:
    """None when there is no such file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path} cannot be read as JSON ({error}).", "Copy it from the model again.") from None
    if not isinstance(data, dict):
        raise WeightsError(f"{path} is no JSON object.", "Copy it from the model again.")
    return data


def _ids(tokenizer: Tokenizer, *values: Any) -> list[int]:
    found: list[int] = []
    for value in values:
        for one in value if isinstance(value, list) else [value]:
            token = tokenizer.control.get(_text(one)) if not isinstance(one, int) else one
            if token is not None:
                found.append(token)
    return found


def _text(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""
