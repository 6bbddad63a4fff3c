"""pi: a folder of its own per launch (PI_CODING_AGENT_DIR), with the user's settings but none of the user's keys."""

from __future__ import annotations

import glob
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harnesses import flags
from harnesses.contract import HarnessError, Injection, LaunchContext, PlannedFile, Warning_
from harnesses.findings import parse_object, place
from harnesses.launchdata import check_window, environment, read_launch
from harnesses.pi import private

LAUNCH = read_launch(Path(__file__).parent)
PROVIDER = "ft"
EXTENSION = Path(__file__).parent / "extension" / "edit_hints.mjs"
CHOOSING = ("--session", "--continue", "-c", "--resume", "-r", "--fork", "--no-session")
OVERRIDDEN = ("defaultProvider", "defaultModel", "enabledModels", "sessionDir")
PATH_SETTINGS: Sequence[str] = LAUNCH.raw["path_settings"]
COPIED: Sequence[str] = LAUNCH.raw["copied"]


class PiAdapter:
    name = "pi"
    title = LAUNCH.title
    executables: Sequence[str] = ("pi",)
    install_hint = "npm install -g @mariozechner/pi-coding-agent"
    version_args: Sequence[str] = ("--version",)

    def reads(self, context: LaunchContext) -> list[Path]:
        folder = private.user_folder(context)
        project = context.cwd / ".pi" / "settings.json"
        return [folder / "settings.json", *(folder / name for name in COPIED), project, *private.reads(context)]

    def inject(self, context: LaunchContext) -> Injection:
        flags.refuse_redirection(LAUNCH, context.args)
        _refuse_other_model(context)
        settings, warnings = _settings(context)
        own, user = context.state_dir / "pi", private.user_folder(context)
        files = [
            PlannedFile(own / "models.json", _text(_models(context)), "the only provider: this engine"),
            PlannedFile(own / "settings.json", _text(settings), "your settings, with this engine's model"),
            *(
                PlannedFile(own / name, context.files[str(user / name)], "as in your own folder")
                for name in COPIED
                if str(user / name) in context.files
            ),
            *private.files(context),
        ]
        argv = list(context.args)
        if context.resume is not None and flags.first_word(context.args) in LAUNCH.commands:
            raise HarnessError(f"pi {context.args[0]} continues no conversation.", "Leave it out.")
        if flags.first_word(context.args) not in LAUNCH.commands:
            argv = ["--provider", PROVIDER, "--model", _model(context), *flags.without(argv, "--model")]
            if context.edit_hints:
                argv = ["--extension", str(EXTENSION), *argv]
            if context.resume is not None:
                flags.refuse_second_choice("pi", context.args, *CHOOSING)
                argv = ["--fork" if context.fork else "--session", context.resume, *argv]
            if not flags.has(argv, "--session-dir", "--no-session"):
                argv = ["--session-dir", str(private.sessions(context)), *argv]
        return Injection(
            argv=argv,
            env=environment(LAUNCH, context),
            files=files,
            warnings=[*check_window(LAUNCH, context), *warnings],
            watchdog_s=float(context.silence_limit_s),
            watchdog_default_s=LAUNCH.watchdog_default_s,
            harness_ids=[context.resume] if context.resume and not context.fork else [],
        )

    def transcript(self, context: LaunchContext, harness_id: str) -> Path | None:
        found = private.sessions(context).glob(f"*_{glob.escape(harness_id)}*.jsonl")
        return next(iter(sorted(found)), None)


def _models(context: LaunchContext) -> dict[str, Any]:
    return {
        "providers": {
            PROVIDER: {
                "baseUrl": f"{context.base_url}/v1",
                "apiKey": context.token,
                "api": "openai-completions",
                "compat": {"supportsStore": False, "supportsUsageInStreaming": True},
                "models": [
                    {
                        "id": context.model,
                        "name": context.model,
                        "reasoning": True,
                        "input": ["text"],
                        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
                        "contextWindow": context.window_tokens,
                        "maxTokens": context.max_output_tokens,
                    }
                ],
            }
        }
    }


def _settings(context: LaunchContext) -> tuple[dict[str, Any], list[Warning_]]:
    """The user's settings with paths made absolute and what would reach elsewhere taken out."""
    folder = private.user_folder(context)
    path = folder / "settings.json"
    text = context.files.get(str(path), "{}")
    settings = private.settings(context, parse_object(path, text), LAUNCH.raw["private_settings"])
    warnings = [*_overridden(context, path), *_overridden(context, context.cwd / ".pi" / "settings.json")]
    for key in OVERRIDDEN:
        settings.pop(key, None)
    fetched = [package for package in settings.pop("packages", []) if package]
    if fetched:
        where = place(path, text, "packages", context.home)
        warnings.append(
            Warning_(
                "FT-W0113 packages-not-loaded",
                f"{where} lists {len(fetched)} packages, which pi would fetch again into the folder of this launch.",
                "Pass one with: -- --extension PATH",
            )
        )
    for key in () if private.is_wanted(context) else PATH_SETTINGS:
        given = [_absolute(entry, folder) for entry in settings.get(key, [])]
        settings[key] = [*given, str(folder / key)]
    settings["defaultProvider"] = PROVIDER
    settings["defaultModel"] = context.model
    settings["enableInstallTelemetry"] = False
    if context.version:
        settings["lastChangelogVersion"] = context.version  # pi would write it into this file
    retry = settings.setdefault("retry", {})
    if isinstance(retry, dict):
        retry["provider"] = {**retry.get("provider", {}), "timeoutMs": context.silence_limit_s * 1000}
    return settings, warnings


def _overridden(context: LaunchContext, path: Path) -> list[Warning_]:
    """Settings that choose a model or a place of conversations, which the arguments of this launch stand above."""
    text = context.files.get(str(path), "{}")
    settings = parse_object(path, text)
    return [
        Warning_(
            "FT-W0110 setting-overridden",
            f"{place(path, text, key, context.home)} sets {key}; it has no effect in this launch.",
        )
        for key in OVERRIDDEN
        if settings.get(key)
    ]


def _absolute(entry: Any, folder: Path) -> Any:
    """A path of settings.json, which is relative to its folder; patterns and markers keep their first character."""
    if not isinstance(entry, str) or entry.startswith(("/", "~")):
        return entry
    marker = entry[0] if entry[:1] in "!+-" else ""
    return f"{marker}{folder / entry.removeprefix(marker)}"


def _refuse_other_model(context: LaunchContext) -> None:
    model = flags.value_of(context.args, "--model")
    if model is not None and _model(context) != model.removeprefix(f"{PROVIDER}/"):
        raise HarnessError(
            f"--model {model} is not the model of this engine.", f"Leave it out, or say {PROVIDER}/{context.model}."
        )


def _model(context: LaunchContext) -> str:
    """The model, with a thinking level when the user gave one as `MODEL:LEVEL`."""
    given = (flags.value_of(context.args, "--model") or "").removeprefix(f"{PROVIDER}/")
    return given if given.startswith(f"{context.model}:") else context.model


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


ADAPTER = PiAdapter()
