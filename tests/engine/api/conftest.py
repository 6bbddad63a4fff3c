"""One engine for all dialect tests, once with the fake worker and once with the real one."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
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


DECLARED = {"schema": "edits/1", "harness": "test", "versions": ">=0", "wire": {}}


# One pool for all objects of this SDK: each of its own would load all certificates again.
_HTTP = httpx.Client(trust_env=False, timeout=60)


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
            fields = {"declaration": {**DECLARED, "tools": MAPPING}, **fields, "script": script}
        self.engine = engine
        self.session = engine.session(**fields)

    @functools.cached_property
    def anthropic(self) -> anthropic.Anthropic:
        url = self.session["base_urls"]["anthropic"]
        return anthropic.Anthropic(base_url=url, auth_token=self.session["token"], max_retries=0, timeout=60)

    @functools.cached_property
    def openai(self) -> openai.OpenAI:
        url = self.session["base_urls"]["openai"]
        return openai.OpenAI(base_url=url, api_key=self.session["token"], max_retries=0, timeout=60, http_client=_HTTP)

    def turns(self) -> list[dict[str, Any]]:
        return self.engine.get(f"/v1/sessions/{self.session['id']}/turns")["turns"]


def play(*blocks: dict[str, Any], side: str = "A title") -> dict[str, Any]:
    """A script of one turn."""
    return {"turns": [{"blocks": list(blocks)}], "side": side}


THINK_READ = play(
    {"thinking": "I should look."}, {"text": "Reading it."}, {"tool": "read", "args": {"path": "dir/ä b.txt"}}
)
NO_ARGUMENTS = play({"tool": "task", "args": {}})
