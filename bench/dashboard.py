"""What a dashboard costs that is left open: `python bench/dashboard.py [--json] [--quick]`.

`ft top` in a terminal of its own (120 x 36), at 2 frames a second. Rows: `dashboard.first_paint`, from its start to its first
frame on the terminal, beside an engine and without one; `dashboard.cpu`, its share of one core while four sessions decode;
`dashboard.decode_ratio`, the speed of a decode with a dashboard attached over that without, in turns on one engine.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from ahead import Decode, engine, pairs

from engine.bench.rows import Row, row, show

ROWS, COLUMNS = 36, 120
PAINT_S = 30.0
SETTLE_S = 3.0  # until what is asked for once has been asked for
SESSIONS = 4
FIRST = b"Sessions"


class Display:
    """A dashboard in a terminal that nobody looks at."""

    def __init__(self, env: dict[str, str], *arguments: str) -> None:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        command = [sys.executable, "-P", "-m", "ftagent", "top", *arguments]
        began = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
        )
        os.close(slave)
        self._terminal = master
        self.first_s = self._first(began)
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def _first(self, began: float) -> float:
        shown = b""
        while FIRST not in shown:
            if time.perf_counter() - began > PAINT_S:
                sys.exit("dashboard: no first frame")
            if select.select([self._terminal], [], [], 1.0)[0]:
                shown += os.read(self._terminal, 1 << 16)
        return time.perf_counter() - began

    def _drain(self) -> None:
        try:
            while os.read(self._terminal, 1 << 16):
                pass
        except OSError:
            return

    def cpu_s(self) -> float:
        """Used so far, by all of its threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(5)
        os.close(self._terminal)


@contextmanager
def display(env: dict[str, str], *arguments: str) -> Iterator[Display]:
    made = Display(env, *arguments)
    try:
        yield made
    finally:
        made.close()


def first_paints(env: dict[str, str], arguments: list[str], count: int) -> list[float]:
    times = []
    for _ in range(count + 1):
        with display(env, *arguments) as made:
            times.append(made.first_s)
    return times[1:]  # the first one reads the files of the program


def share_of_core(client: httpx.Client, env: dict[str, str], arguments: list[str], seconds: float) -> list[float]:
    """While four sessions decode; one value for each fifth of `seconds`."""
    decodes = [Decode(client, 2_500) for _ in range(SESSIONS)]
    shares = []
    with display(env, *arguments) as made:
        time.sleep(SETTLE_S)
        for _ in range(5):
            used, began = made.cpu_s(), time.perf_counter()
            time.sleep(seconds / 5)
            shares.append((made.cpu_s() - used) / (time.perf_counter() - began))
    for decode in decodes:
        decode.end()
    return shares


def decode_rates(
    client: httpx.Client, env: dict[str, str], arguments: list[str], rounds: int, tokens: int
) -> tuple[list[float], list[float]]:
    """With a dashboard and without one; which is first changes with each round."""
    decode = Decode(client, 12_000)
    rates: dict[bool, list[float]] = {True: [], False: []}
    for round_ in range(rounds + 1):
        for attached in (True, False) if round_ % 2 else (False, True):
            if attached:
                with display(env, *arguments):
                    time.sleep(SETTLE_S)
                    rate = decode.rate(tokens)
            else:
                time.sleep(SETTLE_S)
                rate = decode.rate(tokens)
            if round_:  # the first one warms up
                rates[attached].append(rate)
    decode.end()
    return rates[True], rates[False]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-moe", help="name in --models-dir")
    parser.add_argument("--models-dir", type=Path, default=Path.home() / ".local/share/ft/models")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tokens", type=int, default=64, help="of the decode in each half of a round")
    parser.add_argument("--quick", action="store_true", help="4 rounds instead of 20")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rounds, paints, seconds = (4, 4, 10.0) if args.quick else (20, 10, 30.0)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="ft-bench-") as home:
        env = {"FT_HOME": home, "HOME": home, "PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        rows.append(row("dashboard.first_paint.no_engine", "s", first_paints(env, [], paints)))
        with engine(args.model, args.models_dir, args.threads) as client:
            env["FT_ENGINE_TOKEN"] = client.headers["authorization"].removeprefix("Bearer ")
            arguments = ["--engine", str(client.base_url).rstrip("/")]
            rows.insert(0, row("dashboard.first_paint", "s", first_paints(env, arguments, paints)))
            rows.append(row("dashboard.cpu", "share", share_of_core(client, env, arguments, seconds), fps=2))
            with_, without = decode_rates(client, env, arguments, rounds, args.tokens)
        ratios = [a / b for a, b in zip(pairs(with_), pairs(without), strict=True)]
        rows.append(row("dashboard.decode", "tokens/s", with_, without))
        rows.append(row("dashboard.decode_ratio", "ratio", ratios, samples=rounds))
    show(rows, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
