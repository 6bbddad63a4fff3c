"""`ft` on an empty machine, in a real terminal: the real measurement, the real ranking, a real pull from a hub on loopback, the real engine."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ftagent.first_run import offers
from ftagent.first_run.ask import Page, _foot
from ftagent.output import Style
from tests.engine.weights.hub_server import Hub, serving
from tests.engine.weights.test_weights_pull import QWEN3, separate, write_repo
from tests.ftagent.terminal import Job

FT = [sys.executable, "-P", "-m", "ftagent"]
NOWHERE = "http://127.0.0.1:9"  # nobody listens
ENTER, ESCAPE = b"\r", b"\x1b"
ROWS, COLUMNS = 24, 80
LIMIT_S = 400.0  # the machine may be busy with anything
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(Job):
    """`ft` in a terminal of 80x24. `enters` counts the presses of Enter."""

    def __init__(self, sandbox: Any, *arguments: str) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(sandbox.project)
            os.execve(sys.executable, [*FT, *arguments], sandbox.env)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.output, self.enters, self.seen = "", 0, 0

    @property
    def text(self) -> str:
        """Without what moves the cursor and paints."""
        return _CONTROL.sub("", self.output).replace("\r", "")

    def until(self, words: str, limit_s: float = LIMIT_S) -> str:
        """What came up to `words` since the last call."""
        deadline = time.monotonic() + limit_s
        while (at := self.text.find(words, self.seen)) < 0:
            assert time.monotonic() < deadline, self.text
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.output += os.read(self.master, 65536).decode(errors="replace")
                except OSError:
                    raise AssertionError(f"ended without {words!r}: {self.text}") from None
        before, self.seen = self.text[self.seen : at + len(words)], at + len(words)
        return before

    def press(self, key: bytes) -> None:
        self.enters += key in (ENTER, b"\n")
        os.write(self.master, key)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint with a window that an agent takes, whose second file is larger than its first."""
    config = {**QWEN3, "max_position_embeddings": 65536}
    folder = write_repo(tmp_path_factory.mktemp("hub") / "small", config, separate(config), shards=4)
    first, last = (folder / f"model-0000{number}-of-00004.safetensors" for number in (1, 4))
    first.rename(folder / "aside"), last.rename(first), (folder / "aside").rename(last)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    swap = {first.name: last.name, last.name: first.name}
    index["weight_map"] = {name: swap.get(file, file) for name, file in index["weight_map"].items()}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.fixture
def hub(published: Path, sandbox: Any) -> Iterator[Hub]:
    """One that has the small checkpoint under the name of every known model."""
    from engine.weights.catalogue import known_models

    with serving({model.repo: published for model in known_models().values()}) as server:
        sandbox.env |= {"HF_ENDPOINT": server.url, "HF_HUB_DISABLE_TELEMETRY": "1", "FT_MEMORY": "64g"}
        yield server


@pytest.fixture
def engine_ends(sandbox: Any) -> Iterator[None]:
    yield
    sandbox.run("engine", "stop")


@pytest.mark.usefixtures("engine_ends")
def test_an_empty_machine_runs_an_agent_after_at_most_five_enters(sandbox: Any, hub: Hub) -> None:
    """Half a minute on a quiet machine: everything in it is the real thing but the size of the checkpoint."""
    sandbox.agent("echo the agent runs; exit 7")
    terminal = Terminal(sandbox)
    first = terminal.until("Enter measure")
    assert "step 1 of 5" in first and "about 10 s" in first and "downloads nothing" in first
    terminal.press(ENTER)
    assert "$ ft bench bw --quick" in terminal.until("step 2 of 5")
    assert list((sandbox.ft_home / "state" / "profiles").iterdir())
    ranked = terminal.until("Enter get it")
    assert re.search(r"> 1 \S+  window [\d,]+, [\d.]+ tokens/s, first prompt", ranked), ranked
    assert re.search(r"Costs: downloads 0 MB .* writes [\d.]+ GB, about", ranked), ranked
    terminal.press(ENTER)
    third = terminal.until("Enter take it")
    assert re.search(r"> 1 pi  ", third) and "claude  not installed" in third
    terminal.press(ENTER)
    plan = terminal.until("Enter launch")
    assert "nothing has been changed" in plan and "Run without --dry-run to launch." in plan
    assert not list((sandbox.ft_home / "state").glob("sessions/*"))
    terminal.press(ENTER)
    terminal.until("the agent runs")
    assert terminal.wait() == 7, "the agent's own code"
    assert terminal.enters <= 5
    assert terminal.enters == 4
    kept = json.loads((sandbox.ft_home / "state" / "guide.json").read_text())
    assert kept["closed"] and kept["agent"] == "pi"
    model = sandbox.run("config", "get", "model").stdout.strip()
    assert model == kept["model"] and model in json.dumps(json.loads(sandbox.run("models", "ls", "--json").stdout))
    after = Terminal(sandbox)
    after.until("q quit", 60)
    after.press(b"q")
    assert after.wait() == 0 and "step " not in after.text


def test_without_a_hub_the_model_of_the_package_is_offered_and_why(sandbox: Any) -> None:
    sandbox.env |= {"HF_ENDPOINT": NOWHERE, "FT_MEMORY": "64g"}
    terminal = Terminal(sandbox)
    terminal.until("Enter measure")
    terminal.press(b"s")
    shown = terminal.until("Enter get it")
    assert re.search(r"\S+ and \d+ more cannot be had from here: The hub cannot be reached", shown), shown
    assert "> 1 smollm2-moe" in shown and "writes 788 MB" in shown and "ft models pull smollm2-moe" in shown
    terminal.press(ESCAPE)
    assert terminal.wait() == 0 and "nothing is lost" in terminal.text
    again = Terminal(sandbox)
    again.until("step 2 of 5")
    again.until("Enter get it")
    again.press(b"q")
    assert again.wait() == 0


def test_a_machine_too_small_for_every_known_model_is_told_and_gets_the_small_one(sandbox: Any) -> None:
    sandbox.env |= {"HF_ENDPOINT": NOWHERE, "FT_MEMORY": "1g"}
    terminal = Terminal(sandbox)
    terminal.until("Enter measure")
    terminal.press(b"s")
    shown = terminal.until("Enter get it")
    assert "No known model fits here with room for an agent. The nearest: " in shown, shown
    assert "> 1 smollm2-moe" in shown
    terminal.press(b"\x03")
    assert terminal.wait() == 130 and "nothing is lost" in terminal.text


def test_an_interrupted_pull_goes_on_where_it_stopped(sandbox: Any, hub: Hub) -> None:
    """The first file has arrived when Ctrl-C comes; the next `ft` offers to go on, and that file is not asked for again."""
    hub.cut_after, hub.cuts = 60_000, 1_000  # the second file is the first that is larger
    terminal = Terminal(sandbox)
    terminal.until("Enter measure")
    terminal.press(b"s")
    terminal.until("Enter get it")
    terminal.press(ENTER)
    terminal.until("Connection lost")
    terminal.press(b"\x03")
    terminal.until("was not finished; what has arrived is kept")
    terminal.press(b"q")
    assert terminal.wait() == 0
    first = "model-00001-of-00004.safetensors"
    assert [r for r in hub.requests if r[1].endswith(first) and r[2].endswith("-")]
    hub.requests.clear()
    hub.cuts = 0
    again = Terminal(sandbox)
    again.until("was not finished; what has arrived is kept")
    again.until("Enter go on")
    again.press(ENTER)
    again.until("step 3 of 5")
    assert not [r for r in hub.requests if r[1].endswith(first) and r[2].endswith("-")], hub.requests
    again.press(b"q")
    assert again.wait() == 0


NPM = """\
#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = --prefix ] && prefix=$2; shift; done
mkdir -p $prefix/node_modules/.bin
for name in claude codex opencode qwen pi; do
  printf '#!/bin/sh\\necho 1.0.0\\n' > $prefix/node_modules/.bin/$name; chmod +x $prefix/node_modules/.bin/$name
done
"""


def kept(sandbox: Any, **fields: Any) -> None:
    """As the guide leaves it after its first steps."""
    file = sandbox.ft_home / "state" / "guide.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"measured": True, **fields}))


@pytest.mark.usefixtures("pulled")
def test_where_no_agent_is_installed_one_is_offered_and_installed_by_enter(sandbox: Any) -> None:
    """npm is a stand-in; the real registries are in test_ft_agents_install.py."""
    kept(sandbox, model="smollm2-moe")
    (sandbox.bin / "npm").write_text(NPM)
    (sandbox.bin / "npm").chmod(0o755)
    terminal = Terminal(sandbox)
    shown = terminal.until("Enter install it")
    assert "No agent is installed." in shown and "> 1 claude  not installed: @anthropic-ai/claude-code" in shown
    assert "npm install --prefix" in shown
    terminal.press(ENTER)
    terminal.until("Enter launch")
    assert (sandbox.ft_home / "data" / "agents" / "bin" / "claude").exists()
    terminal.press(b"q")
    assert terminal.wait() == 0 and terminal.enters == 1


@pytest.mark.usefixtures("pulled")
def test_without_npm_the_agent_that_is_part_of_ft_is_the_default(sandbox: Any) -> None:
    kept(sandbox, model="smollm2-moe")
    sandbox.env["PATH"] = str(sandbox.bin)
    terminal = Terminal(sandbox)
    shown = terminal.until("q leave")
    assert re.search(r"> 1 (mini  part of ft|hermes)", shown), shown
    assert "claude  not installed: @anthropic-ai/claude-code 2" in shown and "needs npm" in shown
    terminal.press(b"q")
    assert terminal.wait() == 0


@pytest.mark.usefixtures("pulled")
def test_plain_prompts_where_the_cursor_does_not_move(sandbox: Any) -> None:
    """TERM=dumb: lines only, a number chooses, not one escape sequence; NO_COLOR leaves the cursor and takes the paint."""
    kept(sandbox, model="smollm2-moe")
    sandbox.agent("true")
    sandbox.agent("true", name="codex")
    sandbox.env["TERM"] = "dumb"
    terminal = Terminal(sandbox)
    assert "[Enter: take it, 1-" in terminal.until("leave] ")
    terminal.press(b"2\n")
    assert "> 2 pi" in terminal.until("leave] ")
    terminal.press(b"q\n")
    assert terminal.wait() == 0
    assert "\x1b" not in terminal.output
    sandbox.env |= {"TERM": "xterm", "NO_COLOR": "1"}
    painted = Terminal(sandbox)
    painted.until("q leave")
    painted.press(b"\x1b[B")
    assert "> 2 pi" in painted.until("q leave")
    painted.press(b"q")
    assert painted.wait() == 0
    assert "\x1b[1m" not in painted.output and "F\x1b[J" in painted.output


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_every_line_of_a_step_is_on_a_screen_of_80_by_24_in_tmux(sandbox: Any) -> None:
    sandbox.env |= {"HF_ENDPOINT": NOWHERE, "FT_MEMORY": "4096g"}
    tmux = ["tmux", "-S", str(sandbox.root / "tmux"), "-f", "/dev/null"]

    def screen(words: str) -> str:
        deadline = time.monotonic() + LIMIT_S
        while True:
            shown = subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True).stdout
            if words in shown:
                return shown
            assert time.monotonic() < deadline, shown
            time.sleep(0.1)

    size = ["-x", str(COLUMNS), "-y", str(ROWS)]
    start = [*tmux, "new-session", "-d", *size, "-c", str(sandbox.project), *FT]
    subprocess.run(start, env=sandbox.env, check=True)
    try:
        first = screen("q leave")
        assert "step 1 of 5" in first and "5 launch" in first
        subprocess.run([*tmux, "send-keys", "s"], check=True)
        second = screen("step 2 of 5")
        second = screen("Enter get it")
        assert "step 2 of 5" in second and "Runs:" in second and "Costs:" in second, second
        subprocess.run([*tmux, "send-keys", "Escape"], check=True)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def test_a_machine_that_is_set_up_or_cannot_be_asked_has_no_guide(sandbox: Any) -> None:
    from ftagent.first_run.kept import wanted
    from ftagent.paths import find_paths

    paths = find_paths(sandbox.env)
    assert wanted(paths, sandbox.env)
    assert not wanted(paths, {**sandbox.env, "FT_ENGINE": "http://127.0.0.1:1"})
    kept(sandbox)
    assert wanted(paths, sandbox.env)
    kept(sandbox, closed=True)
    assert not wanted(paths, sandbox.env)
    (paths.state / "guide.json").unlink()
    for place in (paths.config_file, paths.engine_file, paths.models / "mine" / "ftw.json"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("{}")
        assert not wanted(paths, sandbox.env), place
        place.unlink()
    kept(sandbox)
    (paths.sessions / "s-aaaaaaaaaa").mkdir(parents=True)
    assert not wanted(paths, sandbox.env)
    assert sandbox.run("guide").returncode == 2
    assert sandbox.run().returncode == 2


def test_a_disk_without_room_and_a_closed_repository_are_reasons() -> None:
    """The ranking, and what stands in a row's way, as they come from the engine's own functions."""
    from engine.errors import NotFound
    from engine.experts.profile import Profiles
    from engine.memory.hardware import Hardware
    from engine.weights import obtain
    from engine.weights.fit import best_of_each, rank
    from engine.weights.machine import Speeds

    rows = best_of_each(rank(Hardware(1 << 50, 8), Speeds(40e9, 400e9, Profiles(None))))
    largest = max(rows, key=lambda row: row.weights_bytes)

    def sizes(repo: str) -> int:
        if repo == rows[0].repo:
            raise NotFound(f"{repo} is only open to users who accepted its terms.")
        return 1_000_000

    found = obtain.costs(rows, Path.cwd(), sizes, free_bytes=largest.weights_bytes - 1)
    by_name = {row.name: cost for row, cost in zip(rows, found, strict=True)}
    assert "accepted its terms" in by_name[rows[0].name].problem
    assert "are needed and" in by_name[largest.name].problem
    document = {
        "models": [
            {**{f: getattr(row, f) for f in ("name", "window_tokens", "tokens_per_second", "first_prompt_s", "serves")}}
            | {"command": row.command, "pulled_name": row.pulled_name, "cost": cost.to_json()}
            for row, cost in zip(rows, found, strict=True)
        ]
    }
    told = offers.models(document, [])
    assert told.offers[0].name == next(row.pulled_name for row in rows if not by_name[row.name].problem)
    assert told.offers[0].costs()[0].startswith("Costs: downloads 1 MB")
    assert len(told.reasons) == 2


def test_a_mirror_and_a_cache_that_were_named_reach_the_engine(sandbox: Any, tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "models--org--small" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors").write_text("")
    done = sandbox.run("models", "import", "--list", env={"HF_HOME": str(tmp_path)})
    assert "hf:org/small" in done.stdout, done.stderr


def test_keys_take_the_lines_they_need_and_none_is_parted_from_what_it_does() -> None:
    keys = {"m": "another model", "d": "dashboard, and no guide again"}
    lines = _foot(Page(["step"], "install it", ("one", "two"), keys=keys), Style(False), 79)
    assert len(lines) == 2 and all(len(line) <= 79 for line in lines)
    assert "d dashboard, and no guide again" in "|".join(lines) and lines[-1].endswith("q leave")
    assert _foot(Page(["step"], "go"), Style(False), 79) == ["Enter go  q leave"]
