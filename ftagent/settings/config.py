"""Settings: one table of options, and the order in which their sources win.

flag > environment `FT_<OPTION>` > project `.ft.toml` (inert keys only) > user `config.toml` > default.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftagent.errors import FtError, Refused, UsageError
from ftagent.settings.values import (
    one_of,
    parse_anticipate,
    parse_bytes,
    parse_count,
    parse_kv,
    parse_name,
    parse_port,
    parse_positive,
    parse_size,
    parse_switch,
    parse_threads,
    parse_tokens,
)

PROJECT_FILE = ".ft.toml"
Trusted = Callable[[Path, bytes], bool]  # of a file and its bytes


@dataclass(frozen=True, slots=True)
class Option:
    """`inert`: a project's own file may set it, because it neither runs nor redirects anything. `metavar` is set where it is a
    flag of everything that starts an engine or plans one; `implied` is what the engine takes where it is not set."""

    name: str
    parse: Callable[[Any], Any]
    default: Any
    help: str
    inert: bool = False
    metavar: str = ""
    implied: Any = None

    @property
    def variable(self) -> str:
        return "FT_" + self.name.upper()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


_PRESETS = ("auto", "minimum", "chat", "agent")
_BACKENDS = ("auto", "fused", "cpu", "offload", "hybrid")
ENGINE_OPTIONS: tuple[Option, ...] = (
    Option("port", parse_port, 1919, "port of the local engine", metavar="N"),
    Option("kv", parse_kv, None, "KV tokens over all sessions, such as 64k; default: what fits", metavar="N"),
    Option("preset", one_of(*_PRESETS), None, "how memory is shared out where no size is given: auto, minimum, chat, agent; of a launched agent: agent", metavar="NAME", implied="auto"),
    Option("kv_dtype", one_of("bf16", "f32"), None, "precision of the KV cache: bf16, f32; default: the model's", metavar="NAME"),
    Option("threads", parse_threads, None, "CPU threads of the engine; default: the physical cores", metavar="N"),
    Option("moe_backend", one_of(*_BACKENDS), None, "where experts are computed: " + ", ".join(_BACKENDS), metavar="NAME", implied="auto"),
    Option("moe_slots", parse_count, None, "expert slots over all layers, for the backends that use them", metavar="N"),
    Option("host_memory", parse_bytes, None, "RAM for experts, such as 8g; less than they take: they are read from disk as needed", metavar="BYTES"),
    Option("device", one_of("cpu", "emulated"), None, "what computes: cpu, emulated", metavar="NAME", implied="cpu"),
    Option("device_memory", parse_bytes, None, "memory to use of a device that has its own, such as 8g", metavar="BYTES"),
    Option("emulate_fill_gbs", parse_positive, None, "GB/s into the emulated device", metavar="GBS"),
    Option("emulate_host_gbs", parse_positive, None, "GB/s of host memory beside the emulated device", metavar="GBS"),
    Option("activations", one_of("auto", "f32", "bf16"), None, "precision of matrix inputs: auto, f32, bf16", metavar="NAME", implied="auto"),
    Option("chunk_tokens", parse_count, None, "most prompt tokens in one forward", metavar="N", implied=512),
    Option("max_running_requests", parse_count, None, "sequences that may be computed at once; default: by what was measured here", metavar="N"),
    Option("anticipate", parse_anticipate, "auto", "compute the expected next prompt while a tool runs; auto: not on battery", metavar="WHEN"),
    Option("heartbeat_s", parse_positive, None, "longest silence on a stream before a heartbeat", metavar="S", implied=8.0),
    Option("stall_s", parse_positive, None, "no progress for this long counts as a stuck engine", metavar="S", implied=60.0),
)  # fmt: skip
OPTIONS: tuple[Option, ...] = (
    Option("model", parse_name, "smollm2-moe", "model served and used when none is named", inert=True),
    Option("ctx", parse_tokens, None, "context window told to the agent; default: the engine's", inert=True),
    Option("max_output", parse_tokens, None, "output cap told to the agent; default: an eighth of the window, at most 32k", inert=True),
    Option("preserve_thinking", parse_switch, True, "keep the reasoning of earlier turns in the prompt, where the model's template can", inert=True),
    Option("edit_hints", parse_switch, True, "load our extension or plugin that says what the agent will edit", inert=True),
    Option("hibernate", parse_size, None, "disk for prefixes that outlive the engine; default: 8g, at most a tenth of the free disk"),
    Option("models_dir", parse_name, None, "folder of the models"),
    Option("engine", parse_name, None, "URL of an engine that runs elsewhere"),
    Option("wait", parse_count, 60, "seconds without progress after which waiting for the engine ends"),
    Option("idle_stop", parse_count, 600, "seconds without use after which an engine that a launch has started ends"),
    Option("price_input", parse_positive, None, "reference price of a million prompt tokens, for the receipt"),
    Option("price_cached", parse_positive, None, "reference price of a million cached prompt tokens; default: as price_input"),
    Option("price_output", parse_positive, None, "reference price of a million output tokens"),
    *ENGINE_OPTIONS,
)  # fmt: skip
BY_NAME = {option.name: option for option in OPTIONS}


@dataclass(frozen=True, slots=True)
class Settings:
    """`values[name]`, and for each name where it came from (`default`, a file, `$FT_X`, `--flag`)."""

    values: dict[str, Any]
    origins: dict[str, str]
    warnings: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        return str(self.values[name])

    def optional_text(self, name: str) -> str | None:
        value = self.values[name]
        return None if value is None else str(value)

    def switch(self, name: str) -> bool:
        return bool(self.values[name])

    def number(self, name: str) -> int:
        return int(self.values[name])

    def optional_number(self, name: str) -> int | None:
        value = self.values[name]
        return None if value is None else int(value)


def read_toml(path: Path) -> dict[str, Any]:
    """The file's table; {} when there is no file. Raises Refused naming file and line when it cannot be parsed."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: cannot be read: {error}.", "Correct the file; it was not changed.") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        position = re.search(r"at line (\d+), column (\d+)", str(error))
        at = f"{position[1]}:{position[2]}" if position else str(len(text.splitlines()))  # at the end of the document
        reason = re.sub(r"\s*\(at [^)]*\)", "", str(error))
        raise Refused(
            f"{path}:{at}: not valid TOML: {reason}.",
            "Correct that line; the file was not changed.",
            code="FT-E0412 config-unparseable",
        ) from None


def _line_of(path: Path, key: str) -> str:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return str(path)
    pattern = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
    return next((f"{path}:{number}" for number, line in enumerate(lines, 1) if pattern.match(line)), str(path))


def _from_file(path: Path, project: bool, warnings: list[str], trusted: Trusted | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    all_keys = not project
    for key, value in read_toml(path).items():
        option = BY_NAME.get(key)
        if option is None:
            warnings.append(f"{_line_of(path, key)}: unknown key {key!r} is ignored")
        elif not option.inert and not (all_keys or (all_keys := _is_trusted(path, trusted))):
            warnings.append(
                f"{_line_of(path, key)}: {key!r} is ignored in a project's file: set it in your own config.toml, "
                "or read the file and run: ft config trust"
            )
        else:
            found[key] = _checked(option, value, _line_of(path, key), Refused)
    return found


def _is_trusted(path: Path, trusted: Trusted | None) -> bool:
    return trusted is not None and trusted(path, path.read_bytes())


def _checked(option: Option, value: Any, source: str, error: type[FtError]) -> Any:
    try:
        return option.parse(value)
    except ValueError as expected:
        raise error(
            f"{source}: {option.name} is {value!r}, expected {expected}.",
            "ft config show lists every option.",
            code="FT-E0413 bad-value",
        ) from None


def load_settings(
    user_file: Path,
    project: Path | None,
    env: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
    trusted: Trusted | None = None,
) -> Settings:
    """`trusted`: which project's file may set more than what is inert. Raises Refused (exit 4) for a file that does not parse, UsageError (exit 2) for a bad variable or flag."""
    warnings: list[str] = []
    values = {option.name: option.default for option in OPTIONS}
    origins = {option.name: "default" for option in OPTIONS}

    def take(found: Mapping[str, Any], origin: Callable[[str], str]) -> None:
        for name, value in found.items():
            values[name] = value
            origins[name] = origin(name)

    take(_from_file(user_file, False, warnings, None), lambda name: str(user_file))
    if project is not None:
        path = project / PROJECT_FILE
        take(_from_file(path, True, warnings, trusted), lambda name: str(path))
    from_env = {
        option.name: _checked(option, env[option.variable], f"${option.variable}", UsageError)
        for option in OPTIONS
        if env.get(option.variable)
    }
    take(from_env, lambda name: "$" + BY_NAME[name].variable)
    given = {
        name: _checked(BY_NAME[name], value, "--" + name.replace("_", "-"), UsageError)
        for name, value in (flags or {}).items()
        if value is not None
    }
    take(given, lambda name: "--" + name.replace("_", "-"))
    return Settings(values, origins, warnings)
