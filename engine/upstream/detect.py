"""What a server is: its kind, its model, its window, and whether its tokens are ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from engine.prompt.language import Language
from engine.upstream.failures import UpstreamRefused
from engine.upstream.wires import LlamaServer, OpenAiIds, OpenAiText, Sglang, Wire

# Text that tokenizers cut in different ways.
PROBE = "def add(a, b):\n    return a + b  # naïve 12345 €\n\t\u4f60\u597d"
Ask = Callable[[str, str, Any], Awaitable[Any]]  # method, path, body -> JSON, None for a status of 404 or 405


@dataclass(frozen=True, slots=True)
class Found:
    """`window` 0: it does not tell."""

    wire: Wire
    window: int


async def detect(ask: Ask, language: Language) -> Found:
    """Look at a server through `ask`. Raises UpstreamRefused for one that cannot serve, and what `ask` raises."""
    listed = await ask("GET", "/v1/models", None)
    models = listed.get("data") if isinstance(listed, dict) else None
    if not models or not isinstance(models[0], dict) or not models[0].get("id"):
        raise UpstreamRefused("It lists no model at /v1/models.", "Is this the address of its API, without /v1?")
    model, owner = models[0], models[0].get("owned_by")
    name, window = str(model["id"]), int(model.get("max_model_len") or 0)
    if owner == "vllm":
        await _same_tokens(ask, language, {"model": name, "prompt": PROBE, "add_special_tokens": False})
        return Found(OpenAiIds(name, "vllm"), window)
    if owner == "sglang":
        return Found(Sglang(name), window)
    if owner == "llamacpp":
        await _same_tokens(ask, language, {"content": PROBE, "add_special": False, "parse_special": False})
        props = await ask("GET", "/props", None) or {}
        wire = LlamaServer(name)
        wire.parallel = int(props.get("total_slots") or 0) or None
        return Found(wire, int((props.get("default_generation_settings") or {}).get("n_ctx") or 0))
    health = await ask("GET", "/health", None)
    if isinstance(health, dict) and health.get("nonce"):
        return Found(OpenAiIds(name, "ft"), window)
    return Found(OpenAiText(name), window)


async def _same_tokens(ask: Ask, language: Language, body: dict[str, Any]) -> None:
    """Token ids mean nothing to a server with another tokenizer."""
    answer = await ask("POST", "/tokenize", body)
    tokens = answer.get("tokens") if isinstance(answer, dict) else None
    if isinstance(tokens, list) and tokens != language.encode(PROBE):
        raise UpstreamRefused(
            "It cuts text into other tokens than the model folder's tokenizer.json.", "Give its own model: --model DIR"
        )
