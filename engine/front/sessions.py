"""Sessions: the id in the base URL, the token that must match it, what was registered, and a few live counters."""

from __future__ import annotations

import base64
import hmac
import re
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

from engine.errors import BadRequest, NotFound
from engine.front.observe import Observer
from engine.front.scores import Scores
from engine.prompt.conversation import Conversation
from engine.prompt.edits.policy import EditPolicy
from engine.prompt.edits.template import Template
from engine.prompt.script import Script

MAX_SESSIONS = 1024
SESSION_ID = re.compile(r"s-[a-z2-7]{10}")
MAX_STORED_RESPONSES = 256
MAX_ENDED = 1024  # facts of sessions that are over
MAX_WATCHED = 64  # of these, what was observed


@dataclass(slots=True)
class Session:
    """One agent's place on this engine. Counters and stored responses are mutated by the requests it makes."""

    id: str
    token: str
    policy: EditPolicy
    harness: str = ""
    name: str = ""
    project: str = ""
    parent: str | None = None  # the session of which this one began as a copy
    declaration: dict[str, Any] | None = None
    version: str = ""
    config: dict[str, Any] = field(default_factory=dict)  # settings of the agent that its declared rules name
    script: Script | None = None
    watchdog_s: float | None = None  # the agent's limit on silence before the first byte, as its launcher set it
    preserve_thinking: bool | None = None  # `render.preserve_thinking`; None: the model's default
    window: int | None = None  # what the agent was told, which its own rules reckon with; None: the engine's
    max_output: int | None = None
    created: float = field(default_factory=time.time)
    last_request: float | None = None
    requests: int = 0
    running: int = 0
    begun: bool = False  # the agent's first own request came
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    anticipated_tokens: int = 0
    wasted_tokens: int = 0
    scores: Scores = field(default_factory=Scores)  # how often each rule predicted the next prompt
    observer: Observer | None = None  # what it does to its context, where nothing verified says so
    # What `previous_response_id` refers to: response id -> all input and output items up to it, oldest first.
    responses: OrderedDict[str, list[dict[str, Any]]] = field(default_factory=OrderedDict)

    def store_response(self, response_id: str, items: list[dict[str, Any]]) -> None:
        """Keep one finished response, dropping the oldest beyond the limit."""
        self.responses[response_id] = items
        while len(self.responses) > MAX_STORED_RESPONSES:
            self.responses.popitem(last=False)

    def rendering(self, conversation: Conversation) -> Conversation:
        """The conversation as this session wants it rendered."""
        if self.preserve_thinking is None:
            return conversation
        return replace(conversation, preserve_thinking=self.preserve_thinking)

    def json(self) -> dict[str, Any]:
        """What anyone with the admin token may see; never the session's token."""
        return {
            "id": self.id,
            "harness": self.harness or None,
            "name": self.name or None,
            "project": self.project or None,
            "parent": self.parent,
            "scripted": self.script is not None,
            "declared": self.declaration is not None,
            "version": self.version or None,
            "observe": self.policy.observe,
            "watchdog_s": self.watchdog_s,
            "render": {"preserve_thinking": self.preserve_thinking},
            "window": self.window,
            "max_output": self.max_output,
            "created": self.created,
            "last_request": self.last_request,
            "ended": None,
            "requests": self.requests,
            "running": self.running,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "anticipated_tokens": self.anticipated_tokens,
            "wasted_tokens": self.wasted_tokens,
            "predictions": self.scores.json(),
        }


class Sessions:
    """All sessions of this engine process, plus the one that serves requests made with the admin token."""

    def __init__(self, admin_token: str, template: Template) -> None:
        self.admin_token = admin_token
        self._template = template
        self.default = Session(id="", token=admin_token, policy=EditPolicy.compose(None, template))
        self._by_id: dict[str, Session] = {}
        self._ended: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._watched: OrderedDict[str, Session] = OrderedDict()

    def create(self, fields: dict[str, Any]) -> Session:
        """Register a session from the body of POST /v1/sessions.

        With an `id` of its own it goes on under it, with a new token: the old one opens nothing any more. Raises BadRequest
        on a wrong type, a bad script, a declaration that does not validate, or the id of a session at work, naming the field.
        """
        own = self._own_id(fields)
        texts = dict.fromkeys(("harness", "version", "name", "project"), str)
        for key, kind in (*texts.items(), ("declaration", dict), ("config", dict), ("script", dict)):
            if fields.get(key) is not None and not isinstance(fields[key], kind):
                raise BadRequest(f"{key}: expected {'an object' if kind is dict else 'a string'}.")
        if not isinstance(fields.get("observe", False), bool):
            raise BadRequest("observe: expected true or false.")
        watchdog_s = fields.get("watchdog_s")
        if watchdog_s is not None and (
            isinstance(watchdog_s, bool) or not isinstance(watchdog_s, int | float) or not 0 <= watchdog_s < 1e9
        ):
            raise BadRequest("watchdog_s: expected a number of seconds.")
        for key in ("window", "max_output"):
            tokens = fields.get(key)
            if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1):
                raise BadRequest(f"{key}: expected a positive number of tokens.")
        if len(self._by_id) >= MAX_SESSIONS and all(session.running for session in self._by_id.values()):
            raise BadRequest(f"There are {MAX_SESSIONS} busy sessions already.", "Wait until one of them is idle.")
        declaration, script = fields.get("declaration"), fields.get("script")
        preserve = _preserve_thinking(fields.get("render"))
        version = fields.get("version") or ""
        template = self._template if preserve is None else replace(self._template, preserving=preserve)
        session = Session(
            id=own or new_id(),
            token="ft_sess_" + secrets.token_urlsafe(32),
            policy=EditPolicy.compose(declaration, template, version or None, fields.get("observe", False)),
            harness=fields.get("harness") or "",
            name=fields.get("name") or "",
            project=fields.get("project") or "",
            parent=fields.get("parent"),
            declaration=declaration,
            version=version,
            config=fields.get("config") or {},
            script=Script.parse(script, (declaration or {}).get("tools")) if script is not None else None,
            watchdog_s=watchdog_s,
            preserve_thinking=preserve,
            window=fields.get("window"),
            max_output=fields.get("max_output"),
        )
        if session.policy.observe or not session.policy.declared:
            session.observer = Observer()
        self._ended.pop(session.id, None)
        self._by_id[session.id] = session
        return session

    def _own_id(self, fields: dict[str, Any]) -> str | None:
        """The id that a session asks for. Raises BadRequest."""
        for key in ("id", "parent"):
            value = fields.get(key)
            if value is not None and (not isinstance(value, str) or not SESSION_ID.fullmatch(value)):
                raise BadRequest(f"{key}: expected an id such as {new_id()}.")
        own: str | None = fields.get("id")
        if own is not None and own in self._by_id and self._by_id[own].running:
            raise BadRequest(f"id: session {own} is at work.", "Wait until it is idle, or start another one.")
        return own

    def evict(self) -> str | None:
        """Delete the idle session unused for longest when there are more than MAX_SESSIONS. Its id."""
        if len(self._by_id) <= MAX_SESSIONS:
            return None
        idle = [session for session in self._by_id.values() if not session.running]
        oldest = min(idle, key=lambda session: session.last_request or session.created)
        self.delete(oldest.id)
        return oldest.id

    def get(self, session_id: str) -> Session:
        """Raises NotFound."""
        session = self._by_id.get(session_id)
        if session is None:
            raise NotFound(f"There is no session {session_id}.", "See GET /v1/sessions.")
        return session

    def facts(self, session_id: str) -> dict[str, Any]:
        """What is known of a session, of one that is over as well. Raises NotFound."""
        return self._ended.get(session_id) or self.get(session_id).json()

    def delete(self, session_id: str) -> None:
        """End a session: its token opens nothing any more, what is known of it stays. Raises NotFound."""
        self._ended[session_id] = {**self.get(session_id).json(), "ended": time.time()}
        session = self._by_id.pop(session_id)
        if session.observer is not None and session.requests:
            session.observer.ended()
            self._watched[session_id] = session
            while len(self._watched) > MAX_WATCHED:
                self._watched.popitem(last=False)
        while len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def forget(self, session_id: str) -> None:
        """Drop also what is known of one that is over; one that goes on is ended first. Unknown ids are ignored."""
        if session_id in self._by_id:
            self.delete(session_id)
        self._ended.pop(session_id, None)
        self._watched.pop(session_id, None)

    def watched(self, session_id: str) -> Session:
        """A session, of those that are over too, whose client is observed. Raises NotFound."""
        session = self._watched.get(session_id) or self.get(session_id)
        if session.observer is None:
            raise NotFound(f"Session {session_id} is not watched: its declaration was verified.")
        return session

    def all(self) -> list[Session]:
        return list(self._by_id.values())

    def predictions(self) -> dict[str, dict[str, int]]:
        """Hits, misses and early predictions of each rule, over all sessions that are remembered."""
        total: dict[str, dict[str, int]] = {}
        for facts in [*self._ended.values(), *(session.json() for session in self._by_id.values())]:
            for rule, score in facts["predictions"].items():
                counts = total.setdefault(rule, {"hits": 0, "misses": 0, "early": 0})
                for name in counts:
                    counts[name] += score[name]
        return total

    def authenticate(self, session_id: str | None, token: str) -> Session | None:
        """The session that `token` opens; None when it opens nothing. Without an id only the admin token counts."""
        if session_id is None:
            return self.default if same(token, self.admin_token) else None
        session = self._by_id.get(session_id)
        # Compare against something in every case, so that the time taken does not tell which ids exist.
        expected = session.token if session else self.admin_token[::-1]
        return session if same(token, expected) and session else None


def new_id() -> str:
    return "s-" + base64.b32encode(secrets.token_bytes(7))[:10].decode().lower()


def _preserve_thinking(render: Any) -> bool | None:
    """`render.preserve_thinking` of a registration. Raises BadRequest naming the field."""
    if render is None:
        return None
    if not isinstance(render, dict):
        raise BadRequest("render: expected an object.")
    unknown = sorted(set(render) - {"preserve_thinking"})
    if unknown:
        raise BadRequest(f"render.{unknown[0]}: unknown.", "Known here: preserve_thinking.")
    value = render.get("preserve_thinking")
    if value is not None and not isinstance(value, bool):
        raise BadRequest("render.preserve_thinking: expected true, false or null.")
    return value


def same(a: str, b: str) -> bool:
    """Constant-time equality of two secrets."""
    return hmac.compare_digest(a.encode("utf-8", "surrogateescape"), b.encode("utf-8", "surrogateescape"))
