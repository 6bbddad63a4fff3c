from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from harnesses.contract import HarnessError, LaunchContext
from harnesses.openclaw.adapter import ADAPTER

MakeContext = Callable[..., LaunchContext]


def test_an_isolated_state_with_one_provider_and_no_fallback(make_context: MakeContext) -> None:
    context = make_context()
    injection = ADAPTER.inject(context)
    env = {variable.name: variable.value for variable in injection.env}
    assert env["OPENCLAW_CONFIG_PATH"] == str(injection.files[0].path)
    assert injection.files[0].path.parent == context.state_dir / "openclaw"
    config = json.loads(injection.files[0].text)
    assert config["models"]["mode"] == "replace" and list(config["models"]["providers"]) == ["ft"]
    defaults = config["agents"]["defaults"]
    assert defaults["model"] == {"primary": "ft/tiny", "fallbacks": []}
    assert defaults["workspace"].startswith(str(context.state_dir)), "it writes files into its workspace"
    provider = config["models"]["providers"]["ft"]
    assert provider["timeoutSeconds"] == 3600 and provider["models"][0]["contextWindow"] == 131072


def test_the_preview_lists_the_users_paid_fallbacks(make_context: MakeContext) -> None:
    path = make_context().home / ".openclaw" / "openclaw.json"
    assert ADAPTER.reads(make_context()) == [path]
    text = """{ // mine
  models: { providers: { corp: { baseUrl: "https://x.example", apiKey: "sk-real" } } },
  agents: { defaults: { model: {
    primary: "anthropic/claude-opus-5",
    fallbacks: ["openai/gpt-9"],
  } } },
}"""
    texts = [warning.text for warning in ADAPTER.inject(make_context(files={str(path): text})).warnings]
    assert texts == [
        "~/.openclaw/openclaw.json:2 names corp under providers; this launch cannot reach it.",
        "~/.openclaw/openclaw.json:4 names anthropic/claude-opus-5 under primary; this launch cannot reach it.",
        "~/.openclaw/openclaw.json:5 names openai/gpt-9 under fallbacks; this launch cannot reach it.",
    ]


@pytest.mark.parametrize(
    "args", [["--profile", "work"], ["agent", "exec", "hi", "--fallback", "openai/x"], ["agent", "--model", "openai/x"]]
)
def test_refuses_arguments_that_redirect(make_context: MakeContext, args: list[str]) -> None:
    with pytest.raises(HarnessError) as refusal:
        ADAPTER.inject(make_context(args=args))
    assert refusal.value.code == 2
