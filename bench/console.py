"""The picture of the web console in docs/console.md: a real engine with sessions at work, seen by a headless Chromium.

python bench/console.py [--models-dir DIR] [--dark] [--wide 1440] [FILE]

It takes about two minutes. Without a Chromium, on PATH or from npm, the picture stays as it is, and a line says so.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from tests import chromium  # noqa: E402
from tests.browser import Browser, Page  # noqa: E402
from tests.serving import Engine, engine_server  # noqa: E402

MODEL = "smollm2-moe"
FLAGS = [
    "--device",
    "emulated",
    "--moe-backend",
    "offload",
    "--device-memory",
    "640m",
    "--preset",
    "chat",
    "--anticipate",
    "off",
]
PRICES = {"input": 3.0, "cached": 0.3, "output": 15.0}
LIMIT_S = 120.0
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}]


class Talk:
    """One session that grows turn by turn."""

    def __init__(self, engine: Engine, name: str, watchdog_s: float) -> None:
        session = engine.session(name=name, watchdog_s=watchdog_s)
        self.url = f"{session['base_urls']['openai']}/chat/completions"
        self.head = {"authorization": f"Bearer {session['token']}"}
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": "You are brief. Today is Monday."}]

    def turn(self, words: int, tokens: int) -> None:
        """One more question of so many words, and its answer."""
        self.messages.append({"role": "user", "content": " ".join(f"line {n} of the file" for n in range(words // 5))})
        body = {"model": "any", "messages": self.messages, "max_tokens": tokens, "tools": TOOLS}
        answer = httpx.post(self.url, headers=self.head, json=body, timeout=LIMIT_S, trust_env=False)
        self.messages.append(answer.raise_for_status().json()["choices"][0]["message"])

    def new_day(self) -> None:
        """What a client does that puts the date into its first line."""
        self.messages[0] = {"role": "system", "content": "You are brief. Today is Tuesday."}


def models(folder: Path) -> Path:
    """A folder that has the model."""
    if not (folder / MODEL / "ftw.json").exists():
        command = [sys.executable, "-P", "-m", "engine", "models", "pull", MODEL, "--models-dir", str(folder)]
        subprocess.run(command, check=True, cwd=ROOT)
    return folder


def play(engine: Engine) -> list[threading.Thread]:
    """Three sessions of which two are still at work afterwards; memory changes hands between."""
    shop, docs, review = Talk(engine, "shop", 300), Talk(engine, "docs", 600), Talk(engine, "review", 600)
    for words in (200, 60, 60):
        shop.turn(words, 24)
    docs.turn(150, 24)
    engine.client.post("/v1/engine/memory/apply", json={"kv_tokens": 6144}, timeout=LIMIT_S).raise_for_status()
    shop.turn(60, 24)
    shop.new_day()
    shop.turn(40, 24)
    docs.turn(60, 24)
    review.turn(60, 12)
    engine.client.post("/v1/engine/memory/apply", json={"kv_tokens": 8192}, timeout=LIMIT_S).raise_for_status()
    shop.turn(60, 24)
    return [threading.Thread(target=docs.turn, args=(300, 30)), threading.Thread(target=review.turn, args=(600, 8))]


def picture(page: Page, engine: Engine) -> bytes:
    """The page with something in flight and a plan of the memory on the slider."""
    at_work = play(engine)
    page.run("document.querySelector('[data-preset=agent]').click()")
    for thread in at_work:
        thread.start()
    page.wait(
        "Math.max(0, ...[...document.querySelectorAll('#flight-body progress')].map((one) => one.value)) > 0.1", LIMIT_S
    )
    page.wait(
        "document.querySelector('[data-then=kv_tokens]') !== null && document.querySelector('#chart-misses svg') !== null",
        LIMIT_S,
    )
    taken = page.picture(whole=True)
    for thread in at_work:
        thread.join()
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "docs" / "images" / "console.png")
    parser.add_argument("--models-dir", type=Path, default=ROOT / "build" / "bench" / "models")
    parser.add_argument("--wide", type=int, default=1440)
    parser.add_argument("--dark", action="store_true")
    args = parser.parse_args()
    try:
        program = chromium.executable()
    except chromium.Missing as missing:
        print(f"{args.file} stays as it is: {missing}")
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="ft-console-") as folder,
        engine_server(MODEL, models(args.models_dir), flags=FLAGS) as engine,
        Browser(Path(folder), program) as browser,
    ):
        url = engine.client.post("/v1/engine/console", json={"prices": PRICES}).raise_for_status().json()["url"]
        page = browser.open(url, args.wide, 1000, args.dark)
        page.wait("document.getElementById('kv').disabled === false")
        args.file.write_bytes(picture(page, engine))
    print(f"{args.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
