"""Front <-> worker messages: length-prefixed msgpack over a Unix socket, versioned.

A frame is a 4-byte little-endian length followed by that many bytes of msgpack. Every message is a map with `t` (its
type) and the fields listed here. Both sides send `hello` first and refuse another `version`.

front -> worker
    hello     version:int
    submit    see `Submit`
    cancel    rid:str
    stats     n:int                          answered by `stats` with the same n
    forget    session:str                    what only it has on disk is removed
    memory    n:int, op:"map"|"plan"|"apply"|"experts"|"anchors", moe_slots:int|nil, kv_tokens:int|nil, preset:str|nil, auto:bool,
              again:bool                     `again`: an `apply` that the worker before this one was given
                                             answered by `memory` with the same n; `apply` when it is done or waits
    shutdown  drain_s:float                  finish or drop running work, then exit 0

worker -> front
    hello     version:int, pid:int, nonce:str
    state     state:"loading"|"warming"|"ready"|"failed", phase:str, done:int, total:int (bytes or layers),
              code:str, message:str, hint:str (the last three when failed), window:int, kv_tokens:int and backend:str when ready
              and when it `serves`:bool requests although not all weights are there
    accepted  rid, prompt, cached, replayed, new, anticipated, wasted, resume_at (ints), tier     once prefill starts
    progress  rid, done:int, total:int       prefill tokens of this request, at least each chunk
    tokens    rid, ids:[int], logprobs:[[id, logprob, [[id, logprob], ...]]] | nil
    done      rid, reason:"stop"|"length"|"cancelled", stop_id:int|nil, timings:{queue_s, restore_s, prefill_s,
              computed_s, first_token_s, decode_s}, usage:{prompt, cached, replayed, new, output, anticipated, wasted, tier},
              experts:{hits, misses}
    error     rid, code:str, message:str, hint:str
    stats     n, data:{...}                  a snapshot, see worker.stats()
    memory    n, data:{...} (see engine.memory.report) or error:{code, message, hint}
    event     kind:str, ...                  checkpoint created/evicted, page eviction, resize; passed on to /v1/engine/events

`anticipated` are the cached tokens that only background work had computed, `wasted` those that background work had computed
for this line and that this request does not use, `tier` where the checkpoint it resumes from lay: "ram", "disk", or null
when it starts at token 0. A background request with max_tokens 0 is prefill only: `done` with reason "stop" and no token.
"""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass, field
from typing import Any

import msgpack

VERSION = 3
MAX_FRAME_BYTES = 64 << 20
_LENGTH = struct.Struct("<I")


@dataclass(slots=True)
class Sampling:
    """How to choose the next token. temperature 0 is greedy; penalties count prompt and output tokens."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0: off
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logit_bias: dict[int, float] = field(default_factory=dict)
    logprobs: int = -1  # -1: none; n: the chosen token's and the n most likely ones'


@dataclass(slots=True)
class EditPoint:
    """A token position where the next prompt may diverge: a checkpoint belongs there.

    `position` counts tokens before the point; `kind` is the eviction class: head, turn, frontier, reminder, live, prompt,
    decode. Of the points with the same (line, kind, edge), the newest `quota` are kept at the weight of their class, 0: as
    many as is usual for the class. `edge` names the declared edge, for reports.
    """

    position: int
    kind: str
    quota: int = 0
    edge: str = ""


@dataclass(slots=True)
class Submit:
    """One generation request as the worker sees it: tokens, never text.

    `session` names the line: one conversation that grows, "<session id>" or "<session id>/<thread>". Lines have their own
    claims on checkpoints.
    """

    rid: str
    tokens: list[int]
    max_tokens: int  # 0: prefill only, for background work
    session: str = ""
    edit_points: list[EditPoint] = field(default_factory=list)
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: list[int] = field(default_factory=list)
    grammar: str | None = None  # llguidance grammar (JSON), compiled by prompt.grammar; constrains from the first token
    forced: list[int] | None = None  # scripted replay: sampled tokens are replaced by these, then the request ends
    priority: str = "main"  # main | side | background
    supersedes: bool = False  # background only: older background work of the same line is dropped first

    def message(self) -> dict[str, Any]:
        made = {"t": "submit", **{name: getattr(self, name) for name in self.__slots__}}  # asdict would copy each token
        return {**made, "edit_points": [asdict(p) for p in self.edit_points], "sampling": asdict(self.sampling)}

    @staticmethod
    def parse(message: dict[str, Any]) -> Submit:
        fields = {k: v for k, v in message.items() if k != "t"}
        fields["edit_points"] = [EditPoint(**p) for p in fields.get("edit_points", [])]
        fields["sampling"] = Sampling(**fields.get("sampling", {}))
        return Submit(**fields)


def encode(message: dict[str, Any]) -> bytes:
    """One frame, ready for `sendall`. Raises OverflowError, TypeError or ValueError for what no frame can carry."""
    body: bytes = msgpack.packb(message, use_bin_type=True)
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"{len(body)} bytes are over the limit of {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


class Decoder:
    """Turns a byte stream into messages. Raises ValueError on an oversized frame or on bytes that are no msgpack map."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        self._buffer += data
        messages = []
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if size > MAX_FRAME_BYTES:
                raise ValueError(f"frame of {size} bytes is over the limit of {MAX_FRAME_BYTES}")
            if len(self._buffer) < _LENGTH.size + size:
                break
            body = bytes(self._buffer[_LENGTH.size : _LENGTH.size + size])
            del self._buffer[: _LENGTH.size + size]
            message = msgpack.unpackb(body, raw=False, strict_map_key=False)
            if not isinstance(message, dict):
                raise ValueError("a frame that is no map")
            messages.append(message)
        return messages
