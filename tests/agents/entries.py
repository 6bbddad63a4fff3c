"""The ways into each agent: a command with a prompt, its screen, and what talks to it over pipes or a socket."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

PROMPT = "Say it."
ANSWER = "Answered here, on this machine."
WAIT_S = 240


@dataclass(frozen=True)
class Screen:
    """`ready`: what shows when a prompt can be typed. `quit`: keys, pressed until it has ended."""

    ready: str
    quit: tuple[tuple[str, ...], ...]
    args: tuple[str, ...] = ()

    def plan(self, prompt: str = PROMPT, answer: str = ANSWER) -> dict[str, Any]:
        return {
            "steps": [
                {"see": self.ready, "within_s": WAIT_S},
                {"type": prompt},
                {"press": ["Enter"]},
                {"see": answer.split(",")[0], "within_s": WAIT_S, "again": ["Enter"]},
            ],
            "dialogs": TRUST,
            "quit": [list(keys) for keys in self.quit],
        }


@dataclass(frozen=True)
class Talk:
    args: tuple[str, ...]
    steps: tuple[tuple[str, str], ...]  # "send" or "until", and the text

    def plan(self) -> dict[str, Any]:
        return {
            "steps": [{kind: text, **({"within_s": WAIT_S} if kind == "until" else {})} for kind, text in self.steps]
        }


@dataclass(frozen=True)
class Command:
    args: tuple[str, ...]


# What a person is asked before an agent works in a folder: a safeguard of theirs, which ft never answers.
TRUST = {"Yes, I trust this folder": ["Down", "Enter"], "Do you trust": ["Enter"]}


def _rpc(number: int, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def _acp(*args: str) -> Talk:
    """The agent client protocol, as editors speak it."""
    prompt = [{"type": "text", "text": PROMPT}]
    return Talk(
        args,
        (
            ("send", _rpc(1, "initialize", protocolVersion=1, clientCapabilities={})),
            ("until", '"id": ?1\\b.*'),
            ("send", _rpc(2, "session/new", cwd="{cwd}", mcpServers=[])),
            ("until", '"sessionId": ?"(?P<session>[^"]+)"'),
            ("send", _rpc(3, "session/prompt", sessionId="{session}", prompt=prompt)),
            ("until", '"stopReason"'),
        ),
    )


CODEX_SERVER = Talk(
    ("app-server",),
    (
        ("send", _rpc(1, "initialize", clientInfo={"name": "test", "version": "1"})),
        ("until", '"id": ?1\\b.*'),
        ("send", json.dumps({"jsonrpc": "2.0", "method": "initialized"})),
        ("send", _rpc(2, "thread/start", cwd="{cwd}")),
        ("until", '"thread":\\{"id":"(?P<thread>[^"]+)"'),
        ("send", _rpc(3, "turn/start", threadId="{thread}", input=[{"type": "text", "text": PROMPT}])),
        ("until", "turn/completed"),
    ),
)
STREAM = Talk(
    ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
    (
        ("send", json.dumps({"type": "user", "message": {"role": "user", "content": PROMPT}})),
        ("until", '"type":"result"'),
    ),
)
PI_RPC = Talk(("--mode", "rpc"), (("send", json.dumps({"type": "prompt", "message": PROMPT})), ("until", "agent_end")))
ENTRIES: dict[str, dict[str, Screen | Talk | Command]] = {
    "claude": {
        "print": Command(("-p", PROMPT, "--allowedTools", "Bash")),
        "screen": Screen(r"(?m)^❯", (("C-c", "C-c"), ("C-d", "C-d"))),
        "stream": STREAM,
    },
    "codex": {
        "exec": Command(("exec", "-s", "danger-full-access", PROMPT)),
        "screen": Screen("Ask Codex", (("C-c",), ("C-c",))),
        "app-server": CODEX_SERVER,
    },
    "opencode": {
        "run": Command(("run", PROMPT)),
        "screen": Screen("Ask anything", (("C-c",), ("C-c",))),
        "acp": _acp("acp"),
    },
    "pi": {
        "print": Command(("-p", PROMPT)),
        "screen": Screen("/ commands", (("C-d",), ("C-c", "C-c"))),
        "rpc": PI_RPC,
    },
    "openclaw": {
        "agent": Command(("agent", "--agent", "main", "--message", PROMPT)),
        "screen": Screen("local ready", (("C-c", "C-c"), ("C-d",)), ("tui",)),
    },
    "qwen": {
        "prompt": Command(("--yolo", PROMPT)),
        "screen": Screen("Type your message", (("C-c", "C-c"), ("C-c", "C-c"))),
        "acp": _acp("--acp"),
    },
    "hermes": {
        "chat": Command(("chat", "--yolo", "-Q", "-q", PROMPT)),
        "screen": Screen("Type your message or /help", (("C-d",), ("C-c",))),
    },
}
