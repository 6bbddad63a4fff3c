"""What the guide remembers between two runs of `ft`, and whether a machine is one to be guided on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from ftagent.atomic import read_json, write_json
from ftagent.paths import Paths, ensure


@dataclass(slots=True)
class Kept:
    """`pull` are the words behind `ft models pull` of the model that was chosen and has not arrived, and the bytes what it costs;
    `closed`: the guide was ended for good."""

    measured: bool = False
    model: str = ""
    pull: str = ""
    download_bytes: int = 0
    disk_bytes: int = 0
    agent: str = ""
    closed: bool = False


def file_of(paths: Paths) -> Path:
    return paths.state / "guide.json"


def load(paths: Paths) -> Kept:
    """What cannot be read counts as nothing done yet: every step looks for itself at what is here."""
    found = read_json(file_of(paths)) or {}
    types = {field.name: type(field.default) for field in fields(Kept)}
    return Kept(**{name: found[name] for name, kind in types.items() if isinstance(found.get(name), kind)})


def save(paths: Paths, kept: Kept) -> None:
    ensure(paths.state)
    write_json(file_of(paths), asdict(kept))


def wanted(paths: Paths, env: Mapping[str, str]) -> bool:
    """Whether `ft` alone begins the guide, or goes on with it: nothing was launched yet, and either it has begun, or there is
    neither a model, nor an engine, nor a setting. Looks at a few names and reads one small file."""
    if env.get("FT_ENGINE") or any(paths.sessions.glob("s-*")):
        return False
    if file_of(paths).exists():
        return not load(paths).closed
    models = Path(env["FT_MODELS_DIR"]).expanduser() if env.get("FT_MODELS_DIR") else paths.models
    return not (paths.config_file.exists() or paths.engine_file.exists() or any(models.glob("*/ftw.json")))
