"""Codex: `-c key=value` for every setting, before whatever the user typed, so that exec, resume and fork get them too."""

from __future__ import annotations

import glob
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harnesses import flags
from harnesses.codex import private
from harnesses.contract import HarnessError, Injection, LaunchContext, Warning_
from harnesses.findings import managed, place
from harnesses.launchdata import check_window, environment, fill, read_launch, values

LAUNCH = read_launch(Path(__file__).parent)
CONFIG: dict[str, str] = LAUNCH.raw["config"]
SYSTEM_CONFIG = Path("/etc/codex/config.toml")
MANAGED = Path("/etc/codex/managed_config.toml")  # stands above `-c`
VALUE_OPTIONS: Sequence[str] = LAUNCH.raw["value_options"]
EXEC_COMMANDS = ("resume", "fork", "review", "help")
REDIRECTING: Sequence[str] = LAUNCH.raw["redirecting_settings"]
# A server of the user's that is running already would answer with the user's own provider.
NO_DAEMON, DAEMON_SINCE = "--no-daemon", (0, 171)
PROVIDER_TABLE = "model_providers.ft"
ELSEWHERE = {  # commands that run on the vendor's machines or hand control to its service
    "cloud": "it runs tasks on the vendor's machines",
    "remote-control": "it hands this machine's sessions to the vendor's service",
}


class CodexAdapter:
    name = "codex"
    title = LAUNCH.title
    executables: Sequence[str] = ("codex",)
    install_hint = "npm install -g @openai/codex"
    version_args: Sequence[str] = ("--version",)

    def reads(self, context: LaunchContext) -> list[Path]:
        profile = flags.value_of(context.args, "--profile", "-p")
        user = private.user_home(context)
        layers = [user / f"{profile}.config.toml"] if profile and re.fullmatch(r"[\w.-]+", profile) else []
        project = _project(context) / ".codex" / "config.toml"
        return [MANAGED, project, *layers, user / "config.toml", SYSTEM_CONFIG, *private.reads(context)]

    def inject(self, context: LaunchContext) -> Injection:
        flags.refuse_redirection(LAUNCH, context.args)
        _refuse_overrides(context.args)
        command = flags.first_word(context.args)
        if command in ELSEWHERE:
            raise HarnessError(
                f"codex {command} is not started by ft: {ELSEWHERE[command]}.", f"Run codex {command} yourself."
            )
        names = {**values(context), "compact_limit": str(context.window_tokens * 85 // 100)}
        argv = [] if _is_older(context.version) else [NO_DAEMON]
        for key, value in CONFIG.items():
            if key == "model" and flags.has(context.args, "--model", "-m"):
                continue
            argv += ["-c", f"{key}={fill(value, names)}"]
        return Injection(
            argv=[*argv, *_arguments(context)],
            env=[*environment(LAUNCH, context), *private.variables(context)],
            files=private.files(context, LAUNCH.raw["private_settings"]),
            warnings=[*check_window(LAUNCH, context), *_file_warnings(context)],
            watchdog_s=float(context.silence_limit_s),
            watchdog_default_s=LAUNCH.watchdog_default_s,
            harness_ids=[context.resume] if context.resume and not context.fork else [],
        )

    def transcript(self, context: LaunchContext, harness_id: str) -> Path | None:
        found = private.home(context).glob(f"sessions/*/*/*/rollout-*-{glob.escape(harness_id)}.jsonl*")
        return next(iter(sorted(found)), None)


def _is_older(version: str | None) -> bool:
    """Than the first that has the argument; a version that is not known is taken for a new one."""
    found = [int(part) for part in re.findall(r"\d+", version or "")[:2]]
    return bool(found) and found < list(DAEMON_SINCE)


def _arguments(context: LaunchContext) -> list[str]:
    """What the user typed, with `resume ID` or `fork ID` where Codex expects it: behind the options of exec, before a prompt."""
    args = list(context.args)
    if context.resume is None:
        return args
    verb = "fork" if context.fork else "resume"
    command = flags.first_word(args)
    if command in ("exec", "e"):
        at = 1 + flags.options_end(args[1:], VALUE_OPTIONS)
        if args[at : at + 1] and args[at] in EXEC_COMMANDS:
            raise HarnessError(
                f"codex exec {args[at]} chooses what to do, and ft continues a conversation.", f"Leave {args[at]} out."
            )
        return [*args[:at], verb, context.resume, *args[at:]]
    if command in LAUNCH.commands or command in ("resume", "fork", "review"):
        raise HarnessError(f"codex {command} cannot be used to continue a conversation.", f"Leave {command} out.")
    return [verb, context.resume, *args]


def _project(context: LaunchContext) -> Path:
    return context.cwd / Path(flags.value_of(context.args, "--cd", "-C") or ".").expanduser()


def _refuse_overrides(args: Sequence[str]) -> None:
    """The user's own `-c` may change anything but the provider."""
    for override in flags.values_of(args, "-c", "--config"):
        key = override.partition("=")[0].strip().replace('"', "")
        if key in ("model_provider", "openai_base_url", "chatgpt_base_url") or _is_ours(key):
            raise HarnessError(
                f"-c {key} is set by ft for this launch: it decides where requests go.", f"Leave -c {key} out."
            )


def _is_ours(key: str) -> bool:
    return key in ("model_providers", PROVIDER_TABLE) or key.startswith(f"{PROVIDER_TABLE}.")


def _file_warnings(context: LaunchContext) -> Iterable[Warning_]:
    """Names what a config.toml says that has no effect now; raises HarnessError (code 4) for what would still have one."""
    for name, text in context.files.items():
        if not name.endswith(".toml"):
            continue
        try:
            config: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise HarnessError(
                f"{name}: not TOML: {error}.", "Correct the file: Codex would not start with it.", code=4
            ) from error
        where = Path(name)
        if where == MANAGED:
            yield from (managed(where, text, key, context) for key in REDIRECTING if key in config)
            continue
        table = config.get("model_providers", {}).get("ft", {})
        foreign = [key for key in table if f"{PROVIDER_TABLE}.{key}" not in CONFIG]
        for key in foreign:
            message = f"{_table_place(where, text, context.home)} gives the provider ft the setting {key}, which would stay in effect."
            hint = f"Remove {key} from [model_providers.ft], or go on with --force."
            if not context.force:
                raise HarnessError(message, hint, code=4)
            yield Warning_("FT-W0112 provider-setting", message, hint)
        for key in ("model_provider", "model"):
            if key in config:
                yield Warning_(
                    "FT-W0110 setting-overridden",
                    f"{place(where, text, key, context.home)} sets {key} = {config[key]!r}; it has no effect in this launch.",
                )


def _table_place(path: Path, text: str, home: Path) -> str:
    found = re.search(r"^\s*\[\s*model_providers\.ft\s*\]", text, re.MULTILINE)
    short = f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
    return f"{short}:{text.count(chr(10), 0, found.start()) + 1}" if found else short


ADAPTER = CodexAdapter()
