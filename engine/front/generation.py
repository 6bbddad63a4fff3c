"""One request from a conversation to a stream of output events, whatever HTTP dialect asked for it."""

from __future__ import annotations

import logging
import secrets
import time
from array import array
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.errors import FtError, OutputTooLong, PromptTooLong
from engine.front import preparing
from engine.front.account import Account
from engine.front.acting import Cancelled
from engine.front.answer import Answer, StopStrings
from engine.front.context import Front
from engine.front.items import Ask, Beat, Finished, Item, Logprob
from engine.front.joining import Full, Share
from engine.front.lines import Answered
from engine.front.plans import Plan, Reply, plans_after_compaction, plans_of
from engine.front.preparing import Origin, Prepared
from engine.front.records import RequestRecord
from engine.front.sessions import Session
from engine.prompt.conversation import Block, Conversation, Thinking
from engine.prompt.language import may_call
from engine.prompt.output import Event, TextDelta, ThinkingDelta
from engine.protocol import Sampling, Submit

# Below this much room an answer is useless and the client should shorten its prompt; above it, less output is served.
MIN_ROOM_TOKENS = 16
_LOG = logging.getLogger("engine.front")


class Generation:
    """A submitted request. Iterate `events` once; call `close` in any case when done with it."""

    def __init__(self, front: Front, session: Session, ask: Ask, record: RequestRecord) -> None:
        self.front = front
        self.session = session
        self.ask = ask
        self.record = record
        self.account = Account(front, session, record)
        self.usage = self.account.usage
        self.answer = Answer()
        self._share: Share | None = None
        self._ids: list[int] = []
        self._origin: Origin | None = None
        self._prepared: Prepared | None = None

    @property
    def ids(self) -> list[int]:
        """The tokens generated so far. Not to be mutated."""
        return self._ids

    @property
    def scripted(self) -> bool:
        return self.record.scripted

    async def submit(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> None:
        """Render, check against the window and hand over to the worker. Raises FtError; nothing is queued then."""
        front, session, ask = self.front, self.session, self.ask
        origin = preparing.origin(front, session, ask, headers, body)
        others = [line for line in front.lines.of(session.id) if line is not origin.line]
        prepared = await front.off_loop(lambda: preparing.prepare(front, session, ask, origin, body, others))
        tokens = prepared.prompt.tokens
        self._origin, self._prepared = origin, prepared
        if prepared.conversation is not None:
            self.ask = ask = replace(ask, conversation=prepared.conversation)
        self.account.prepared(origin, prepared)
        room = front.window - len(tokens)
        if room < 1:
            raise PromptTooLong(len(tokens), front.window)
        if room < MIN_ROOM_TOKENS and (ask.max_tokens or MIN_ROOM_TOKENS) > room:
            raise OutputTooLong(len(tokens), ask.max_tokens or MIN_ROOM_TOKENS, front.window)
        submit = Submit(
            rid=self.record.id,
            tokens=tokens,
            max_tokens=min(ask.max_tokens or room, room),
            session=origin.line.key,
            edit_points=prepared.edit_points,
            sampling=ask.sampling,
            stop_ids=list(front.language.stop_ids),
        )
        if ask.conversation is not None:
            await self._direct(submit, ask.conversation, origin.side, room)
        self._share = front.computations.submit(submit, may_join=bool(session.id))
        self.account.joined(self._share.joined)
        self._arrive(origin, prepared)

    def _arrive(self, origin: Origin, prepared: Prepared) -> None:
        """Hold what came against what was expected, and remember it."""
        line, sent, worker = origin.line, prepared.sent, self.front.supervisor.worker.pid
        self.front.anticipation.arrived(line, sent.tokens)
        previous = line.sent[-1] if line.sent else None
        if previous is not None and line.worker != worker:
            self.account.lost(prepared.broke.token if prepared.broke else len(previous.tokens))
        line.worker = worker
        if not self.session.begun and origin.side is None and prepared.turn is not None and self.session.id:
            self.session.begun = True
            front = self.front
            front.heads.began(self.session, sent.tokens, sent.edit_points)
            front.renderers.submit(front.heads.write)
        if previous is not None and prepared.turn is not None and origin.side is None and not self.record.resent:
            self.session.scores.judge(line, prepared.turn.conversation, prepared.prompt)
        if self.session.policy.observe and prepared.broke is not None and not prepared.broke.predicted:
            fork = {"session": self.session.id, "request": self.record.id, "broke_at": prepared.broke.json()}
            _LOG.info("a fork that no rule explains: %s", fork)
            self.front.bus.publish("fork", fork)
        line.sent.append(sent)
        if origin.side == preparing.COMPACTION:
            if previous is not None and line is origin.about:
                sent.expected = [expected for expected in previous.expected if expected.rule]  # it is still to come
            self._compacting(None)

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
        submit.priority = "side" if side and kind != preparing.COMPACTION else "main"
        self.record.side = side

    async def events(self) -> AsyncGenerator[Item, None]:
        """Output events as they come, a Beat after each silent interval, Finished at the end.

        Raises the FtError that ended the request early; what was yielded before stays valid.
        """
        assert self._share is not None
        ask, language = self.ask, self.front.language
        stream = language.stream()
        parser = language.parser(ask.conversation) if ask.conversation is not None else None
        stops = StopStrings(ask.stop)
        last = time.monotonic()
        reason, thinking = "", False
        while not reason:
            message = await self._share.get(max(0.0, last + self.front.heartbeat_s - time.monotonic()))
            if message is None:
                self._beats()
                last = time.monotonic()
                yield Beat()
                continue
            if message["t"] == "beat":
                self._beats()
                yield Beat()
                continue
            events: list[Event] = []
            if message["t"] == "tokens":
                self.account.tokens(message["ids"], first=not self._ids)
                self._ids.extend(message["ids"])
                for entry in message.get("logprobs") or []:
                    yield self._logprob(entry)
                for token in message["ids"]:  # each: one message may hold the end of a thought and what follows
                    text = stream.feed([token])
                    made = stops.feed(_parse(parser, text)) if text else []
                    thinking = isinstance(made[-1], ThinkingDelta) if made else thinking
                    self.usage.thinking += thinking
                    events += made
                    if stops.hit is not None:
                        break
            elif message["t"] == "done":
                reason = self.account.done(message)
                text = stream.finish()
                ended = [*_parse(parser, text), *(parser.finish() if parser else [])]
                if reason == "length" and ask.conversation and ask.conversation.tool_choice.forced:
                    # Half a call is no text that a client could make anything of.
                    ended = [event for event in ended if not isinstance(event, TextDelta)]
                events = stops.feed(ended)
                if stops.hit is None:
                    events += stops.flush()
            else:
                self.account.note(message)
            for event in events:
                if isinstance(event, ThinkingDelta) and not ask.shows_thinking:
                    self.answer.add(event)
                    continue
                last = time.monotonic()
                self.account.first_output()
                self.answer.add(event)
                yield event
            if stops.hit is not None and not reason:
                reason = "stop_string"
                self.usage.output = len(self._ids)
        if stops.hit is not None:
            reason = "stop_string"
        elif reason in ("stop", "length"):
            blocks = tuple(b for b in self.answer.blocks() if ask.shows_thinking or not isinstance(b, Thinking))
            half = reason == "length" and (not blocks or isinstance(blocks[-1], Thinking))  # no thought ends like that
            if parser is not None and not half:
                self._replied(blocks)
            if reason == "stop" and self.answer.tool_calls:
                reason = "tool_use"
        self._finish(reason)
        yield Finished(reason, stops.hit, self.usage)

    def fail(self, error: FtError) -> None:
        """Record that the request ended with an error."""
        if self.record.end is None:
            self.record.error = f"{error.code}: {error.message}"
            self._finish("cancelled" if isinstance(error, Cancelled) else "error")

    @property
    def submitted(self) -> bool:
        return self._share is not None

    def cancel(self) -> None:
        """End it from outside; its client is told."""
        assert self._share is not None
        self._share.tell(Cancelled("The request was cancelled from the dashboard.", "Send it again."))

    def beat(self) -> None:
        """Send a heartbeat now."""
        assert self._share is not None
        self._share.tell({"t": "beat"})

    def _beats(self) -> None:
        self.record.heartbeats += 1
        self.record.last_beat = time.time()

    def close(self) -> None:
        """End the request. One that was not finished is taken for a hang-up: the worker stops within a layer, unless another
        request has joined it."""
        if self.record.end is None:
            self._finish("client_gone")

    def _replied(self, blocks: tuple[Block, ...]) -> None:
        """The reply ended, and the client has `blocks` of it: what may follow is worked out beside the loop."""
        front, origin, prepared = self.front, self._origin, self._prepared
        assert origin is not None and prepared is not None
        calls = prepared.turn is not None and may_call(prepared.turn.conversation)
        front.language.remember(blocks, self._ids, prepared.prompt.tokens, calls)
        if self.session.observer is not None and prepared.observed is not None:
            self.session.observer.answered(prepared.observed, blocks, len(self._ids))
        sent, line = prepared.sent, origin.line
        sent.tokens = sent.tokens + array("I", self._ids)
        if origin.side == preparing.COMPACTION:
            self._compacting(blocks)
        if prepared.turn is None or origin.side is not None or self.record.side:
            return
        reply, policy = Reply(blocks, len(self._ids)), self.session.policy
        line.answered = Answered(prepared.turn, blocks)

        def plan() -> list[Plan]:
            return plans_of(front.language, policy, preparing.after(front, prepared, reply), reply)

        front.anticipation.begin(front.off_loop, line, sent, plan)

    def _compacting(self, summary: tuple[Block, ...] | None) -> None:
        """This request asks for a summary of its line, or just got it: what follows is worked out beside the loop."""
        front, origin, prepared = self.front, self._origin, self._prepared
        assert origin is not None and prepared is not None
        about, asked, policy = origin.about, prepared.asked, self.session.policy
        last = about.answered
        if last is None or asked is None or not about.sent:
            return

        def plan() -> list[Plan]:
            return plans_after_compaction(front.language, policy, last, asked, summary)

        front.anticipation.begin(front.off_loop, about, about.sent[-1], plan)

    def _logprob(self, entry: Sequence[Any]) -> Logprob:
        decode = self.front.language.decode
        token, logprob, top = entry
        return Logprob(decode([token]), logprob, tuple((decode([t]), p) for t, p in top or ()))

    def _finish(self, end: str) -> None:
        if self._origin is not None:
            self._origin.line.last = time.monotonic()
        self.front.acting.ended(self)
        self.account.close(end, len(self._ids))
        if self._share is not None:
            self._share.leave()
            self.front.recorder.add(self.record, self._share.submit.tokens, self._ids)


async def start(
    front: Front, session: Session, ask: Ask, headers: Mapping[str, str], body: Mapping[str, Any]
) -> Generation:
    """Open the record, render, admit. Raises FtError with the record closed; otherwise the caller owns a `close`.

    Whatever model is asked for, the served one answers; answers and the record say what was asked for.
    """
    record = RequestRecord(
        id="req" + secrets.token_hex(12),
        session=session.id or None,
        api=ask.api,
        model=front.model,
        asked_model=ask.model,
        stream=ask.stream,
        user_agent=headers.get("user-agent"),
        watchdog_s=session.watchdog_s,
    )
    front.records.add(record)
    generation = Generation(front, session, ask, record)
    front.acting.began(generation)
    try:
        if front.computations.full():
            raise Full(front.computations.held(), front.records.place_in_s())
        await generation.submit(headers, body)
    except FtError as error:
        generation.fail(error)
        raise
    except BaseException:
        generation.close()
        raise
    front.bus.publish("request", record.json())
    return generation


async def count(
    front: Front, session: Session, ask: Ask, headers: Mapping[str, str], body: Mapping[str, Any]
) -> tuple[int, int]:
    """Prompt tokens as `start` would send them, and as they would be without the client's context edits."""
    origin = preparing.origin(front, session, ask, headers, body)
    return await front.off_loop(lambda: preparing.count(front, session, ask, origin, body))


def with_defaults(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Sampling:
    """The model's sampling defaults overridden by what the request says; None means not said."""
    values = {k: v for k, v in defaults.items() if k in Sampling.__dataclass_fields__}
    values.update({k: v for k, v in given.items() if v is not None})
    return replace(Sampling(), **values)


def _parse(parser: Any, text: str) -> list[Event]:
    if not text:
        return []
    return list(parser.feed(text)) if parser is not None else [TextDelta(text)]
