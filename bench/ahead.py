"""What work ahead costs a running decode: `python bench/ahead.py [--json] [--quick]`.

One session decodes without a pause while another asks again and again. Behind half of its answers something is left to compute
ahead, which waits for the machine to be idle; behind the others, which it does not wait for, nothing is. The decode's speed is measured behind
each answer, in turns, on one engine: what differs is the prediction made beside it and the work that waits.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from engine.bench.rows import row, show

READY_S = 180.0
PROMPT_WORDS = 1500  # of the session that asks
BESIDE_TOKENS = 80  # at most, of the decode while the other session is answered
SETTLE_S = 0.05  # the answer's own last step
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]  # a request of an agent


@contextmanager
def engine(
    model: str, models_dir: Path, threads: int, ahead: bool = True, record: Path | None = None
) -> Iterator[httpx.Client]:
    """A client of an engine of our own, with its admin token. It computes `ahead` or not, and leaves the tokens of all requests
    in the folder `record`, if one is named."""
    with tempfile.TemporaryDirectory(prefix="ft-bench-") as folder:
        run = Path(folder) / "run"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-P", "-m", "engine", "serve", "--model", model, "--models-dir", str(models_dir)]
        command += ["--runtime-dir", str(run), "--port", str(port), "--kv", "16k", "--threads", str(threads)]
        command += ["--anticipate", "on" if ahead else "off", "--log", str(Path(folder) / "engine.log")]
        environ = os.environ | ({"FT_RECORD_DIR": str(record)} if record is not None else {})
        with (Path(folder) / "output").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environ)
            try:
                yield _client(run / "engine.json", port, process)
            finally:
                for _ in range(2):  # the second one skips the drain
                    process.terminate()
                    time.sleep(0.2)
                process.wait(30)


def _client(record: Path, port: int, process: subprocess.Popen[bytes]) -> httpx.Client:
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        if record.exists():
            token = json.loads(record.read_text())["admin_token"]
            client = httpx.Client(
                base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=READY_S, trust_env=False
            )
            try:
                if client.get("/ready").status_code == 200:
                    return client
            except httpx.TransportError:
                pass
        time.sleep(0.1)
    sys.exit("the engine did not become ready")


class Decode:
    """A reply that goes on for as long as it is measured; a thread notes when each piece of it arrives."""

    def __init__(self, client: httpx.Client, tokens: int) -> None:
        script = {"turns": [{"blocks": [{"text": " the" * tokens}]}]}
        self._client, self._session = client, session(client, script=script)
        self._arrived: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        while len(self._arrived) < 8:
            self._goes_on()
            time.sleep(0.01)

    def _read(self) -> None:
        body = {"messages": [{"role": "user", "content": "go on"}], "stream": True, "max_tokens": 15_000}
        body["tools"] = TOOLS
        with self._client.stream("POST", chat(self._session), json=body, headers=bearer(self._session)) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {") and '"content"' in line:
                    self._arrived.append(time.perf_counter())
                if self._stop.is_set():
                    return

    def rate(self, tokens: int) -> float:
        """Tokens per second over the next `tokens`."""
        first = len(self._arrived)
        while len(self._arrived) <= first + tokens:
            self._goes_on()
            time.sleep(0.002)
        return tokens / (self._arrived[first + tokens] - self._arrived[first])

    def _goes_on(self) -> None:
        if not self._thread.is_alive():
            sys.exit("ahead: the reply that was to be measured has ended or was refused: ask for fewer rounds")

    def end(self) -> None:
        self._stop.set()
        self._thread.join(10)


def session(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    return client.post("/v1/sessions", json={"harness": "bench", **fields}).raise_for_status().json()  # type: ignore[no-any-return]


def chat(session: dict[str, Any]) -> str:
    return f"/s/{session['id']}/v1/chat/completions"


def bearer(session: dict[str, Any]) -> dict[str, str]:
    return {"authorization": f"Bearer {session['token']}"}


class Asker:
    """The other session. Each question goes on from the last one, so that little of it has to be computed."""

    def __init__(self, client: httpx.Client, questions: int) -> None:
        script = {"turns": [{"blocks": [{"tool": "bash", "args": {"command": "make"}}]}] * questions}
        self._client, self._session = client, session(client, script=script)
        self._history: list[dict[str, Any]] = [{"role": "user", "content": " word" * PROMPT_WORDS}]

    def ask(self, work: bool) -> None:
        """Something is left to compute ahead behind an answer; not so behind one that nobody waited for, and what was left
        before is dropped when it is asked for."""
        body, path, headers = {"messages": self._history, "tools": TOOLS}, chat(self._session), bearer(self._session)
        if work:
            answer = self._client.post(path, json=body, headers=headers).raise_for_status()
            said = answer.json()["choices"][0]["message"]
            result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "done"}
            self._history += [said, result]
        else:
            with self._client.stream("POST", path, json=body | {"stream": True}, headers=headers) as answer:
                next(line for line in answer.iter_lines() if line.startswith("data:"))
        deadline = time.monotonic() + 10
        while self._waits() != work:
            if time.monotonic() > deadline:
                sys.exit(f"ahead: work that waits for the decode: {not work} instead of {work}")
            time.sleep(0.01)

    def _waits(self) -> bool:
        """Something beside the decode is at the worker."""
        return int(self._client.get("/v1/stats").json()["at_worker"]) > 1


def measure(client: httpx.Client, rounds: int, tokens: int) -> list[dict[str, Any]]:
    decode = Decode(client, 2 * (rounds + 2) * (tokens + BESIDE_TOKENS))
    asker = Asker(client, rounds + 2)
    rates: dict[bool, list[float]] = {True: [], False: []}
    for round_ in range(rounds + 1):
        for work in (True, False) if round_ % 2 else (False, True):  # neither is always the later one
            asker.ask(work)
            time.sleep(SETTLE_S)
            rate = decode.rate(tokens)
            if round_:  # the first one warms up
                rates[work].append(rate)
    decode.end()
    slower = 1 - statistics.median(
        with_ / without for with_, without in zip(pairs(rates[True]), pairs(rates[False]), strict=True)
    )
    made = row("ahead.decode", "tokens/s", rates[True], rates[False])
    return [made, row("ahead.slowdown", "share", [slower], samples=rounds)]


def pairs(rates: list[float]) -> list[float]:
    """Of two rounds with opposite orders the sum: the decode slows down with its depth, and that cancels out."""
    return [a + b for a, b in zip(rates[::2], rates[1::2], strict=False)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-moe", help="name in --models-dir")
    parser.add_argument("--models-dir", type=Path, default=Path.home() / ".local/share/ft/models")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tokens", type=int, default=48, help="of the decode in each half of a round")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="6 rounds instead of 40")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with engine(args.model, args.models_dir, args.threads) as client:
        rows = measure(client, args.rounds or (6 if args.quick else 40), args.tokens)
    show(rows, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
