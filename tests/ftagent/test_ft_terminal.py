"""A launch in a terminal of its own, against the stand-in front: keys, signals, job control, what is restored afterwards."""

import os
import pty
import select
import signal
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.ftagent.terminal import Job

FAKE_FT = [sys.executable, "-P", str(Path(__file__).with_name("fake_ft.py"))]

pytestmark = pytest.mark.usefixtures("pulled")


class Terminal(Job):
    """`ft` as the foreground job of its own terminal, the way a shell starts it."""

    def __init__(self, sandbox, *arguments: str) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(sandbox.project)
            os.execve(sys.executable, [*FAKE_FT, *arguments], sandbox.env)
        self.output = ""

    def read_until(self, text: str, limit_s: float = 180.0) -> None:
        deadline = time.monotonic() + limit_s
        while text not in self.output:
            assert time.monotonic() < deadline, self.output
            if select.select([self.master], [], [], 0.1)[0]:
                self.output += os.read(self.master, 65536).decode(errors="replace")

    def press(self, key: bytes) -> None:
        os.write(self.master, key)


SAVES = """
import os, signal, sys, time
def save(*_):
    os.write(1, b"saving\\n"); time.sleep(float(sys.argv[1])); os.write(1, b"saved\\n"); sys.exit(0)
signal.signal(signal.SIGINT, save)
os.write(1, b"at work\\n")
while True: time.sleep(0.1)
"""


def test_case_12_an_agent_that_saves_after_ctrl_c_finishes(sandbox) -> None:
    (sandbox.root / "agent.py").write_text(SAVES)
    sandbox.agent(f"exec {sys.executable} {sandbox.root / 'agent.py'} 600")
    terminal = Terminal(sandbox, "launch", "pi")
    terminal.read_until("at work")
    terminal.press(b"\x03")
    terminal.read_until("saving")
    terminal.press(b"\x1c")  # Ctrl-\ during the save reaches the agent too, never us
    code = terminal.wait()
    assert code == 128 + signal.SIGQUIT


def test_case_12_saved_and_the_receipt_follows(sandbox) -> None:
    (sandbox.root / "agent.py").write_text(SAVES)
    sandbox.agent(f"exec {sys.executable} {sandbox.root / 'agent.py'} 0.5")
    terminal = Terminal(sandbox, "launch", "pi")
    terminal.read_until("at work")
    terminal.press(b"\x03")
    assert terminal.wait() == 0
    assert "saved" in terminal.output
    assert "requests served here" in terminal.output


RAW = """
import signal, subprocess, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
subprocess.run(["stty", "-echo", "-icanon"])
print("at work", flush=True)
time.sleep(600)
"""


def test_ctrl_c_that_kills_the_agent_is_130_and_the_terminal_is_restored(sandbox) -> None:
    (sandbox.root / "agent.py").write_text(RAW)
    sandbox.agent(f"exec {sys.executable} {sandbox.root / 'agent.py'}")
    terminal = Terminal(sandbox, "launch", "pi")
    before = termios.tcgetattr(terminal.master)
    terminal.read_until("at work")
    assert termios.tcgetattr(terminal.master)[3] != before[3]
    terminal.press(b"\x03")
    terminal.read_until("served here")
    assert termios.tcgetattr(terminal.master)[3] == before[3]
    assert terminal.wait() == 130


def test_ctrl_z_stops_both_and_continuing_goes_on(sandbox) -> None:
    sandbox.agent("echo at work; read line; echo got $line")
    job = f"{sys.executable} -P {FAKE_FT[2]} launch pi"
    env = {**sandbox.env, "PS1": "", "HISTFILE": ""}
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(sandbox.project)
        os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], env)
    shell = Terminal.__new__(Terminal)
    shell.pid, shell.master, shell.output = pid, master, ""
    shell.press(f"{job}\n".encode())
    shell.read_until("at work\r\n")
    shell.press(b"\x1a")
    shell.read_until("Stopped")
    shell.press(b"echo shell-$((6*7))\n")
    shell.read_until("shell-42")
    shell.press(b"fg\n")
    time.sleep(0.3)
    shell.press(b"line-one\n")
    shell.read_until("got line-one")
    shell.read_until("served here")
    shell.press(b"echo code-$?\n")
    shell.read_until("code-0")
    shell.press(b"exit\n")
    shell.wait()


def test_a_pager_behind_us_keeps_the_terminal(sandbox) -> None:
    """`ft launch … | less`: the reader shares our process group and reads keys from the terminal."""
    sandbox.agent("echo to the pager")
    reader = "import sys; print('read', sys.stdin.read().strip(), '/', open('/dev/tty').readline().strip(), flush=True)"
    (sandbox.root / "reader.py").write_text(reader)
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(sandbox.project)
        os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], {**sandbox.env, "PS1": "", "HISTFILE": ""})
    shell = Terminal.__new__(Terminal)
    shell.pid, shell.master, shell.output = pid, master, ""
    ft = f"{sys.executable} -P {FAKE_FT[2]}"
    shell.press(f"{ft} launch pi | {sys.executable} {sandbox.root / 'reader.py'}\n".encode())
    shell.read_until("served here")
    shell.press(b"a key\n")
    shell.read_until("read to the pager / a key")
    shell.press(b"exit\n")
    shell.wait()


def test_a_conversation_in_the_terminal(sandbox) -> None:
    terminal = Terminal(sandbox, "run")
    terminal.read_until(">>> ")
    terminal.press(b"good morning\n")
    terminal.read_until("You said: good morning.")
    terminal.press(b"again\n")
    terminal.read_until("You said: again.\r\n>>> ")  # the terminal is read again: an earlier Ctrl-D could be swallowed
    terminal.press(b"\x04")
    assert terminal.wait() == 0


def test_ctrl_c_while_waiting_ends_the_wait_not_the_engine(sandbox) -> None:
    sandbox.agent("exit 0")
    sandbox.env["FAKE_LOADING_S"] = "30"
    terminal = Terminal(sandbox, "launch", "pi")
    terminal.read_until("reading weights")
    terminal.press(b"\x03")
    assert terminal.wait() == 130
    assert sandbox.run("engine", "status").returncode == 0
