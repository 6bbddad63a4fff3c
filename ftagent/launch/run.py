"""Runs the agent as a child that owns the terminal: signals, job control and the exit code are the agent's."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from ftagent.errors import AgentCannotRun, AgentMissing, FtError, NotHere

_PR_SET_PDEATHSIG = 1
_Handler = Callable[[int, FrameType | None], Any]


def run_agent(argv: Sequence[str], env: Mapping[str, str], cwd: Path, enter: Callable[[], None] | None = None) -> int:
    """The agent's exit code, or 128+n when signal n ended it. Raises FtError when it could not be started.

    `enter` is called in the child before it becomes the agent, see `sealed.Seal`.

    On a terminal whose foreground we are, the child becomes the foreground process group, so Ctrl-C reaches it and not us.
    Elsewhere it stays in our group, and reaches it with us. When we are killed it is told to end.
    """
    terminal = _foreground_terminal()
    saved = _terminal_settings(terminal)
    with _handlers() as passing:
        process = _start(argv, env, cwd, terminal, enter)
        try:
            passing.begin(process.pid, group=terminal is not None)
            status = _wait(process, terminal)
        finally:
            if terminal is not None:
                _give_terminal(terminal, os.getpgrp())
    if status != 0 and terminal is not None and saved is not None:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, saved)
    return status


def exec_agent(argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> NoReturn:
    """Becomes the agent. Python's own ignored signals are put back, because they would be inherited."""
    for name in ("SIGPIPE", "SIGXFSZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.chdir(cwd)
        os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606 - an argument list, no shell
    except OSError as error:
        raise _start_error(error, argv[0], cwd) from None


def _foreground_terminal() -> int | None:
    """The descriptor of our terminal when we are in its foreground; None in the background or without one.

    None as well when stdout goes elsewhere: a pager behind us in the pipe needs the foreground that it shares with us.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        descriptor = sys.stdin.fileno()
        if sys.stdout.isatty() and os.isatty(descriptor) and os.tcgetpgrp(descriptor) == os.getpgrp():
            return descriptor
    return None


def _terminal_settings(terminal: int | None) -> list[Any] | None:
    if terminal is None:
        return None
    try:
        return termios.tcgetattr(terminal)
    except termios.error:
        return None


def _give_terminal(terminal: int, group: int) -> None:
    """A background process that does this is stopped by SIGTTOU unless it is ignored meanwhile."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        with contextlib.suppress(OSError):
            os.tcsetpgrp(terminal, group)
    finally:
        signal.signal(signal.SIGTTOU, before)


def _start(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, terminal: int | None, enter: Callable[[], None] | None
) -> subprocess.Popen[bytes]:
    libc, parent = ctypes.CDLL(None), os.getpid()

    def prepare() -> None:
        if enter is not None:
            enter()
        # after `enter`, whose user namespace would undo it: an agent that outlived us would run on without a lease.
        # It is the end of the thread that starts the child which counts, and that is the one that waits for it.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # we ended before
            os._exit(128 + signal.SIGTERM)
        # in the child, so that it never reads from the terminal before it is in the foreground
        if terminal is not None:
            _give_terminal(terminal, os.getpgrp())

    try:
        return subprocess.Popen(  # no `with`: run_agent waits itself
            list(argv),
            env=dict(env),
            cwd=cwd,
            process_group=0 if terminal is not None else None,
            preexec_fn=prepare,
        )
    except subprocess.SubprocessError:
        raise AgentCannotRun(
            f"{argv[0]} was not started: the sealed network could not be set up.", "Launch without --sealed."
        ) from None
    except OSError as error:
        raise _start_error(error, argv[0], cwd) from None


def _start_error(error: OSError, program: str, cwd: Path) -> FtError:
    if not cwd.is_dir():
        return NotHere(f"The folder {cwd} does not exist.", "Start from another folder.")
    if error.errno == errno.ENOENT and not Path(program).exists():
        return AgentMissing(f"{program} is not there.", "Install the agent, see: ft doctor")
    reason = os.strerror(error.errno) if error.errno else str(error)
    return AgentCannotRun(f"{program} cannot run: {reason}.", "Reinstall the agent, see: ft doctor")


class _Passing:
    """Passes signals on to the agent. One that comes while the agent is being started is kept until its pid is known:
    ending here instead would leave an agent that nobody waits for."""

    def __init__(self) -> None:
        self._target: tuple[int, bool] | None = None
        self._kept: list[int] = []

    def begin(self, pid: int, group: bool) -> None:
        self._target = pid, group
        for number in self._kept:
            self.forward(number, None)

    def forward(self, number: int, frame: FrameType | None) -> None:
        if self._target is None:
            self._kept.append(number)
            return
        pid, group = self._target
        with contextlib.suppress(ProcessLookupError, PermissionError):
            (os.killpg if group else os.kill)(pid, number)


@contextlib.contextmanager
def _handlers() -> Iterator[_Passing]:
    """While the agent runs: INT and QUIT are its business alone, TERM and HUP are passed on to it.

    Handlers rather than SIG_IGN, because an ignored signal would stay ignored in the child.
    """
    passing = _Passing()

    def nothing(number: int, frame: FrameType | None) -> None:
        return None

    wanted: dict[signal.Signals, _Handler] = {
        signal.SIGINT: nothing,
        signal.SIGQUIT: nothing,
        signal.SIGTERM: passing.forward,
        signal.SIGHUP: passing.forward,
    }
    before: dict[signal.Signals, Any] = {}
    for number, handler in wanted.items():
        if signal.getsignal(number) is not signal.SIG_IGN:  # an inherited nohup stays
            before[number] = signal.signal(number, handler)
    try:
        yield passing
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _wait(process: subprocess.Popen[bytes], terminal: int | None) -> int:
    """Waits for the end; a stopped agent (Ctrl-Z) stops us too, and continuing us continues it."""
    options = os.WUNTRACED if terminal is not None else 0
    while True:
        _, status = os.waitpid(process.pid, options)
        if os.WIFSTOPPED(status) and terminal is not None:
            _give_terminal(terminal, os.getpgrp())
            os.killpg(os.getpgrp(), signal.SIGTSTP)
            # runs on here after `fg`
            _give_terminal(terminal, process.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
            continue
        code = os.waitstatus_to_exitcode(status)
        process.returncode = code
        return 128 - code if code < 0 else code
