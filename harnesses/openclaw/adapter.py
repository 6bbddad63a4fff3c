"""OpenClaw: a state folder and a configuration of this launch, in which this engine is the only provider."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import json5

from harnesses import flags
from harnesses.contract import HarnessError, Injection, Integration, LaunchContext, PlannedFile, Warning_
from harnesses.findings import place
from harnesses.launchdata import check_window, environment, read_launch

LAUNCH = read_launch(Path(__file__).parent)
PROVIDER = "ft"
CONVERSATIONS = ("agent", "tui", "chat", "terminal")


class OpenClawAdapter:
    name = "openclaw"
    title = LAUNCH.title
    executables: Sequence[str] = ("openclaw",)
    install_hint = "npm install -g openclaw"
    version_args: Sequence[str] = ("--version",)

    def reads(self, context: LaunchContext) -> list[Path]:
        return [_user_config(context)]

    def inject(self, context: LaunchContext) -> Injection:
        flags.refuse_redirection(LAUNCH, context.args)
        model = flags.value_of(context.args, "--model")
        if model is not None and not model.startswith(f"{PROVIDER}/"):
            raise HarnessError(
                f"--model {model} belongs to another provider than this engine.",
                f"Leave it out, or say {PROVIDER}/{context.model}.",
            )
        config = context.state_dir / "openclaw" / "openclaw.json"
        return Injection(
            argv=_arguments(context),
            env=environment(LAUNCH, context),
            files=[
                PlannedFile(config, json.dumps(_config(context), indent=2) + "\n", "this engine is the only provider")
            ],
            warnings=[*check_window(LAUNCH, context), *_left_out(context)],
            watchdog_s=float(context.silence_limit_s),
            watchdog_default_s=LAUNCH.watchdog_default_s,
        )

    def integration(self, context: LaunchContext) -> Integration:
        """Without fallbacks: one of them would be another provider than this engine."""
        config = _config(context)
        defaults = config["agents"]["defaults"]
        return Integration(
            path=_user_config(context),
            format="json5",
            values={
                ("models", "providers", PROVIDER): config["models"]["providers"][PROVIDER],
                ("agents", "defaults", "model"): defaults["model"],
            },
            replaces=("OPENCLAW_STATE_DIR", "OPENCLAW_CONFIG_PATH"),
        )

    def transcript(self, context: LaunchContext, harness_id: str) -> Path | None:
        return context.state_dir / "openclaw" / "agents" / "main" / "agent" / "openclaw-agent.sqlite"


def _arguments(context: LaunchContext) -> list[str]:
    """With `--local`: a gateway of the user that listens on this machine would answer with the user's own providers."""
    args = list(context.args)
    command = flags.first_word(args)
    if command not in CONVERSATIONS:
        if context.resume is None:
            return args
        if command is not None:
            raise HarnessError(f"openclaw {command} continues no conversation.", "Say agent or tui, or nothing.")
        command, args = "tui", ["tui", *args]
    head = [command]
    if not flags.has(args, "--local"):
        head.append("--local")
    if context.resume is not None:
        if context.fork:
            raise HarnessError("OpenClaw cannot continue a copy of a conversation.", "Resume it, or start a new one.")
        choose = "--session" if command != "agent" else "--session-id"
        flags.refuse_second_choice("OpenClaw", args, "--session", "--session-id", "--session-key", "--to", "-t")
        head += [choose, context.resume]
    return [*head, *args[1:]]


def _config(context: LaunchContext) -> dict[str, Any]:
    """The whole configuration. The workspace is a folder of ours: OpenClaw writes files of its own into it.

    A provider's `timeoutSeconds` is a limit on silence, the agent's one on all of a run, and 0 there is none.
    """
    reference = f"{PROVIDER}/{context.model}"
    return {
        "models": {
            "mode": "replace",
            "providers": {
                PROVIDER: {
                    "baseUrl": f"{context.base_url}/v1",
                    "apiKey": context.token,
                    "api": "openai-completions",
                    "timeoutSeconds": context.silence_limit_s,
                    "models": [_model(context)],
                }
            },
        },
        "agents": {
            "defaults": {
                "model": {"primary": reference, "fallbacks": []},
                "modelPolicy": {"allow": [f"{PROVIDER}/*"]},
                "workspace": str(context.state_dir / "openclaw" / "workspace"),
                "timeoutSeconds": 0,
            }
        },
        "update": {"checkOnStart": False},
        "telemetry": {"enabled": False},
    }


def _model(context: LaunchContext) -> dict[str, Any]:
    return {
        "id": context.model,
        "name": context.model,
        "reasoning": True,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": context.window_tokens,
        "maxTokens": context.max_output_tokens,
        "compat": {"supportsPromptCacheKey": True},
    }


def _left_out(context: LaunchContext) -> list[Warning_]:
    """Providers and fallbacks of the user's own configuration, none of which this launch can reach."""
    path = _user_config(context)
    text = context.files.get(str(path))
    if text is None:
        return []
    try:
        config = json5.loads(text)
    except ValueError:
        return [Warning_("FT-W0114 config-not-read", f"{path} is not JSON5; this launch does not use it.")]
    defaults = _table(_table(config, "agents"), "defaults")
    found: list[tuple[str, str]] = [("providers", name) for name in _table(_table(config, "models"), "providers")]
    model = defaults.get("model")
    if isinstance(model, dict):
        found += [("primary", str(model["primary"]))] if model.get("primary") else []
        found += [("fallbacks", str(name)) for name in model.get("fallbacks") or []]
    return [
        Warning_(
            "FT-W0110 setting-overridden",
            f"{place(path, text, key, context.home)} names {name} under {key}; this launch cannot reach it.",
        )
        for key, name in found
    ]


def _table(value: Any, key: str) -> dict[str, Any]:
    inner = value.get(key) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}


def _user_config(context: LaunchContext) -> Path:
    given = context.env.get("OPENCLAW_CONFIG_PATH")
    if given:
        return Path(given).expanduser()
    state = context.env.get("OPENCLAW_STATE_DIR")
    return (Path(state).expanduser() if state else context.home / ".openclaw") / "openclaw.json"


ADAPTER = OpenClawAdapter()
