"""Projects whose `.ft.toml` may also run or redirect something: the user said so, for exactly these bytes."""

from __future__ import annotations

from pathlib import Path

from ftagent.atomic import read_json, write_json
from ftagent.paths import Paths, ensure
from ftagent.settings.config import Trusted

SCHEMA = "ft.trust/1"


def trusted_by(paths: Paths) -> Trusted:
    """A changed file is not trusted any more, wherever the change came from."""

    def trusted(file: Path, data: bytes) -> bool:
        return _entries(paths).get(str(file.resolve())) == _digest(data)

    return trusted


def trust(paths: Paths, file: Path) -> None:
    entries = {**_entries(paths), str(file.resolve()): _digest(file.read_bytes())}
    ensure(paths.state)
    write_json(paths.trust, {"schema": SCHEMA, "files": entries})


def forget(paths: Paths, file: Path) -> bool:
    """Whether it was trusted."""
    entries = _entries(paths)
    known = entries.pop(str(file.resolve()), None) is not None
    if known:
        write_json(paths.trust, {"schema": SCHEMA, "files": entries})
    return known


def _entries(paths: Paths) -> dict[str, str]:
    found = (read_json(paths.trust) or {}).get("files")
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()
