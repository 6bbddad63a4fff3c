"""The engine's options: one table renders to command-line flags, FT_* environment variables and their help."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import FtError
from engine.memory.amounts import MIN_KV_TOKENS, TOO_FEW, parse_bytes, parse_tokens
from engine.memory.options import ACTIVATIONS
from engine.memory.planner import BACKENDS, DEVICES, KV_VALUE_BYTES
from engine.memory.presets import NAMES as PRESETS

_URL = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:\d{1,5})?(/[\w./-]*)?")
MAX_THREADS = 256  # of the kernels' pool


class SettingsError(FtError):
    """An option's value does not parse, or a needed one is missing; exit code 2."""

    code = "FT-E0402 bad-setting"


def _tokens(text: str) -> int:
    try:
        tokens = parse_tokens(text)
    except ValueError:
        raise ValueError(f"{text!r} is no positive count of tokens such as 65536, 64k or 1m") from None
    if tokens < MIN_KV_TOKENS:
        raise ValueError(f"{text!r} is {TOO_FEW}")
    return tokens


def parse_port(text: str) -> int:
    """A TCP port; 0 lets the system choose. Raises ValueError."""
    if not text.isdecimal() or int(text) > 65535:
        raise ValueError(f"{text!r} is no port between 0 and 65535")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{text!r} is no positive whole number")
    return int(text)


def _threads(text: str) -> int:
    if _count(text) > MAX_THREADS:
        raise ValueError(f"{text!r} is over the limit of {MAX_THREADS}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise ValueError(f"{text!r} is no positive number of seconds")
    return value


def _tokens_per_s(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise ValueError(f"{text!r} is no positive number of tokens per second")
    return value


def _gigabytes_per_s(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 1e-6 <= value < 1e6:
        raise ValueError(f"{text!r} is no bandwidth in 10^9 bytes per second")
    return value


def _one_of(names: Sequence[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"{text!r} is none of {', '.join(names)}")
        return text

    return parse


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("the value is empty")
    return text


def _upstreams(text: str) -> tuple[str, ...]:
    urls = tuple(dict.fromkeys(url.rstrip("/") for url in text.replace(",", " ").split()))
    if not urls:
        raise ValueError("the value is empty")
    for url in urls:
        if not _URL.fullmatch(url):
            raise ValueError(f"{url.rpartition('@')[2]!r} is no address such as http://127.0.0.1:8000")
    return urls


def _path(text: str) -> Path:
    return Path(_name(text)).expanduser()


@dataclass(frozen=True, slots=True)
class Option:
    """One setting. `parse` turns text into the value or raises ValueError; `default` is already a value."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str
    many: bool = False  # the flag may be given several times; one text then, separated by spaces

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return "FT_" + self.name.upper()


OPTIONS: tuple[Option, ...] = (
    Option("model", _name, "", "model to serve: a name in the models folder, or a model folder"),
    Option("models_dir", _path, None, "folder that holds the models"),
    Option("runtime_dir", _path, None, "folder for sockets, locks and engine.json; made with mode 0700"),
    Option("host", _name, "127.0.0.1", "loopback address to listen on"),
    Option("port", parse_port, 1919, "TCP port"),
    Option("kv", _tokens, None, "tokens of KV cache over all sessions, e.g. 64k; default: what the plan finds"),
    Option(
        "preset", _one_of(PRESETS), "auto", "how memory is shared out where no size is given: " + ", ".join(PRESETS)
    ),
    Option("kv_dtype", _one_of(sorted(KV_VALUE_BYTES)), None, "precision of the KV cache; default: the model's"),
    Option("moe_backend", _one_of(BACKENDS), "auto", "where experts are computed: " + ", ".join(BACKENDS)),
    Option("moe_slots", _count, None, "expert slots over all layers, for the backends that use them"),
    Option("device", _one_of(DEVICES), "cpu", "what computes: " + ", ".join(DEVICES)),
    Option("host_memory", parse_bytes, None, "RAM for experts, e.g. 8g; less than they take: read from disk as needed"),
    Option("device_memory", parse_bytes, None, "memory to use of a device that has its own, e.g. 8g"),
    Option("activations", _one_of(ACTIVATIONS), "auto", "precision of matrix inputs; auto: the processor's fastest"),
    Option("emulate_fill_gbs", _gigabytes_per_s, None, "GB/s into the emulated device"),
    Option("emulate_host_gbs", _gigabytes_per_s, None, "GB/s of host memory beside the emulated device"),
    Option("profiles_dir", _path, None, "folder that keeps measured bandwidths; default: none are kept"),
    Option("chunk_tokens", _count, 512, "most prompt tokens in one forward"),
    Option("threads", _threads, None, "CPU threads of the worker; default: the physical cores"),
    Option(
        "max_running_requests",
        _count,
        None,
        "sequences that may be computed at once; default: by what was measured here",
    ),
    Option("max_requests", _count, 512, "requests held at once, running or waiting; one more is answered with 429"),
    Option(
        "anticipate",
        _one_of(("auto", "on", "off")),
        "auto",
        "compute the expected next prompt ahead; auto: not on battery",
    ),
    Option("hibernate_dir", _path, None, "folder that keeps computed prefixes over a restart; default: none are kept"),
    Option("hibernate_bytes", _count, None, "most bytes in that folder"),
    Option("record_dir", _path, None, "folder that gets the tokens of every request; default: nothing is recorded"),
    Option("throttle_tokens_per_s", _tokens_per_s, None, "slow prefill down to this; for tests and demonstrations"),
    Option("upstream", _upstreams, (), "server that computes instead of this machine; several: replicas", many=True),
    Option("upstream_elsewhere", _one_of(("yes", "no")), "no", "yes: --upstream may be another machine"),
    Option("log", _path, None, "log file of front and worker; default: standard error"),
    Option("heartbeat_s", _seconds, 8.0, "longest silence on a stream before a heartbeat"),
    Option("stall_s", _seconds, 60.0, "no progress for this long counts as a stuck worker"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Values of the option table. Fields mean what the table's help says; None: let the plan decide."""

    model: str
    models_dir: Path
    runtime_dir: Path
    host: str = "127.0.0.1"
    port: int = 1919
    kv: int | None = None
    preset: str = "auto"
    kv_dtype: str | None = None
    moe_backend: str = "auto"
    moe_slots: int | None = None
    device: str = "cpu"
    host_memory: int | None = None
    device_memory: int | None = None
    activations: str = "auto"
    emulate_fill_gbs: float | None = None
    emulate_host_gbs: float | None = None
    profiles_dir: Path | None = None
    chunk_tokens: int = 512
    threads: int | None = None
    max_running_requests: int | None = None  # by what was measured
    max_requests: int = 512
    anticipate: str = "auto"
    hibernate_dir: Path | None = None
    hibernate_bytes: int | None = None
    record_dir: Path | None = None
    throttle_tokens_per_s: float | None = None
    upstream: tuple[str, ...] = ()
    upstream_elsewhere: str = "no"
    log: Path | None = None
    heartbeat_s: float = 8.0
    stall_s: float = 60.0

    @staticmethod
    def resolve(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
        """Flag, else FT_* variable, else default. Raises SettingsError naming the flag or variable at fault."""
        values = resolve_values(flags, environ, ("model", "models_dir", "runtime_dir"))
        if values["host"] not in ("127.0.0.1", "::1", "localhost"):
            raise SettingsError(f"--host {values['host']} is no loopback address.", "Use --host 127.0.0.1.")
        return Settings(**values)

    def worker_flags(self, model_dir: Path) -> list[str]:
        """The flags that give a worker process the same settings, with the model's folder already found."""
        flags = ["--model", str(model_dir)]
        for name in _WORKER_OPTIONS:
            value = getattr(self, name)
            if value is not None:
                flags += ["--" + name.replace("_", "-"), str(value)]
        return flags


_WORKER_OPTIONS = (
    "runtime_dir",
    "kv",
    "preset",
    "kv_dtype",
    "moe_backend",
    "moe_slots",
    "device",
    "host_memory",
    "device_memory",
    "activations",
    "emulate_fill_gbs",
    "emulate_host_gbs",
    "profiles_dir",
    "chunk_tokens",
    "threads",
    "max_running_requests",
    "hibernate_dir",
    "hibernate_bytes",
    "throttle_tokens_per_s",
)


def resolve_values(flags: Mapping[str, Any], environ: Mapping[str, str], needed: Sequence[str]) -> dict[str, Any]:
    """Every option's value: flag, else FT_* variable, else default. Raises SettingsError naming the flag or variable at fault, or
    what is missing of `needed`."""
    values = {option.name: _resolve_one(option, flags.get(option.name), environ) for option in OPTIONS}
    for name in needed:
        if not values[name]:
            flag = "--" + name.replace("_", "-")
            raise SettingsError(f"{flag} is missing.", f"Add {flag}, or set FT_{name.upper()}.")
    return values


def _resolve_one(option: Option, flag: str | None, environ: Mapping[str, str]) -> Any:
    source, text = (option.flag, flag) if flag is not None else (option.env, environ.get(option.env))
    if text is None:
        return option.default
    try:
        return option.parse(text)
    except ValueError as error:
        raise SettingsError(f"{source}: {error}.", f"Correct {source}.") from None


class _Joined(argparse.Action):
    """The values of a flag that was given several times, as one text."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, f"{before} {values}" if before else values)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """One flag per option, unparsed: `Settings.resolve` parses, so that flag and environment fail alike."""
    for option in OPTIONS:
        default = "" if option.default in (None, "", ()) else f" (default {option.default})"
        parser.add_argument(
            option.flag,
            dest=option.name,
            metavar="VALUE",
            action=_Joined if option.many else "store",
            help=f"{option.help}{default} [{option.env}]",
        )
