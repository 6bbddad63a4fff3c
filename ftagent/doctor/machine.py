"""The machine around us: limits of the shell, memory for the model, a GPU, proxies, keys, settings that an administrator set."""

from __future__ import annotations

import json
import re
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import which

from ftagent.context import Context
from ftagent.doctor.check import Check
from ftagent.launch.environment import PROXIES, filter_environment
from ftagent.local_engine.command import engine_command, foreground_environment
from ftagent.local_engine.models import LocalModel
from ftagent.local_engine.options import as_arguments
from ftagent.settings.config import Settings

OPEN_FILES = 256  # the engine keeps a file per layer of experts open, and a socket per request
PLAN_S = 60.0
KV_SHARE = 0.75  # of the most that fits now: what is free a moment later may be less
MANAGED_SETTINGS = (
    "/etc/claude-code/managed-settings.json",
    "/Library/Application Support/ClaudeCode/managed-settings.json",
    "/etc/codex/managed_config.toml",
    "/etc/opencode/opencode.json",
)
GPU_QUERY = "name,memory.total,memory.used,pcie.link.width.current,pcie.link.width.max"


def network(context: Context) -> Iterator[Check]:
    proxies = [name for name in context.env if name.lower() in PROXIES[:3] and context.env[name]]
    if proxies:
        text = f"{', '.join(sorted(proxies))} set; requests to this machine go past it in a launch"
        yield Check("proxy", "OK", text)
    keys = filter_environment(context.env).dropped_credentials
    if keys:
        shown = ", ".join(keys[:6]) + (f" and {len(keys) - 6} more" if len(keys) > 6 else "")
        yield Check("credentials", "OK", f"{shown}: in your shell, taken out of every launch")


def managed() -> Iterator[Check]:
    for name in MANAGED_SETTINGS:
        if Path(name).exists():
            cause = "An administrator's file goes before the settings of a launch; the dry run names what it sets."
            yield Check(
                "managed settings", "WARN", f"{name} is there", "ft launch claude --dry-run", cause, by_hand=True
            )


def limits() -> Iterator[Check]:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "no limit" if soft == resource.RLIM_INFINITY else f"{soft / (1 << 20):,.0f} MiB"
    yield Check("pinned memory", "OK", f"{limit} (ulimit -l); what a model could have pinned: ft engine plan")
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < OPEN_FILES:
        cause = "An engine runs out of files while it reads experts or serves several agents."
        yield Check("open files", "WARN", f"{files} at most (ulimit -n)", "ulimit -n 4096", cause, by_hand=True)
    else:
        shown = "no limit" if files == resource.RLIM_INFINITY else f"{files:,} at most"
        yield Check("open files", "OK", f"{shown} (ulimit -n)")


def memory(context: Context, settings: Settings, model: LocalModel) -> Iterator[Check]:
    """The engine's own plan for the model, as it would start now."""
    folder = str(context.models_dir(settings))
    chosen = ["--model", model.reference, "--models-dir", folder, *as_arguments(settings, chosen_only=True)]
    try:
        done = subprocess.run(
            engine_command("plan", *chosen, "--json"),
            env=foreground_environment(context.env),
            capture_output=True,
            text=True,
            timeout=PLAN_S,
        )
        plan = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return
    if plan.get("fits"):
        yield Check("memory", "OK", plan["verdict"])
    elif "verdict" in plan:
        way = next(iter(plan.get("ways_out") or ["Close other programs."]))
        kv = re.search(r"--kv (\d+)", way)
        fix = f"ft config set kv {int(int(kv[1]) * KV_SHARE)}" if kv else way
        yield Check("memory", "FAIL", plan["verdict"], fix, "The engine refuses to start.", by_hand=kv is None)


def gpu(context: Context) -> Iterator[Check]:
    """What the driver says. Experts are computed on the CPU here; what else uses a GPU is worth knowing all the same."""
    program = which("nvidia-smi", path=context.env.get("PATH"))
    if program is None:
        return
    try:
        done = subprocess.run(
            [program, f"--query-gpu={GPU_QUERY}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=10.0,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Check("gpu", "WARN", f"nvidia-smi gives no answer ({type(error).__name__})", "nvidia-smi", _DRIVER, True)
        return
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines() or [f"exit code {done.returncode}"]
        yield Check("gpu", "WARN", f"nvidia-smi fails: {said[0]}", "nvidia-smi", _DRIVER, by_hand=True)
        return
    for line in done.stdout.strip().splitlines():
        yield gpu_of(line)


_DRIVER = "Driver and kernel do not agree; mostly after an update without a reboot."


def gpu_of(line: str) -> Check:
    """Of one line of nvidia-smi."""
    words = [word.strip() for word in line.split(",")]
    if len(words) != len(GPU_QUERY.split(",")):
        return Check("gpu", "WARN", f"nvidia-smi says {line!r}", "nvidia-smi", _DRIVER, by_hand=True)
    name, total, used, width, most = words
    text = f"{name}: {used} of {total} MiB in use, PCIe x{width} of x{most}"
    if width.isdecimal() and most.isdecimal() and int(width) < int(most):
        cause = "A card that sits in a narrow slot, or loosely, is filled slowly."
        return Check("gpu", "WARN", text, "nvidia-smi -q -d PERFORMANCE", cause, by_hand=True)
    return Check("gpu", "OK", text)
