"""Hermes: a folder of its own per launch (HERMES_HOME), with this engine for the agent and for each of its side requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harnesses import flags
from harnesses.contract import HarnessError, Injection, LaunchContext, PlannedFile, Warning_
from harnesses.findings import place
from harnesses.launchdata import check_window, environment, read_launch

LAUNCH = read_launch(Path(__file__).parent)
AUXILIARY: Sequence[str] = LAUNCH.raw["auxiliary"]
COPIED: Sequence[str] = LAUNCH.raw["copied"]
OTHERS: Sequence[str] = LAUNCH.raw["other_providers"]
CONFIG = "config.yaml"
MODELS = json.dumps({"custom": {"models": {}}}) + "\n"  # Hermes takes it for an hour for what it would have fetched


class HermesAdapter:
    name = "hermes"
    title = LAUNCH.title
    executables: Sequence[str] = ("hermes",)
    install_hint = "pip install hermes-agent, in an environment of its own"
    version_args: Sequence[str] = ()  # `hermes --version` asks the package index for a newer one

    def reads(self, context: LaunchContext) -> list[Path]:
        return [_user_folder(context) / name for name in (CONFIG, *COPIED)]

    def inject(self, context: LaunchContext) -> Injection:
        flags.refuse_redirection(LAUNCH, context.args)
        flags.refuse_other_model(context)
        if context.resume is not None:
            raise HarnessError(
                "Hermes keeps its conversations in a folder that ends with the launch.", "Start a new session."
            )
        own, user = context.state_dir / "hermes", _user_folder(context)
        config = json.dumps(_config(context), indent=2) + "\n"  # which is YAML too
        return Injection(
            argv=list(context.args),
            env=environment(LAUNCH, context),
            files=[
                PlannedFile(own / CONFIG, config, "the configuration of this launch, with this engine only"),
                PlannedFile(own / ".update_check", _no_update(context), "no version check over the network"),
                PlannedFile(own / "models_dev_cache.json", MODELS, "no list of models from the network"),
                *(
                    PlannedFile(own / name, context.files[str(user / name)], "as in your own folder")
                    for name in COPIED
                    if context.files.get(str(user / name))
                ),
            ],
            warnings=[*check_window(LAUNCH, context), *_left_out(context)],
            watchdog_s=float(context.silence_limit_s),
            watchdog_default_s=LAUNCH.watchdog_default_s,
        )

    def transcript(self, context: LaunchContext, harness_id: str) -> Path | None:
        return None


def _config(context: LaunchContext) -> dict[str, Any]:
    endpoint = {"provider": "custom", "base_url": f"{context.base_url}/v1", "api_key": context.token}
    aside = {**endpoint, "model": context.model, "timeout": context.silence_limit_s}
    return {
        "model": {
            **endpoint,
            "default": context.model,
            "api_mode": "chat_completions",
            "context_length": context.window_tokens,
            "max_tokens": context.max_output_tokens,
        },
        "fallback_providers": [],
        "auxiliary": {name: aside for name in AUXILIARY},
        "delegation": {**endpoint, "model": context.model},
        "security": {"tirith_enabled": False, "allow_lazy_installs": False},  # nothing is downloaded behind your back
        "model_catalog": {"enabled": False, "excluded_providers": list(OTHERS)},
        "lsp": {"install_strategy": "manual"},
    }


def _left_out(context: LaunchContext) -> list[Warning_]:
    """The provider and the fallbacks of the user's own configuration, none of which this launch can reach."""
    path = _user_folder(context) / CONFIG
    text = context.files.get(str(path))
    if text is None:
        return []
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        config = YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        return [Warning_("FT-W0114 config-not-read", f"{path} is not YAML; this launch does not use it.")]
    table = config if isinstance(config, dict) else {}
    model = table.get("model")
    chosen = [("provider", model)] if isinstance(model, dict) else []
    listed = [(key, table.get(key)) for key in ("fallback_providers", "fallback_model")]
    entries = chosen + [(key, one) for key, given in listed for one in (given if isinstance(given, list) else [given])]
    names = [(key, str(one["provider"])) for key, one in entries if isinstance(one, dict) and one.get("provider")]
    return [
        Warning_(
            "FT-W0110 setting-overridden",
            f"{place(path, text, key, context.home)} names {name} under {key}; this launch cannot reach it.",
        )
        for key, name in names
    ]


def _no_update(context: LaunchContext) -> str:
    """The answer of a version check, as Hermes keeps it, that does not get old."""
    known = context.version or LAUNCH.raw["checked_version"]
    return json.dumps({"ts": 4_102_444_800, "rev": None, "ver": known, "behind": 0}) + "\n"


def _user_folder(context: LaunchContext) -> Path:
    given = context.env.get("HERMES_HOME")
    return Path(given).expanduser() if given else context.home / ".hermes"


ADAPTER = HermesAdapter()
