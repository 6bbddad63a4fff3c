"""A compiled extension that is damaged or of another build is named, with what to do."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_GET = (
    "import engine.kernels\ntry:\n    engine.kernels.get('cpu')\nexcept Exception as e:\n    print(type(e).__name__, e)"
)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"no machine code at all", None])
def test_an_extension_that_cannot_be_loaded_is_named(tmp_path: Path, content: bytes | None) -> None:
    found = importlib.util.find_spec("engine.kernels._cpu")
    assert found is not None and found.origin is not None
    extension = Path(found.origin)
    package = Path(__file__).parents[3] / "engine"
    kernels = tmp_path / "engine" / "kernels"
    shutil.copytree(package / "kernels", kernels, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for file in ("__init__.py", "errors.py"):
        shutil.copy(package / file, tmp_path / "engine")
    if content is not None:
        (kernels / extension.name).write_bytes(content)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.meta_path[:] = [f for f in sys.meta_path if hasattr(f, '__name__')]\n"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code + _GET], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.stdout.startswith("Unsupported The compiled kernels cannot be loaded: "), done.stdout + done.stderr
    assert ("_cpu" if content is None else str(kernels / extension.name)) in done.stdout
    assert "pip install --force-reinstall" in done.stdout
