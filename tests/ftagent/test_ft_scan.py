"""Files that name other places are told by file and line, never by value."""

from __future__ import annotations

import json
from pathlib import Path

from ftagent.launch.scan import scan
from harnesses.contract import Warning_

HOME = Path("/home/u")
CODEX = """model = "x"
notify = ["/bin/tell"]
[model_providers.paid]
base_url = "https://a.example/v1"
[model_providers.near]
base_url = "http://127.0.0.1:9/v1"
[mcp_servers.files.env]
FILES_API_KEY = "sk-real"
LANG = "C"
"""


def test_findings_have_their_place_and_no_value() -> None:
    claude = json.dumps({"apiKeyHelper": "/bin/key", "env": {"GH_TOKEN": "sk-real", "EDITOR": "vi"}}, indent=1)
    found = [w.text for w in scan({"/home/u/.codex/config.toml": CODEX, "/home/u/s.json": claude}, HOME, [])]
    assert [text.split(" ")[:2] for text in found] == [
        ["~/.codex/config.toml:2", "notify"],
        ["~/.codex/config.toml:4", "model_providers.paid.base_url"],
        ["~/.codex/config.toml:8", "mcp_servers.files.env.FILES_API_KEY"],
        ["~/s.json:2", "apiKeyHelper"],
        ["~/s.json:4", "env.GH_TOKEN"],
    ]
    assert "sk-real" not in "".join(found) and "/bin/key" not in "".join(found)


def test_what_an_adapter_said_is_not_said_again() -> None:
    named = [Warning_("FT-W0110 setting-overridden", "~/s.json:1 sets apiKeyHelper; it has no effect in this launch.")]
    assert scan({"/home/u/s.json": '{"apiKeyHelper": "x"}'}, HOME, named) == []
    assert scan({"/home/u/s.json": '{"apiKeyHelper": ""}', "/home/u/t.json": "{", "/x.jsonl": "{}"}, HOME, []) == []
