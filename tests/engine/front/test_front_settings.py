"""The option table: flags, environment, and values that do not parse."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from engine.settings import OPTIONS, Settings, SettingsError

NEEDED = {"model": "m", "models_dir": "/models", "runtime_dir": "/run/x"}


def test_table_and_dataclass_are_one() -> None:
    fields = {f.name: f.default for f in dataclasses.fields(Settings)}
    assert list(fields) == [option.name for option in OPTIONS]
    for option in OPTIONS:
        if option.name not in NEEDED:
            assert fields[option.name] == option.default, option.name


@pytest.mark.parametrize(("text", "tokens"), [("65536", 65536), ("40k", 40960), ("64K", 65536), ("1m", 1048576)])
def test_token_suffixes(text: str, tokens: int) -> None:
    assert Settings.resolve({**NEEDED, "kv": text}, {}).kv == tokens


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5k", "64kb", "k", "1g", "0x10"])
def test_bad_token_counts(text: str) -> None:
    with pytest.raises(SettingsError, match="no positive count of tokens"):
        Settings.resolve({**NEEDED, "kv": text}, {})


def test_flag_beats_environment_beats_default() -> None:
    environ = {"FT_KV": "32k", "FT_THREADS": "3"}
    settings = Settings.resolve({**NEEDED, "kv": "16k"}, environ)
    assert (settings.kv, settings.threads, settings.port) == (16384, 3, 1919)


@pytest.mark.parametrize(
    ("flags", "environ", "named"),
    [
        ({"port": "http"}, {}, "--port"),
        ({"port": "65536"}, {}, "--port"),
        ({"kv": "lots"}, {}, "--kv"),
        ({}, {"FT_KV": "lots"}, "FT_KV"),
        ({}, {"FT_KV": "255"}, "FT_KV"),
        ({}, {"FT_THREADS": "10000"}, "FT_THREADS"),
        ({}, {"FT_THREADS": ""}, "FT_THREADS"),
        ({"moe_backend": "gpu"}, {}, "--moe-backend"),
        ({"kv_dtype": "f64"}, {}, "--kv-dtype"),
        ({"host": "0.0.0.0"}, {}, "--host"),
        ({"model": None}, {}, "--model"),
        ({"stall_s": "-1"}, {}, "--stall-s"),
    ],
)
def test_a_value_that_does_not_parse_is_an_error(flags: dict, environ: dict, named: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.resolve({**NEEDED, **flags}, environ)
    assert named in caught.value.message


def test_worker_flags_carry_the_same_values() -> None:
    settings = Settings.resolve({**NEEDED, "kv": "16k", "moe_backend": "cpu"}, {})
    flags = settings.worker_flags(Path("/models/m"))
    pairs = dict(zip(flags[::2], flags[1::2], strict=True))
    assert pairs == {
        "--model": "/models/m",
        "--runtime-dir": "/run/x",
        "--kv": "16384",
        "--preset": "auto",
        "--moe-backend": "cpu",
        "--device": "cpu",
        "--activations": "auto",
        "--chunk-tokens": "512",
    }


def test_help_needs_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['engine', '--help']\n"
        "from engine.__main__ import main\n"
        "assert main() == 0\n"
        "heavy = {'torch', 'numpy', 'fastapi', 'uvicorn', 'tokenizers'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout


def test_a_missing_package_is_one_sentence() -> None:
    code = (
        "import sys; sys.modules['tokenizers'] = None\n"
        "from engine.__main__ import main\n"
        "sys.exit(main(['models', 'pull', 'smollm2-moe', '--models-dir', '/nonexistent']))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith("FT-E0520 unsupported: The Python package tokenizers is missing.\n")
    assert "pip install" in done.stderr and "Traceback" not in done.stderr


def test_the_front_loads_without_torch() -> None:
    code = "import sys; import engine.front.server; assert not {'torch', 'triton'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
