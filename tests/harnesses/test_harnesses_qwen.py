"""Qwen Code: the settings of a launch name one model, for every task and when it fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from harnesses.contract import LaunchContext
from harnesses.qwen.adapter import ADAPTER

MakeContext = Callable[..., LaunchContext]
# Of 0.24.4: settings of its user that name a model besides `model`.
MODELS = ("fastModel", "advisorModel", "visionModel", "compactionModel", "imageModel", "voiceModel", "modelFallbacks")


def test_no_other_model_is_left(make_context: MakeContext) -> None:
    context = make_context()
    settings, _ = (json.loads(file.text) for file in ADAPTER.inject(context).files)
    assert {settings[name] for name in MODELS} == {context.model, ""} and settings["fastModel"] == context.model
    assert [model["id"] for models in settings["modelProviders"].values() for model in models] == [context.model]
    (model,) = settings["modelProviders"]["openai"]
    assert model["baseUrl"].startswith("http://127.0.0.1") and model["generationConfig"]["retryMaxDelayMs"] <= 10_000


def test_those_of_the_user_are_named(make_context: MakeContext) -> None:
    context = make_context()
    path = context.home / ".qwen" / "settings.json"
    users = {str(path): json.dumps(dict.fromkeys(MODELS, "paid"))}
    warnings = ADAPTER.inject(replace(context, files=users)).warnings
    said = " ".join(warning.text for warning in warnings if warning.code.startswith("FT-W0110"))
    assert all(f"sets {name};" in said for name in MODELS), said
