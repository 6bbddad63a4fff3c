"""`ft serve --plan` and `ft engine plan`: what a model takes before a byte of it is read, and refusals with the arithmetic."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest

GIB = 1 << 30


@pytest.fixture
def huge(sandbox, models_dir: Path) -> str:
    """A model directory whose experts would take 60 GB; the files have that size and no content on the disk."""
    directory = sandbox.root / "models" / "huge"
    shutil.copytree(models_dir / "tiny-hybrid", directory)
    manifest = json.loads((directory / "ftw.json").read_text())
    each = 60 * 10**9 // len(manifest["banks"])
    stride = each // manifest["banks"][0]["experts"] // 4096 * 4096
    for bank in manifest["banks"]:
        bank["stride"], bank["bytes"] = stride, stride * bank["experts"]
        bank.pop("expert_crc32", None)
        os.truncate(directory / bank["file"], bank["bytes"])
    manifest["name"] = "huge"
    manifest["geometry"]["expert_bytes"] = stride
    manifest["geometry"]["bank_bytes"] = sum(bank["bytes"] for bank in manifest["banks"])
    (directory / "ftw.json").write_text(json.dumps(manifest))
    sandbox.env |= {"FT_MODELS_DIR": str(directory.parent)}
    return "huge"


def refused(done, within_s: float, started: float) -> str:
    assert done.returncode == 5, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr + done.stdout
    assert time.monotonic() - started < within_s
    return done.stdout + done.stderr


def test_case_44_sixty_gigabytes_of_experts_are_refused_in_seconds_with_the_arithmetic(sandbox, huge: str) -> None:
    started = time.monotonic()
    done = sandbox.run("serve", "--plan", "-m", huge)
    said = refused(done, 5 * _busy(), started)
    assert re.search(r"bank +55\.9 GiB", said) and re.search(r"huge needs .* GiB short", said)
    ways = [line for line in done.stderr.splitlines() if line and "needs" not in line]
    assert len(ways) == 3, ways
    started = time.monotonic()
    told = sandbox.run("serve", "--plan", "-m", huge, "--json")
    refused(told, 5 * _busy(), started)
    plan = json.loads(told.stdout)
    assert plan["fits"] is False and plan["shortfall_bytes"] == plan["total_bytes"] - plan["available_bytes"]
    assert plan["total_bytes"] == sum(plan["tenants"].values()) and len(plan["ways_out"]) == 3
    assert plan["tenants"]["workspace"] > 0
    started = time.monotonic()
    said = refused(sandbox.run("engine", "start", "-m", huge), 15 * _busy(), started)
    assert "GiB short" in said and "Or: " in said


def test_case_44_the_way_over_the_disk_fits(sandbox, huge: str) -> None:
    plan = json.loads(sandbox.run("engine", "plan", "-m", huge, "--json").stdout)
    (way,) = [way for way in plan["ways_out"] if "--host-memory" in way]
    flags = way.partition("huge ")[2].partition(" (")[0].split()
    done = sandbox.run("engine", "plan", "-m", huge, "--json", *flags)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["bank"] == "disk"


def test_case_42_what_another_program_holds_is_missing_and_that_is_said(sandbox, models_dir: Path) -> None:
    """A device whose memory is taken: one sentence with the shortfall, three ways out, exit code 5, no trace."""
    sandbox.env |= {"FT_MODELS_DIR": str(models_dir)}
    taken = ["--device", "emulated", "--device-memory", "20m"]
    for command in (["serve", "--plan"], ["engine", "plan"], ["engine", "start"], ["serve"]):
        started = time.monotonic()
        done = sandbox.run(*command, "-m", "tiny-hybrid", *taken)
        said = refused(done, 15 * _busy(), started)
        (sentence,) = [line for line in said.splitlines() if "short" in line]
        assert "on the device, which has 20.0 MiB" in sentence, said
        assert "--device-memory " in said


def test_a_plan_that_fits_names_every_tenant(sandbox, models_dir: Path) -> None:
    sandbox.env |= {"FT_MODELS_DIR": str(models_dir)}
    done = sandbox.run("serve", "--plan", "-m", "smollm2-moe", "--preset", "agent")
    assert done.returncode == 0, done.stderr
    for word in ("dense", "bank", "workspace", "runtime", "kv", "total", "available", "fits"):
        assert re.search(rf"\b{word}\b", done.stdout), word
    plan = json.loads(sandbox.run("serve", "--plan", "-m", "smollm2-moe", "--preset", "agent", "--json").stdout)
    assert plan["kv_tokens"] >= 50 << 10 and plan["preset"] == "agent" and plan["schema"] == "ft.engine-plan/1"


def _busy() -> float:
    """How much longer things may take on a machine where others compute too."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
