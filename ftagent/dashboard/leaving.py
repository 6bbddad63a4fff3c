"""What takes the terminal for a while: an agent, the pager. And what is asked of `ft` in passing."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from shutil import which

Work = Callable[[], Awaitable[None]]
PREVIEW_S = 20.0
NOT_THERE = 127


def child(command: Sequence[str]) -> Work:
    """Runs it in the foreground; Ctrl+C is the child's alone. What it printed stays until Enter."""

    async def work() -> None:
        code = await _foreground(command, None)
        print(f"\n[{'done' if code == 0 else f'exit {code}'}] Enter goes back to the dashboard", end="", flush=True)
        await asyncio.to_thread(_enter)

    return work


def page(text: str) -> Work:
    """Shows it in FT_PAGER, PAGER, less or more; where there is none, on the terminal itself."""

    async def work() -> None:
        chosen = os.environ.get("FT_PAGER") or os.environ.get("PAGER")
        command = shlex.split(chosen) if chosen else next((c for c in (["less", "-RX"], ["more"]) if which(c[0])), [])
        if not command or await _foreground(command, text) == NOT_THERE:
            print(text)
            await asyncio.to_thread(_enter)

    return work


async def _foreground(command: Sequence[str], text: str | None) -> int:
    """Exit code of the child, 127 when it is not there. Our own handler does nothing, and a child does not inherit it."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE if text is not None else None)
        return await asyncio.to_thread(_wait, process, text)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}")
        return NOT_THERE
    finally:
        signal.signal(signal.SIGINT, before)


def _wait(process: subprocess.Popen[bytes], text: str | None) -> int:
    process.communicate(text.encode() if text is not None else None)
    return process.returncode


def _enter() -> None:
    try:
        input()
    except (EOFError, KeyboardInterrupt):
        return


async def output(command: Sequence[str], columns: int = 80) -> str:
    """All that it prints, errors as well, for so wide a terminal; it is ended after `PREVIEW_S`, and when nobody waits any more."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "COLUMNS": str(columns)},
        )
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), PREVIEW_S)
    except TimeoutError:
        return f"no answer in {PREVIEW_S:.0f} s"
    finally:
        if process.returncode is None:  # nobody waits for it any more
            process.kill()
            await process.wait()
    return printed.decode("utf-8", "replace")
