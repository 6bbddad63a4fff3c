"""One engine for all dialect tests, once with the fake worker and once with the real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.engine.front.fakes import fake_engine
from tests.serving import Engine, engine_server

READ = {"type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"]}
MAPPING = {
    "bash": [{"name": "Bash", "args": {"command": "{command}"}}],
    "read": [{"name": "Read", "args": {"file_path": "{path}"}}],
    "task": [{"name": "Now", "args": {}}],
}


@pytest.fixture(scope="session", params=["fake", "real"])
def engine(request: pytest.FixtureRequest, models_dir: Path) -> Iterator[Engine]:
    if request.param == "fake":
        with fake_engine(models_dir) as (engine, _):
            yield engine
    else:
        with engine_server("tiny-hybrid", models_dir, flags=["--kv", "16k"]) as engine:
            yield engine


class Agent:
    """A session and the official SDKs pointed at it."""

    def __init__(self, engine: Engine, script: dict[str, Any] | None = None, **fields: Any) -> None:
        if script is not None:
            fields = {"declaration": {"tools": MAPPING}, **fields, "script": script}
        self.engine = engine
        self.session = engine.session(**fields)
        urls, token = self.session["base_urls"], self.session["token"]
        self.anthropic = anthropic.Anthropic(base_url=urls["anthropic"], auth_token=token, max_retries=0, timeout=60)
        self.openai = openai.OpenAI(base_url=urls["openai"], api_key=token, max_retries=0, timeout=60)

    def turns(self) -> list[dict[str, Any]]:
        return self.engine.get(f"/v1/sessions/{self.session['id']}/turns")["turns"]


def play(*blocks: dict[str, Any], side: str = "A title") -> dict[str, Any]:
    """A script of one turn."""
    return {"turns": [{"blocks": list(blocks)}], "side": side}


THINK_READ = play(
    {"thinking": "I should look."}, {"text": "Reading it."}, {"tool": "read", "args": {"path": "dir/ä b.txt"}}
)
NO_ARGUMENTS = play({"tool": "task", "args": {}})
