"""Runs commands in a network namespace that has nothing but loopback, and tells what tried to leave it.

    unshare -n -p --fork --kill-child --mount-proc python inside.py SPEC.json

SPEC: {"cwd", "env", "report", "commands": [{"argv", "timeout_s"}], "at_once", "after": [{"argv", "timeout_s"}]}. So many of
the commands run at once, those of `after` one by one when all have ended. The report holds one result per command, the names that were looked up (a resolver of our own answers all of them with "no such name") and how many
packets found no route. As the first process of its namespace this one takes every process left over with it.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

NO_SUCH_NAME = 3
LAST = b"the last packet of all"


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    report_path = Path(spec["report"])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    names = _start_resolver(report_path.parent / "resolv.conf")
    seen, caught_up = _watch_for([secret.encode() for secret in spec.get("secrets", [])])
    before = _no_routes()
    folder = report_path.parent / "out"
    folder.mkdir(exist_ok=True)
    numbers = itertools.count()
    with ThreadPoolExecutor(spec.get("at_once", 1)) as pool:
        results = list(pool.map(lambda command: _run(command, spec, folder / str(next(numbers))), spec["commands"]))
    results += [_run(command, spec, folder / str(next(numbers))) for command in spec.get("after", [])]
    _await_watcher(caught_up)
    report = {
        "results": results,
        "names": sorted(set(names)),
        "no_routes": _no_routes() - before,
        "secrets": sorted(set(seen)),  # each with the name of the program at whose port the packet was, or came from
    }
    report_path.write_text(json.dumps(report))


def _run(command: dict[str, Any], spec: dict[str, Any], output: Path) -> dict[str, Any]:
    """Output goes to files: a background process that outlives the command must not keep us waiting on a pipe."""
    out, err = output.with_suffix(".out"), output.with_suffix(".err")
    start = time.monotonic()
    with out.open("wb") as out_file, err.open("wb") as err_file:
        child = subprocess.Popen(
            command["argv"],
            cwd=spec["cwd"],
            env=spec["env"],
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=err_file,
            start_new_session=True,
        )
        try:
            code = child.wait(timeout=command["timeout_s"])
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            code = None
    return {
        "argv": command["argv"],
        "code": code,
        "wall_s": round(time.monotonic() - start, 2),
        "stdout": out.read_text(errors="replace"),
        "stderr": err.read_text(errors="replace"),
    }


def _start_resolver(resolv_conf: Path) -> list[str]:
    """Puts a resolver of our own in the place of the machine's and returns the list it fills with names."""
    resolv_conf.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    target = Path("/etc/resolv.conf").resolve()
    subprocess.run(["mount", "--bind", str(resolv_conf), str(target)], check=True)
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    names: list[str] = []
    threading.Thread(target=_answer, args=(server, names), daemon=True).start()
    return names


def _watch_for(secrets: list[bytes]) -> tuple[list[tuple[str, str]], threading.Event]:
    """Looks at every packet on loopback. The list that it fills with those of `secrets` that it saw and who listened, and what
    tells that it has seen `LAST`."""
    everything = socket.htons(3)
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, everything)
    tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    tap.bind(("lo", 0))
    seen: list[tuple[str, str]] = []
    caught_up = threading.Event()
    threading.Thread(target=_look, args=(tap, secrets, seen, caught_up), daemon=True).start()
    return seen, caught_up


def _await_watcher(caught_up: threading.Event) -> None:
    """Until it has looked at every packet so far."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(LAST, ("127.0.0.1", 9))
    if not caught_up.wait(60):
        sys.exit("the watcher of packets does not follow")


def _look(tap: socket.socket, secrets: list[bytes], seen: list[tuple[str, str]], caught_up: threading.Event) -> None:
    looks = {secret: (secret, *_in_base64(secret)) for secret in secrets}
    listeners: dict[int, str] = {}
    while True:
        packet = tap.recv(1 << 17)
        if packet.endswith(LAST):
            caught_up.set()
        begins, source, destination = _way(packet)
        if secrets and begins:  # while whoever listens is surely there
            listeners[destination] = _listener(destination)
        found = [secret for secret, forms in looks.items() if any(form in packet for form in forms)]
        who = listeners.get(destination) or listeners.get(source) or ""
        seen += [(secret.decode(), who) for secret in found]


def _in_base64(secret: bytes) -> list[bytes]:
    """What is the same of its base64 form at each place it can have in a longer text."""
    forms = []
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + secret)
        forms.append(text[-(-shift * 8 // 6) : (shift + len(secret)) * 8 // 6])
    return forms


def _way(packet: bytes) -> tuple[bool, int, int]:
    """Whether it begins a connection of TCP, its source and its destination, of a frame that holds IPv4 or IPv6."""
    six = packet[12:14] == b"\x86\xdd"
    transport = 14 + (40 if six else (packet[14] & 15) * 4)
    tcp = packet[20 if six else 23] == socket.IPPROTO_TCP
    begins = tcp and packet[transport + 13] & 0x12 == 0x02
    ports = struct.unpack_from("!HH", packet, transport)
    return begins, *ports


def _listener(port: int) -> str:
    """The program that listens there; empty where none does."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    listens = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port}
    for file in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(file.readlink()) in listens:
                return (file.parents[1] / "comm").read_text().strip()
    return ""


def _answer(server: socket.socket, names: list[str]) -> None:
    while True:
        query, client = server.recvfrom(4096)
        name, end = _question(query)
        names.append(name)
        flags = (0x8180 | NO_SUCH_NAME).to_bytes(2, "big")
        counts = b"\x00\x01" + b"\x00" * 6
        server.sendto(query[:2] + flags + counts + query[12:end], client)


def _question(query: bytes) -> tuple[str, int]:
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode(errors="replace"))
        at += query[at] + 1
    return ".".join(labels), at + 5


def _no_routes() -> int:
    """Packets of this namespace that had nowhere to go, IPv4 and IPv6."""
    rows = [line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Ip:")]
    count = int(dict(zip(rows[0], rows[1], strict=True))["OutNoRoutes"])
    for line in Path("/proc/net/snmp6").read_text().splitlines():
        if line.startswith("Ip6OutNoRoutes"):
            count += int(line.split()[1])
    return count


main()
