from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from harnesses.contract import LaunchContext
from harnesses.hermes.adapter import ADAPTER

MakeContext = Callable[..., LaunchContext]
CONFIG = """model:
  default: paid
  provider: openrouter
fallback_providers:
  - provider: anthropic
    model: paid
fallback_model: {provider: nous, model: x}
"""


def warnings(make_context: MakeContext, text: str) -> list[str]:
    path = make_context().home / ".hermes" / "config.yaml"
    context = make_context(files={str(path): text})
    assert path in ADAPTER.reads(context)
    return [warning.text for warning in ADAPTER.inject(context).warnings]


def test_paid_providers_and_fallbacks_are_named_and_left_out(make_context: MakeContext) -> None:
    found = warnings(make_context, CONFIG)
    assert found == [
        "~/.hermes/config.yaml:3 names openrouter under provider; this launch cannot reach it.",
        "~/.hermes/config.yaml:4 names anthropic under fallback_providers; this launch cannot reach it.",
        "~/.hermes/config.yaml:7 names nous under fallback_model; this launch cannot reach it.",
    ]
    (config,) = [file for file in ADAPTER.inject(make_context()).files if file.path.name == "config.yaml"]
    assert json.loads(config.text)["fallback_providers"] == []


@pytest.mark.parametrize("text", ["", "- a", "model: gpt", "fallback_providers: [a, 3]", "fallback_providers:"])
def test_other_shapes_name_nothing(make_context: MakeContext, text: str) -> None:
    assert warnings(make_context, text) == []


def test_a_file_that_is_no_yaml_is_said(make_context: MakeContext) -> None:
    (text,) = warnings(make_context, "a: [")
    assert "is not YAML" in text
