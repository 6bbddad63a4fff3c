"""One request from a conversation to a stream of output events, whatever HTTP dialect asked for it."""

from __future__ import annotations

import hashlib
import secrets
import time
from array import array
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.errors import FtError, OutputTooLong, PromptTooLong
from engine.front.answer import Answer, StopStrings
from engine.front.context import Front
from engine.front.items import Ask, Beat, Finished, Item, Logprob, Usage
from engine.front.pending import Pending
from engine.front.records import RequestRecord
from engine.front.selectors import wire_ids
from engine.front.sessions import Session
from engine.front.sides import side_kind
from engine.prompt.conversation import Conversation, Prompt, Thinking
from engine.prompt.output import Event, TextDelta, ThinkingDelta
from engine.protocol import EditPoint, Sampling, Submit

# Below this much room an answer is useless and the client should shorten its prompt; above it, less output is served.
MIN_ROOM_TOKENS = 16


class Generation:
    """A submitted request. Iterate `events` once; call `close` in any case when done with it."""

    def __init__(self, front: Front, session: Session, ask: Ask, record: RequestRecord) -> None:
        self.front = front
        self.session = session
        self.ask = ask
        if ask.conversation is not None:
            self.ask = replace(ask, conversation=session.rendering(ask.conversation))
        self.record = record
        self.usage = Usage()
        self.answer = Answer()
        self._pending: Pending | None = None
        self._ids: list[int] = []
        self._prompt: list[int] = []
        self._began = time.monotonic()
        self._gaps: list[float] = []
        self._last_token = 0.0
        session.requests += 1
        session.running += 1
        session.last_request = time.time()
        front.metrics.running.inc()

    @property
    def scripted(self) -> bool:
        return self.record.scripted

    async def submit(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> None:
        """Render, check against the window and hand over to the worker. Raises FtError; nothing is queued then."""
        front, ask = self.front, self.ask
        prompt, edit_points = await front.off_loop(self._render)
        room = front.window - len(prompt.tokens)
        self._prompt = prompt.tokens
        self.record.render_s = round(time.monotonic() - self._began, 6)
        self.record.prompt_tokens = self.usage.prompt = len(prompt.tokens)
        prompt_hash = _hash(prompt.tokens)
        self.record.resent = front.records.seen(self.record.session, prompt_hash)
        self.record.prompt_hash = prompt_hash
        if room < 1:
            raise PromptTooLong(len(prompt.tokens), front.window)
        if room < MIN_ROOM_TOKENS and (ask.max_tokens or MIN_ROOM_TOKENS) > room:
            raise OutputTooLong(len(prompt.tokens), ask.max_tokens or MIN_ROOM_TOKENS, front.window)
        submit = Submit(
            rid=self.record.id,
            tokens=prompt.tokens,
            max_tokens=min(ask.max_tokens or room, room),
            session=self.session.id,
            edit_points=edit_points,
            sampling=ask.sampling,
            stop_ids=list(front.language.stop_ids),
        )
        if ask.conversation is not None:
            side = side_kind(self.session.declaration, ask.conversation, headers, body)
            await self._direct(submit, ask.conversation, side, room)
        self._pending = front.supervisor.submit(submit)

    async def _direct(self, submit: Submit, conversation: Conversation, kind: str | None, room: int) -> None:
        """Put the scripted turn or the grammar into `submit`."""
        language, session = self.front.language, self.session
        side = kind is not None
        if session.script is None:
            submit.grammar = await self.front.off_loop(lambda: language.grammar(conversation))
        else:
            turn = session.script.turn_for(conversation, kind)
            side = turn.side
            forced = await self.front.off_loop(lambda: language.script_tokens(turn.blocks, conversation))
            if len(forced) > room:
                raise OutputTooLong(len(submit.tokens), len(forced), self.front.window)
            submit.forced, submit.max_tokens = forced, max(submit.max_tokens, len(forced))
            self.record.scripted = True
        submit.priority = "side" if side else "main"
        self.record.side = side

    async def events(self) -> AsyncGenerator[Item, None]:
        """Output events as they come, a Beat after each silent interval, Finished at the end.

        Raises the FtError that ended the request early; what was yielded before stays valid.
        """
        assert self._pending is not None
        ask, language = self.ask, self.front.language
        stream = language.stream()
        parser = language.parser(ask.conversation) if ask.conversation is not None else None
        stops = StopStrings(ask.stop)
        last = time.monotonic()
        reason, thinking = "", False
        while not reason:
            message = await self._pending.get(max(0.0, last + self.front.heartbeat_s - time.monotonic()))
            if message is None:
                self.record.heartbeats += 1
                last = time.monotonic()
                yield Beat()
                continue
            events: list[Event] = []
            if message["t"] == "tokens":
                self._count(message["ids"])
                for entry in message.get("logprobs") or []:
                    yield self._logprob(entry)
                text = stream.feed(message["ids"])
                events = stops.feed(_parse(parser, text)) if text else []
                thinking = isinstance(events[-1], ThinkingDelta) if events else thinking
                self.usage.thinking += len(message["ids"]) if thinking else 0
            elif message["t"] == "done":
                reason = self._done(message)
                text = stream.finish()
                events = stops.feed([*_parse(parser, text), *(parser.finish() if parser else [])])
                if stops.hit is None:
                    events += stops.flush()
            else:
                self._note(message)
            for event in events:
                if isinstance(event, ThinkingDelta) and not ask.shows_thinking:
                    self.answer.add(event)
                    continue
                last = time.monotonic()
                if self.record.ttft_s is None:
                    self.record.ttft_s = round(last - self._began, 6)
                self.answer.add(event)
                yield event
            if stops.hit is not None and not reason:
                self.front.supervisor.cancel(self.record.id)
                reason = "stop_string"
                self.usage.output = len(self._ids)
        if stops.hit is not None:
            reason = "stop_string"
        elif reason == "stop":
            if parser is not None:
                sent = (b for b in self.answer.blocks() if ask.shows_thinking or not isinstance(b, Thinking))
                language.remember(tuple(sent), self._ids, self._prompt)
            reason = "tool_use" if self.answer.tool_calls else "stop"
        self._finish(reason)
        yield Finished(reason, stops.hit, self.usage)

    def fail(self, error: FtError) -> None:
        """Record that the request ended with an error."""
        if self.record.end is None:
            self.record.error = f"{error.code}: {error.message}"
            self._finish("error")

    def close(self) -> None:
        """End the request. One that was not finished is taken for a hang-up: the worker stops within a layer."""
        if self.record.end is None:
            self.front.supervisor.cancel(self.record.id)
            self._finish("client_gone")

    def _render(self) -> tuple[Prompt, list[EditPoint]]:
        language = self.front.language
        if self.ask.conversation is None:
            return Prompt(language.encode(self.ask.text or "")), []
        prompt = language.render(self.ask.conversation)
        return prompt, language.edit_points(self.ask.conversation, prompt)

    def _count(self, ids: Sequence[int]) -> None:
        now = time.monotonic()
        if self._ids:
            self._gaps.append((now - self._last_token) / max(1, len(ids)))
        self._last_token = now
        self._ids.extend(ids)

    def _note(self, message: Mapping[str, Any]) -> None:
        """Take over what `accepted` and `progress` tell."""
        record = self.record
        if message["t"] == "accepted":
            record.cached_tokens, record.replayed_tokens = message["cached"], message["replayed"]
            record.new_tokens, record.resume_at = message["new"], message["resume_at"]
            self.usage.cached = message["cached"]
        elif message["t"] == "progress":
            record.prefill_done = message["done"]
            data = {"request": record.id, "session": record.session, "done": message["done"], "total": message["total"]}
            self.front.bus.publish("prefill", data)

    def _done(self, message: Mapping[str, Any]) -> str:
        """Take over the worker's final counts; the end reason."""
        usage, timings, experts = message["usage"], message["timings"], message.get("experts") or {}
        self.usage.prompt, self.usage.cached = usage["prompt"], usage["cached"]
        self.usage.output = usage["output"]
        record = self.record
        record.cached_tokens, record.replayed_tokens, record.new_tokens = (
            usage["cached"],
            usage["replayed"],
            usage["new"],
        )
        for name in ("queue_s", "restore_s", "prefill_s", "first_token_s", "decode_s"):
            setattr(record, name, timings.get(name))
        record.expert_hits, record.expert_misses = experts.get("hits"), experts.get("misses")
        return str(message["reason"])

    def _logprob(self, entry: Sequence[Any]) -> Logprob:
        decode = self.front.language.decode
        token, logprob, top = entry
        return Logprob(decode([token]), logprob, tuple((decode([t]), p) for t, p in top or ()))

    def _finish(self, end: str) -> None:
        record, session = self.record, self.session
        record.end = "stop" if end == "stop_string" else end
        record.total_s = round(time.monotonic() - self._began, 6)
        record.output_tokens = self.usage.output = self.usage.output or len(self._ids)
        gaps = sorted(self._gaps)
        if gaps:
            record.tpot_p50_s = gaps[len(gaps) // 2]
            record.tpot_p95_s = gaps[min(len(gaps) - 1, len(gaps) * 95 // 100)]
        session.running -= 1
        session.prompt_tokens += self.usage.prompt
        session.cached_tokens += self.usage.cached
        session.output_tokens += self.usage.output
        self.front.metrics.running.dec()
        self.front.metrics.finished(record)
        self.front.bus.publish("request", record.json())


async def start(
    front: Front, session: Session, ask: Ask, headers: Mapping[str, str], body: Mapping[str, Any]
) -> Generation:
    """Open the record, render, admit. Raises FtError with the record closed; otherwise the caller owns a `close`."""
    harness_id, parent = wire_ids(session.declaration, headers, body)
    record = RequestRecord(
        id="req" + secrets.token_hex(12),
        session=session.id or None,
        api=ask.api,
        model=ask.model,
        stream=ask.stream,
        harness_id=harness_id,
        harness_parent=parent,
        user_agent=headers.get("user-agent"),
        watchdog_s=session.watchdog_s,
    )
    front.records.add(record)
    generation = Generation(front, session, ask, record)
    try:
        await generation.submit(headers, body)
    except FtError as error:
        generation.fail(error)
        raise
    except BaseException:
        generation.close()
        raise
    front.bus.publish("request", record.json())
    return generation


async def count(front: Front, session: Session, conversation: Conversation) -> int:
    """Prompt tokens of a conversation as `start` would send it."""
    conversation = session.rendering(conversation)
    return len((await front.off_loop(lambda: front.language.render(conversation))).tokens)


def with_defaults(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Sampling:
    """The model's sampling defaults overridden by what the request says; None means not said."""
    values = {k: v for k, v in defaults.items() if k in Sampling.__dataclass_fields__}
    values.update({k: v for k, v in given.items() if v is not None})
    return replace(Sampling(), **values)


def _parse(parser: Any, text: str) -> list[Event]:
    if not text:
        return []
    return list(parser.feed(text)) if parser is not None else [TextDelta(text)]


def _hash(tokens: Sequence[int]) -> str:
    return hashlib.sha256(array("I", tokens).tobytes()).hexdigest()[:16]
