"""Qwen Code: a system settings file per launch, which stands above the user's and the project's, and variables for the key."""

from __future__ import annotations

import glob
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from harnesses import flags
from harnesses.contract import HarnessError, Injection, LaunchContext, PlannedFile, Warning_
from harnesses.findings import place
from harnesses.jsonc import parse_object
from harnesses.launchdata import check_window, environment, read_launch
from harnesses.qwen import private

LAUNCH = read_launch(Path(__file__).parent)
REDIRECTING: Sequence[str] = LAUNCH.raw["redirecting_settings"]
OTHER_MODELS = ("advisorModel", "compactionModel", "imageModel", "modelFallbacks", "visionModel", "voiceModel")
RESUMES = ("--resume", "-r", "--continue", "-c", "--session-id")


class QwenAdapter:
    name = "qwen"
    title = LAUNCH.title
    executables: Sequence[str] = ("qwen",)
    install_hint = "npm install -g @qwen-code/qwen-code"
    version_args: Sequence[str] = ("--version",)

    def reads(self, context: LaunchContext) -> list[Path]:
        return [*_settings_files(context), *private.reads(context)]

    def inject(self, context: LaunchContext) -> Injection:
        flags.refuse_redirection(LAUNCH, context.args)
        flags.refuse_other_model(context)
        if context.fork:
            raise HarnessError("Qwen Code cannot fork a conversation.", "Resume it, or start a new session.")
        own = context.state_dir / "qwen"
        argv, ids = list(context.args), []
        if flags.first_word(context.args) not in LAUNCH.commands:
            argv = ["--auth-type", "openai", "--model", context.model, *flags.without(argv, "--model")]
            if context.resume is not None:
                argv = ["--resume", context.resume, *argv]
            elif not flags.has(context.args, *RESUMES):
                ids = [str(uuid5(NAMESPACE_URL, f"ft:{context.session_id}"))]
                argv = ["--session-id", *ids, *argv]
        variables = environment(LAUNCH, context)
        return Injection(
            argv=argv,
            env=[*variables, *private.variables(context, {variable.name for variable in variables})],
            files=[
                PlannedFile(
                    own / "settings.json", _text(_settings(context)), "above your own and the project's settings"
                ),
                PlannedFile(own / "defaults.json", _text(_defaults()), "below your own and the project's settings"),
                *private.files(context, LAUNCH.raw["private_settings"]),
            ],
            warnings=[*check_window(LAUNCH, context), *_overridden(context)],
            watchdog_s=float(context.silence_limit_s),
            watchdog_default_s=LAUNCH.watchdog_default_s,
            harness_ids=ids,
        )

    def transcript(self, context: LaunchContext, harness_id: str) -> Path | None:
        found = private.folder(context).glob(f"projects/*/chats/{glob.escape(harness_id)}.jsonl")
        return next(iter(sorted(found)), None)


def _settings_files(context: LaunchContext) -> list[Path]:
    """The user's and the project's."""
    return [folder / private.SETTINGS for folder in (private.user_folder(context), context.cwd / ".qwen")]


def _settings(context: LaunchContext) -> dict[str, Any]:
    """What decides where requests go, and how long they may take. The file holds no key: that comes by the environment."""
    model = {
        "id": context.model,
        "name": context.model,
        "baseUrl": f"{context.base_url}/v1",
        "envKey": "FT_TOKEN",  # a name that no .env of a project holds: some of its modes read that file again
        "generationConfig": _generation(context),
    }
    return {
        "security": {"auth": {"selectedType": "openai", "enforcedType": "openai"}},
        "model": {"name": context.model, "generationConfig": _generation(context)},
        "modelProviders": {"openai": [model]},
        "fastModel": context.model,
        **dict.fromkeys(OTHER_MODELS, ""),  # none of its own: the served one
        "proxy": "",
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
    }


def _generation(context: LaunchContext) -> dict[str, Any]:
    """An engine on this machine is there again within seconds; of itself Qwen Code waits one minute, then up to five."""
    return {
        "timeout": context.silence_limit_s * 1000,
        "retryInitialDelayMs": 1000,
        "retryMaxDelayMs": 10_000,
        "contextWindowSize": context.window_tokens,
        "samplingParams": {"max_tokens": context.max_output_tokens},
    }


def _defaults() -> dict[str, Any]:
    """A user may want it all the same: each of these reads the whole conversation again behind another head."""
    return {"memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False, "enableAutoSkill": False}}


def _overridden(context: LaunchContext) -> list[Warning_]:
    """Names settings that have no effect now. Raises HarnessError (code 4) for a file that cannot be parsed."""
    warnings = []
    for path in [path for path in _settings_files(context) if str(path) in context.files]:
        text = context.files[str(path)]
        settings = parse_object(path, text)
        warnings += [
            Warning_(
                "FT-W0110 setting-overridden",
                f"{place(path, text, key, context.home)} sets {key}; it has no effect in this launch.",
            )
            for key in REDIRECTING
            if settings.get(key)
        ]
    return warnings


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


ADAPTER = QwenAdapter()
