"""The worker as the front starts it, and the front's end of its socket."""

import select
import socket
import subprocess
import sys
from pathlib import Path

from engine.protocol import VERSION, Decoder, Submit, encode

ROOT = Path(__file__).parents[3]


class Wire:
    def __init__(self, runtime, *flags, program=("-m", "engine", "worker")):
        runtime.mkdir(exist_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(runtime / "worker.sock"))
        self.listener.listen()
        self.listener.settimeout(60)
        argv = [sys.executable, "-P", *program, "--runtime-dir", str(runtime), *flags]
        self.process = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.DEVNULL)
        self.connection, _ = self.listener.accept()
        self.connection.settimeout(60)
        self.decoder, self.queue = Decoder(), []
        self.send({"t": "hello", "version": VERSION})

    def send(self, message):
        self.connection.sendall(encode(message))

    def comes(self, seconds):
        """True as soon as there is something to take, False after so long."""
        return bool(self.queue) or bool(select.select([self.connection], [], [], seconds)[0])

    def until(self, accept):
        seen = []
        while not seen or not accept(seen[-1]):
            while not self.queue:
                data = self.connection.recv(1 << 16)
                assert data, "the worker closed the socket"
                self.queue += self.decoder.feed(data)
            seen.append(self.queue.pop(0))
        return seen

    def ask(self, rid, tokens, **fields):
        self.send(Submit(rid, tokens, 8, **fields).message())
        seen = self.until(lambda m: m["t"] in ("done", "error"))
        assert seen[-1]["t"] == "done", seen[-1]
        return [t for m in seen if m["t"] == "tokens" for t in m["ids"]], seen[-1]

    def memory(self, op, n=7, **asked):
        """The answer to a `memory` message; what came before it is put back."""
        fields = {"moe_slots": None, "kv_tokens": None, "preset": None, "auto": False, **asked}
        self.send({"t": "memory", "n": n, "op": op, **fields})
        seen = self.until(lambda m: m["t"] == "memory" and m["n"] == n)
        self.queue = seen[:-1] + self.queue
        return seen[-1]

    def close(self):
        self.process.kill()
        self.process.wait(10)
        self.connection.close()
        self.listener.close()
