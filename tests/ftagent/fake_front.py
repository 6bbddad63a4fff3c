"""A stand-in for the engine's front: the same addresses and answers, no model. Used beside tests with the real one."""

import fcntl
import json
import os
import secrets
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ARGUMENTS = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
RUNTIME = Path(ARGUMENTS["--runtime-dir"])
PORT = int(ARGUMENTS["--port"])
MODEL = ARGUMENTS["--model"]
MODE = os.environ.get("FAKE_MODE", "")
LOADING_S = float(os.environ.get("FAKE_LOADING_S", "0"))
ENDING_S = float(os.environ.get("FAKE_ENDING_S", "0"))
NONCE = secrets.token_hex(8)
ADMIN = "admin-" + secrets.token_hex(8)
BORN = time.monotonic()
SESSIONS = {}
IDLE = {}
SEEN = []


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def allowed(self):
        return self.headers.get("authorization") == f"Bearer {ADMIN}"

    def do_GET(self):
        if self.path == "/health":
            return self.answer(200, {"status": "ok", "nonce": NONCE, "pid": os.getpid(), "version": "0.0"})
        if self.path == "/ready":
            return self.ready()
        if not self.allowed():
            return self.answer(401, {"error": {"message": "no token"}})
        if self.path.startswith("/v1/sessions/"):
            id_ = self.path.split("/")[3]
            if id_ not in SESSIONS:
                return self.answer(404, {"error": {"message": self.path}})
            if not self.path.endswith("/turns"):
                return self.answer(200, {"id": id_, "name": SESSIONS[id_].get("name"), "requests": 2})
            record = {"prompt_tokens": 100, "cached_tokens": 60, "output_tokens": 5, "ttft_s": 0.25, "scripted": False}
            return self.answer(200, {"schema": "ft.request/1", "turns": [record, record]})
        if self.path == "/v1/sessions":
            return self.answer(200, {"sessions": [{"id": key, **body} for key, body in SESSIONS.items()]})
        if self.path.startswith("/v1/requests") and MODE == "damaged":
            failed = {"end": "error", "error": "FT-E0510 weights: bank-3.bin: expert 7 is damaged."}
            mistaken = {"end": "error", "error": "FT-E0413 prompt-too-long: too long."}
            return self.answer(200, {"requests": [failed, mistaken, {"end": "stop", "error": None}]})
        if self.path.startswith("/v1/requests"):
            return self.answer(200, {"schema": "ft.request/1", "requests": [{"api": "chat", "prompt_tokens": 7}]})
        if self.path == "/v1/stats":
            return self.answer(200, {"schema": "ft.stats/1", "model": MODEL, "running": 0})
        return self.answer(404, {"error": {"message": self.path}})

    def ready(self):
        age = time.monotonic() - BORN
        if MODE == "crashed":
            fields = {"state": "crashed", "message": "Not enough memory for the weights.", "hint": "Use --kv 8k."}
            return self.answer(503, fields)
        if MODE == "stuck":
            return self.answer(503, {"state": "loading", "phase": "reading weights", "progress": 0.25})
        if MODE == "early":
            return self.answer(503, {"state": "loading", "serves": True, "window": 65536, "model": MODEL})
        if age < LOADING_S:
            return self.answer(503, {"state": "loading", "phase": "reading weights", "progress": age / LOADING_S})
        fields = {"state": "ready", "window": 65536, "kv_tokens": 65536, "model": MODEL}
        return self.answer(200, {**fields, "stops_in_s": IDLE.get("after_s")})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if not self.allowed():
            return self.answer(401, {"error": {"message": "no token"}})
        if self.path == "/v1/sessions":
            if MODE == "hostile":
                return self.answer(201, {"id": "../../../../escaped", "token": "ft_sess_x", "window": 65536})
            id_ = body.get("id") or "s-" + "".join(
                secrets.choice("abcdefghijklmnopqrstuvwxyz234567") for _ in range(10)
            )
            SESSIONS[id_] = body
            (RUNTIME / "registered.json").write_text(json.dumps(body))
            return self.answer(
                201, {"id": id_, "token": "ft_sess_" + secrets.token_hex(8), "window": 65536, "max_output": 8192}
            )
        if self.path.endswith("/prefetch"):
            return self.answer(200, {"tokens": 900, "of": 1000, "tier": "disk", "eta_s": 0.5})
        if self.path == "/v1/engine/idle":
            IDLE.update(body)
            return self.answer(200, {"after_s": body["after_s"]})
        if self.path == "/v1/engine/stop":
            self.answer(202, {"stopping": True})
            if MODE != "deaf":
                threading.Thread(target=SERVER.shutdown).start()
            return None
        if self.path == "/v1/chat/completions":
            (RUNTIME / "asked.json").write_text(json.dumps(body))
            return self.stream(body)
        return self.answer(404, {"error": {"message": self.path}})

    def do_DELETE(self):
        if not self.allowed():
            return self.answer(401, {"error": {"message": "no token"}})
        known = SESSIONS.pop(self.path.removeprefix("/v1/sessions/"), None)
        if known is None:
            return self.answer(404, {"error": {"message": self.path}})
        return self.answer(200, {"deleted": True})

    def stream(self, body):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        words = ["You said: ", body["messages"][-1]["content"].strip(), "."]
        deltas = [{"role": "assistant", "content": ""}, {"reasoning_content": "hm"}, *({"content": w} for w in words)]
        chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
        chunks.append({"choices": [], "usage": usage})
        for chunk in chunks:
            if MODE in ("dies-between", "dies-within") and chunk["choices"] and chunk["choices"][0]["finish_reason"]:
                self.wfile.write(b'data: {"choices": [{"del' if MODE == "dies-within" else b"")
                self.wfile.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.write(b": alive\n\ndata: [DONE]\n\n")


def ending():
    """As the real one: it says so, answers no more, and has the folder until its work is done."""
    (RUNTIME / "engine.json").write_text(json.dumps({**RECORD, "ending": True}))
    SERVER.server_close()
    time.sleep(ENDING_S)
    (RUNTIME / "engine.json").unlink()


LOCK = (RUNTIME / "supervisor.lock").open("a+")
while True:
    try:
        fcntl.flock(LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    except BlockingIOError:
        record = RUNTIME / "engine.json"
        if record.exists() and "ending" not in record.read_text():
            sys.exit(6)
        time.sleep(0.05)
LOCK.truncate(0)
LOCK.write(f"{os.getpid()} {Path('/proc/self/stat').read_text().rpartition(')')[2].split()[19]}\n")
LOCK.flush()
with (RUNTIME / "starts").open("a") as starts:
    starts.write(f"{os.getpid()}\n")
(RUNTIME / "environment.json").write_text(json.dumps(dict(os.environ)))
print("fake front: reading", MODEL, flush=True)
if MODE == "dies":
    print("fake front: the weights are broken", flush=True)
    sys.exit(5)
SERVER = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
if MODE == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=SERVER.shutdown).start())
RECORD = {"pid": os.getpid(), "start_time": 0, "port": PORT, "nonce": NONCE, "admin_token": ADMIN, "model": MODEL}
(RUNTIME / "engine.json").write_text(json.dumps(RECORD))
SERVER.serve_forever()
if ENDING_S:
    ending()
