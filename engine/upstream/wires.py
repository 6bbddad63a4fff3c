"""How each kind of server is asked for tokens and how it answers. One class a kind; nothing here does I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from engine.errors import FtError
from engine.prompt.language import Language
from engine.protocol import Sampling, Submit
from engine.upstream.failures import UpstreamGone, UpstreamRefused


@dataclass(slots=True)
class Piece:
    """One event of an answer. `reason` ends it ("stop" or "length"); counts are what the server told, None: nothing."""

    ids: list[int] = field(default_factory=list)
    text: str | None = None
    reason: str | None = None
    stop_id: int | None = None
    prompt: int | None = None
    cached: int | None = None
    output: int | None = None
    prefill_done: int | None = None


class Wire(ABC):
    """Talks to one kind of server. `told_ids`: prompts and answers go as token ids; else as text. `parallel` is how many
    requests it takes at once, None: as many as come."""

    kind = ""
    path = ""
    told_ids = True
    parallel: int | None = None

    def __init__(self, model: str) -> None:
        self.model = model

    @abstractmethod
    def body(self, submit: Submit, language: Language) -> dict[str, Any]:
        """The request for `submit`."""

    @abstractmethod
    def read(self, data: dict[str, Any], before: int) -> Piece:
        """One event; `before` tokens came already. Raises FtError when it tells of a failure, KeyError, TypeError or
        ValueError when it makes no sense."""


class OpenAiIds(Wire):
    """vLLM, and this engine: OpenAI's completions with ids in both directions."""

    path = "/v1/completions"

    def __init__(self, model: str, kind: str) -> None:
        super().__init__(model)
        self.kind = kind

    def body(self, submit: Submit, language: Language) -> dict[str, Any]:
        body = _openai(self.model, submit)
        body["prompt"] = submit.tokens
        body["return_token_ids"] = True
        if self.kind == "vllm":
            # special tokens are our dialects' business
            body |= {"stop_token_ids": submit.stop_ids, "skip_special_tokens": False, "add_special_tokens": False}
            body |= {"spaces_between_special_tokens": False, "top_k": submit.sampling.top_k or -1}
        return body

    def read(self, data: dict[str, Any], before: int) -> Piece:
        piece = _openai_piece(data)
        for choice in data.get("choices") or ():
            ids = choice.get("token_ids")
            if ids is None and choice.get("text"):
                raise UpstreamRefused(
                    "The upstream sent text without token ids.", "It takes vLLM 0.10.2 or newer: return_token_ids."
                )
            piece.ids = [int(token) for token in ids or ()]
            if isinstance(choice.get("stop_reason"), int):
                piece.stop_id = choice["stop_reason"]
        piece.text = None
        return piece


class OpenAiText(Wire):
    """Any server with OpenAI's completions, such as llama-cpp-python's: text in both directions, one request at a time."""

    kind = "text"
    path = "/v1/completions"
    told_ids = False
    parallel = 1  # llama-cpp-python drops the running answer when another request comes

    def body(self, submit: Submit, language: Language) -> dict[str, Any]:
        body = _openai(self.model, submit)
        body["prompt"] = language.respelled(submit.tokens)
        ends = [text for token in submit.stop_ids if (text := language.decode([token]))]
        body["stop"] = ends[:4]  # OpenAI's limit
        return body

    def read(self, data: dict[str, Any], before: int) -> Piece:
        return _openai_piece(data)


class LlamaServer(Wire):
    """llama.cpp's own server, by its native address."""

    kind = "llama-server"
    path = "/completion"

    def body(self, submit: Submit, language: Language) -> dict[str, Any]:
        body = {"prompt": submit.tokens, "n_predict": submit.max_tokens, "stream": True, "cache_prompt": True}
        sampling = submit.sampling
        body |= {"return_tokens": True, "return_progress": True, "temperature": sampling.temperature}
        body |= {"top_p": sampling.top_p, "top_k": sampling.top_k, "min_p": sampling.min_p}
        body |= {"repeat_penalty": sampling.repetition_penalty, "presence_penalty": sampling.presence_penalty}
        body |= {"frequency_penalty": sampling.frequency_penalty}
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if sampling.logit_bias:
            body["logit_bias"] = [[token, bias] for token, bias in sampling.logit_bias.items()]
        return body

    def read(self, data: dict[str, Any], before: int) -> Piece:
        _raise_error(data)
        piece = Piece([int(token) for token in data.get("tokens") or ()], data.get("content") or None)
        progress = data.get("prompt_progress")
        if progress:
            piece.prefill_done = int(progress["processed"])
        if data.get("stop"):
            piece.reason = "length" if data.get("stop_type") == "limit" else "stop"
            timings = data.get("timings") or {}
            piece.prompt, piece.output = data.get("tokens_evaluated"), data.get("tokens_predicted")
            piece.cached = timings.get("cache_n")
        return piece


class Sglang(Wire):
    """SGLang, by its native address."""

    kind = "sglang"
    path = "/generate"

    def body(self, submit: Submit, language: Language) -> dict[str, Any]:
        asked, sampling = {"max_new_tokens": submit.max_tokens, "stop_token_ids": submit.stop_ids}, submit.sampling
        params = {**asked, "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k or -1}
        params |= {"min_p": sampling.min_p, "repetition_penalty": sampling.repetition_penalty}
        params |= {"presence_penalty": sampling.presence_penalty, "frequency_penalty": sampling.frequency_penalty}
        params |= {"skip_special_tokens": False, "spaces_between_special_tokens": False}
        if sampling.seed is not None:
            params["sampling_seed"] = sampling.seed
        return {"input_ids": submit.tokens, "sampling_params": params, "stream": True}

    def read(self, data: dict[str, Any], before: int) -> Piece:
        _raise_error(data)
        meta, ids = data["meta_info"], [int(token) for token in data.get("output_ids") or ()]
        if len(ids) == meta["completion_tokens"]:
            ids = ids[before:]  # all of the answer each time, unless the server was started to send the new part only
        piece = Piece(ids)
        end = meta.get("finish_reason")
        if end:
            if end["type"] == "abort":
                raise UpstreamGone(f"The upstream gave up: {end.get('message') or 'no reason given'}.")
            piece.reason = "length" if end["type"] == "length" else "stop"
            piece.stop_id = end.get("matched") if isinstance(end.get("matched"), int) else None
            piece.prompt, piece.output = meta["prompt_tokens"], meta["completion_tokens"]
            piece.cached = meta.get("cached_tokens")
        return piece


def _openai(model: str, submit: Submit) -> dict[str, Any]:
    sampling, plain = submit.sampling, Sampling()
    body: dict[str, Any] = {"model": model, "max_tokens": submit.max_tokens, "stream": True}
    body["stream_options"] = {"include_usage": True}
    body |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
    for name in ("top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed"):
        if getattr(sampling, name) != getattr(plain, name):
            body[name] = getattr(sampling, name)
    if sampling.logit_bias:
        body["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
    return body


def _openai_piece(data: dict[str, Any]) -> Piece:
    _raise_error(data)
    piece = Piece()
    for choice in data.get("choices") or ():
        piece.text = choice.get("text") or None
        finish = choice.get("finish_reason")
        if finish:
            piece.reason = "length" if finish == "length" else "stop"
    usage = data.get("usage")
    if usage:
        piece.prompt, piece.output = usage.get("prompt_tokens"), usage.get("completion_tokens")
        piece.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    return piece


def _raise_error(data: dict[str, Any]) -> None:
    error = data.get("error")
    if error:
        said = error.get("message") if isinstance(error, dict) else error
        failure: FtError = UpstreamGone(f"The upstream failed: {said}", "Send the request again.")
        raise failure
