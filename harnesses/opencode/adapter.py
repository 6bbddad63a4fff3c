"""OpenCode: one provider in OPENCODE_CONFIG_CONTENT, which stands above the user's and the project's configuration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harnesses import flags
from harnesses.contract import EnvVar, HarnessError, Injection, LaunchContext, Warning_
from harnesses.findings import managed, place
from harnesses.jsonc import parse_object
from harnesses.launchdata import check_window, environment, fill, read_launch, values
from harnesses.opencode import private

LAUNCH = read_launch(Path(__file__).parent)
PROVIDER = "ft"
PLUGIN = Path(__file__).parent / "plugin" / "edit_hints.mjs"
ELSEWHERE = {"attach": "the session would run in another OpenCode server, with that one's provider"}
MANAGED = (Path("/etc/opencode"), Path("/Library/Application Support/opencode"))  # stand above OPENCODE_CONFIG_CONTENT
REDIRECTING = ("provider", "enabled_providers", "disabled_providers", "model", "small_model")
OVERRIDDEN = ("model", "small_model", "enabled_providers", "disabled_providers", "share", "autoupdate")


class OpenCodeAdapter:
    name = "opencode"
    title = LAUNCH.title
    executables: Sequence[str] = ("opencode",)
    install_hint = "npm install -g opencode-ai"
    version_args: Sequence[str] = ("--version",)

    def reads(self, context: LaunchContext) -> list[Path]:
        return list(dict.fromkeys([*_configs(context), *private.reads(context)]))

    def inject(self, context: LaunchContext) -> Injection:
        flags.refuse_redirection(LAUNCH, context.args)
        _refuse_other_model(context)
        config = {
            **{key: fill(value, values(context)) for key, value in LAUNCH.raw["config"].items()},
            "autoupdate": False,
            "enabled_providers": [PROVIDER],
            "disabled_providers": [],
            "provider": {PROVIDER: _provider(context)},
        }
        plugins = [PLUGIN] if context.edit_hints else []
        if private.is_wanted(context):
            plugins.append(private.PLUGIN)
        if plugins:  # beside the user's own: OpenCode joins these lists
            config["plugin"] = [plugin.as_uri() for plugin in plugins]
        content = EnvVar(
            name="OPENCODE_CONFIG_CONTENT",
            value=json.dumps(config),
            why="one provider, this engine, above the user's and the project's configuration",
            secret=True,
            replaces="a value of your shell" if context.env.get("OPENCODE_CONFIG_CONTENT") else None,
        )
        return Injection(
            argv=_arguments(context),
            env=[content, *environment(LAUNCH, context), *private.variables(context)],
            files=private.files(context, LAUNCH.raw["private_settings"], LAUNCH.raw["private_agent_settings"]),
            warnings=[*check_window(LAUNCH, context), *_overridden(context)],
            watchdog_s=float(context.silence_limit_s),
            watchdog_default_s=LAUNCH.watchdog_default_s,
            harness_ids=[context.resume] if context.resume and not context.fork else [],
            config=_compaction(context),
        )

    def transcript(self, context: LaunchContext, harness_id: str) -> Path | None:
        return private.database(context)


def _configs(context: LaunchContext) -> list[Path]:
    """As OpenCode joins them, strongest first."""
    home = [] if context.sealed else [context.home / ".opencode"]
    stronger, weaker = [*MANAGED, *home, context.cwd / ".opencode", context.cwd], [private.config_folder(context)]
    given = [Path(context.env["OPENCODE_CONFIG"])] if context.env.get("OPENCODE_CONFIG") else []
    names = private.CONFIGS
    return [*(f / n for f in stronger for n in names), *given, *(f / n for f in weaker for n in names)]


def _arguments(context: LaunchContext) -> list[str]:
    """With the model in words, which stands above the one that a stored conversation was held with."""
    args = list(context.args)
    command = flags.first_word(args)
    if command in ELSEWHERE:
        raise HarnessError(f"opencode {command} is not started by ft: {ELSEWHERE[command]}.", "Leave it out.")
    if command in LAUNCH.commands:
        if context.resume is not None:
            raise HarnessError(f"opencode {command} continues no conversation.", f"Leave {command} out.")
        return args
    head, rest = ([args[0]], args[1:]) if command == "run" else ([], args)
    if context.resume is not None:
        flags.refuse_second_choice("OpenCode", args, "--session", "-s", "--continue", "-c", "--fork")
        head += ["--session", context.resume, *(["--fork"] if context.fork else [])]
    if not flags.has(args, "--model", "-m"):
        head += ["--model", f"{PROVIDER}/{context.model}"]
    return [*head, *rest]


def _provider(context: LaunchContext) -> dict[str, Any]:
    """The provider entry. Two limits are on silence; the third would bound one whole request, and `False` switches it off."""
    silence_ms = context.silence_limit_s * 1000
    return {
        "npm": "@ai-sdk/openai-compatible",
        "name": "ft (this machine)",
        "options": {
            "baseURL": f"{context.base_url}/v1",
            "apiKey": context.token,
            "headerTimeout": silence_ms,
            "chunkTimeout": silence_ms,
            "timeout": False,
        },
        "models": {
            context.model: {
                "name": context.model,
                "tool_call": True,
                "reasoning": True,
                "limit": _limits(context),
                "cost": {"input": 0, "output": 0},
            }
        },
    }


def _limits(context: LaunchContext) -> dict[str, int]:
    """OpenCode compacts at `input` less `output`, or less 20,000, without counting the result that comes next.

    What it keeps free is room for one more result, so that no request is over the window. The rule "compact" of
    harness.toml says the same.
    """
    window, output = context.window_tokens, context.max_output_tokens
    free = max(min(output, 32000), min(16384, window // 4))
    return {"context": window, "input": window - free + min(output, 20000), "output": output}


def _refuse_other_model(context: LaunchContext) -> None:
    model = flags.value_of(context.args, "--model", "-m")
    if model is not None and not model.startswith(f"{PROVIDER}/"):
        raise HarnessError(
            f"--model {model} belongs to another provider than this engine.",
            f"Leave it out, or say {PROVIDER}/{context.model}.",
        )


def _compaction(context: LaunchContext) -> dict[str, Any]:
    """What the user's and the project's files say of pruning and compaction, strongest first as `reads` lists them."""
    merged: dict[str, Any] = {}
    for config in _found(context).values():
        section = config.get("compaction")
        if isinstance(section, dict):
            merged = {**section, **merged}
    return {"compaction": merged} if merged else {}


def _found(context: LaunchContext) -> dict[Path, dict[str, Any]]:
    """The configuration files that are there. Raises HarnessError (code 4) for one that cannot be parsed."""
    there = [path for path in _configs(context) if str(path) in context.files]
    return {path: parse_object(path, context.files[str(path)]) for path in there}


def _overridden(context: LaunchContext) -> list[Warning_]:
    """Names what the files say that has no effect now."""
    warnings = []
    for path, config in _found(context).items():
        text = context.files[str(path)]
        if path.parent in MANAGED:
            warnings += [managed(path, text, key, context) for key in REDIRECTING if key in config]
            continue
        for key in OVERRIDDEN:
            if key in config:
                warnings.append(
                    Warning_(
                        "FT-W0110 setting-overridden",
                        f"{place(path, text, key, context.home)} sets {key}; it has no effect in this launch.",
                    )
                )
        foreign = [
            key
            for key in config.get("provider", {}).get(PROVIDER, {})
            if key not in ("npm", "name", "options", "models")
        ]
        for key in foreign:
            message = f"{place(path, text, key, context.home)} gives the provider {PROVIDER} the setting {key}, which would stay in effect."
            hint = f"Rename your provider {PROVIDER}, or go on with --force."
            if not context.force:
                raise HarnessError(message, hint, code=4)
            warnings.append(Warning_("FT-W0112 provider-setting", message, hint))
    return warnings


ADAPTER = OpenCodeAdapter()
