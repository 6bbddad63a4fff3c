"""A worker without a model: speaks the real socket protocol, and misbehaves on request.

A scripted request gets its forced tokens; any other gets the last words of its own prompt, again and again. The
file named by FT_FAKE_WORKER is read at each submit: a JSON object with `tokens_per_s`, `silent_s` before the first
token (`background_silent_s` for background work), and `mode`: die, kill, garbage, freeze, error, wait (before ready, until the file `go` appears beside it) or
early (as wait, and serves meanwhile).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from engine.protocol import VERSION, Decoder, Submit, encode

CONTROL = Path(os.environ["FT_FAKE_WORKER"])


def control() -> dict[str, Any]:
    return json.loads(CONTROL.read_text()) if CONTROL.exists() else {}


class Job:
    def __init__(self, submit: Submit) -> None:
        rules = control()
        self.submit = submit
        self.mode = rules.get("mode", "")
        self.gap_s = 1 / rules.get("tokens_per_s", 2000)
        quiet = "background_silent_s" if submit.priority == "background" else "silent_s"
        self.next_s = time.monotonic() + rules.get(quiet, 0)
        self.sent = 0
        self.progress_s = time.monotonic()
        tail = [t for t in submit.tokens if 300 < t < 49000][-8:] or submit.tokens  # words, no control tokens
        self.ids = submit.forced or [tail[i % len(tail)] for i in range(submit.max_tokens)]


class Worker:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.jobs: dict[str, Job] = {}
        self.submits: list[dict[str, Any]] = []
        self.memory: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.sock.sendall(encode(message))

    def run(self) -> int:
        self.send({"t": "hello", "version": control().get("version", VERSION), "pid": os.getpid(), "nonce": "fake"})
        self.send({"t": "state", "state": "loading", "phase": "weights", "done": 1, "total": 2})
        if control().get("mode") == "fail":
            failure = {"code": "FT-E0510 weights", "message": "bank 3 is corrupt.", "hint": "Pull it again."}
            self.send({"t": "state", "state": "failed", "phase": "weights", "done": 1, "total": 2, **failure})
            return 1
        window = int(sys.argv[sys.argv.index("--kv") + 1]) if "--kv" in sys.argv else 65536
        window = control().get("window", window)
        ready = {"window": window, "kv_tokens": window, "backend": control().get("backend", "cpu")}
        while control().get("mode") == "wait" and not (CONTROL.parent / "go").exists():
            time.sleep(0.05)
        early = control().get("mode") == "early"
        if early:
            loading = {"state": "loading", "phase": "weights", "done": 1, "total": 2, "serves": True}
            self.send({"t": "state", **loading, **ready})
        else:
            self.send({"t": "state", "state": "ready", "phase": "ready", "done": 2, "total": 2, **ready})
        decoder = Decoder()
        while True:
            if early and (CONTROL.parent / "go").exists():
                early = False
                self.send({"t": "state", "state": "ready", "phase": "ready", "done": 2, "total": 2, **ready})
            readable, _, _ = select.select([self.sock], [], [], 0.001 if self.jobs else 0.2)
            if readable:
                data = self.sock.recv(1 << 16)
                if not data:
                    return 0
                for message in decoder.feed(data):
                    if message["t"] == "shutdown":
                        return 0
                    self.handle(message)
            for rid, job in list(self.jobs.items()):
                self.advance(rid, job)

    def handle(self, message: dict[str, Any]) -> None:
        if message["t"] == "submit":
            submit = Submit.parse(message)
            job = Job(submit)
            self.submits.append(message)
            self.jobs[submit.rid] = job
            n = len(submit.tokens)
            counts = {"prompt": n, "cached": n // 2, "replayed": 0, "new": n - n // 2, "resume_at": n // 2}
            counts |= {"anticipated": n // 4, "wasted": 1}
            self.send({"t": "accepted", "rid": submit.rid, "tier": "ram", **counts})
            if job.mode == "error":
                self.send(
                    {"t": "error", "rid": submit.rid, "code": "FT-E0500 worker-error", "message": "No.", "hint": ""}
                )
                del self.jobs[submit.rid]
        elif message["t"] == "cancel" and message["rid"] in self.jobs:
            self.finish(message["rid"], "cancelled")
        elif message["t"] == "memory":
            refusal = {"code": "FT-E0400 bad-request", "message": "KV 257 is odd.", "hint": "Give 256."}
            refused = message.get("kv_tokens") == 257 or (message.get("again") and control().get("refuse_again"))
            self.memory.append(message)
            answer = {"error": refusal} if refused else {"data": {"asked": message}}
            self.send({"t": "memory", "n": message["n"], **answer})
        elif message["t"] == "stats":
            data = {
                "running": len(self.jobs),
                "submits": len(self.submits),
                "last": self.submits[-1:],
                "memory": self.memory,
                "arguments": sys.argv[1:],
            }
            self.send({"t": "stats", "n": message["n"], "data": data})

    def advance(self, rid: str, job: Job) -> None:
        now = time.monotonic()
        if now < job.next_s:
            if now - job.progress_s > 0.5:
                job.progress_s = now
                self.send({"t": "progress", "rid": rid, "done": 1, "total": len(job.submit.tokens)})
            return
        if job.submit.max_tokens == 0:
            self.finish(rid, "stop")
            return
        if job.sent >= 2:
            self.misbehave(job.mode)
        job.next_s = now + job.gap_s
        token = job.ids[job.sent]
        logprobs = None
        if job.submit.sampling.logprobs >= 0:
            logprobs = [[token, -0.5, [[token, -0.5]] * job.submit.sampling.logprobs]]
        self.send({"t": "tokens", "rid": rid, "ids": [token], "logprobs": logprobs})
        job.sent += 1
        if job.sent == len(job.ids) or job.sent == job.submit.max_tokens:
            stopped = job.ids[job.sent - 1] in job.submit.stop_ids
            self.finish(rid, "stop" if stopped else "length")

    def finish(self, rid: str, reason: str) -> None:
        job = self.jobs.pop(rid)
        n = len(job.submit.tokens)
        usage = {"prompt": n, "cached": n // 2, "replayed": 0, "new": n - n // 2, "output": job.sent}
        usage |= {"anticipated": n // 4, "wasted": 1, "tier": "ram"}
        timings = dict.fromkeys(("queue_s", "restore_s", "prefill_s", "first_token_s", "decode_s"), 0.001)
        end = {"reason": reason, "stop_id": None, "timings": timings, "usage": usage}
        self.send({"t": "done", "rid": rid, **end, "experts": {"hits": 3, "misses": 1}})

    def misbehave(self, mode: str) -> None:
        if mode in ("die", "kill", "garbage", "freeze"):
            CONTROL.write_text("{}")  # once
        if mode == "die":
            os._exit(17)
        if mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if mode == "garbage":
            self.sock.sendall(b"\xff\xff\xff\xff garbage")
        if mode == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[sys.argv.index("--socket") + 1])
    sys.exit(Worker(connection).run())
