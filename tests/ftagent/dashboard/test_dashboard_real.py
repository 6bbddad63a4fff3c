"""The dashboard in a real terminal before a real engine: what it shows against a client's stopwatch and its usage."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.ftagent.dashboard.terminal import Terminal, agrees, duration, number

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")

CLIENT = """
import http.client, json, os, time, urllib.parse
base = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
messages, seen = [{"role": "system", "content": "You are brief."}], []
for words in (110, 60, 60):
    messages.append({"role": "user", "content": " ".join(f"item {i} of {words}," for i in range(words))})
    body = {"model": "any", "messages": messages, "max_tokens": 24, "stream": True, "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection(base.hostname, base.port, timeout=600)
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    began, first, text, usage = time.monotonic(), None, "", None
    connection.request("POST", base.path + "/chat/completions", json.dumps(body), headers)
    for line in connection.getresponse():
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            piece = choice["delta"].get("content") or choice["delta"].get("reasoning_content") or ""
            if piece and first is None:
                first = time.monotonic() - began
            text += piece
    seen.append({"ttft_s": first, "prompt": usage["prompt_tokens"], "output": usage["completion_tokens"],
                 "cached": (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)})
    messages.append({"role": "assistant", "content": text})
    time.sleep(0.5)
open(os.path.join(os.path.dirname(__file__), "client.json"), "w").write(json.dumps(seen))
"""


@pytest.fixture
def terminal(sandbox):
    opened: list[Terminal] = []

    def open_one(*arguments: str, **options) -> Terminal:
        opened.append(Terminal(sandbox, *arguments, **options))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def test_numbers_on_the_screen_are_the_clients(sandbox, terminal, models_dir: Path) -> None:
    sandbox.env |= {"FT_MODELS_DIR": str(models_dir), "FT_MODEL": "tiny-hybrid", "FT_THREADS": "2"}
    (sandbox.root / "client.py").write_text(CLIENT)
    (sandbox.root / "script.json").write_text(json.dumps({"turns": [{"blocks": [{"text": "All done."}]}]}))
    screen = terminal("top")
    screen.see("engine stopped|STOPPED|UNREACHABLE")
    assert sandbox.run("engine", "start", "-q", timeout=120).returncode == 0
    try:
        screen.see(r"READY")
        agent = sandbox.run(
            "launch", "mini", "--force", "--script", str(sandbox.root / "script.json"), "--", "Go.", timeout=120
        )
        assert agent.returncode == 0, agent.stderr
        screen.see(r"mini\S* +mini")
        client = sandbox.run(
            "launch", "run", "--force", "--", sys.executable, str(sandbox.root / "client.py"), timeout=300
        )
        assert client.returncode == 0, client.stderr
        seen = json.loads((sandbox.root / "client.json").read_text())
        screen.press("t")
        screen.see(r"Turns ─+ 4 ")
        for told in reversed(seen):  # the newest request is the first row
            screen.see(f"prompt {told['prompt']:,} = ")
            text = screen.text()
            split = re.search(r"prompt ([\d,]+) = cached ([\d,]+)(?: \+ replayed ([\d,]+))? \+ new ([\d,]+)", text)
            assert split is not None, text
            prompt, cached, replayed, new = (number(part or "0") for part in split.groups())
            assert (prompt, cached) == (told["prompt"], told["cached"])
            assert cached + replayed + new == prompt
            first = re.search(r"first token (\S+), .*?   ([\d,]+) out", text)
            assert first is not None, text
            assert number(first[2]) == told["output"]
            assert agrees(duration(first[1]), told["ttft_s"]), (first[1], told)
            screen.press("j")
        screen.press("1")
        screen.see("All requests|Sessions")
    finally:
        assert sandbox.run("engine", "stop").returncode == 0
    screen.see("(?i)engine stopped|engine does not answer", 20)
    screen.press("q")
    screen.see("ended with 0")


def test_a_terminal_without_colours_and_beyond_ascii(terminal) -> None:
    screen = terminal(
        "top",
        "--mock",
        "four",
        columns=80,
        rows=24,
        LANG="C",
        LC_ALL="C",
        NO_COLOR="1",
        PYTHONUTF8="0",
        PYTHONCOERCECLOCALE="0",
    )
    screen.see("Sessions")
    screen.see(r":2[1-9] ")  # the first frame is of :20 and drawn before keys are listened to
    assert screen.text().isascii(), screen.text()
    coloured = screen.tmux("capture-pane", "-p", "-e")
    assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|4[0-7]|38|48|9[0-7]|10[0-7])[;m]", coloured)
    screen.press("C-c")
    screen.see("press q to quit")
    screen.press("q")
    screen.see("ended with 0")
