"""The folder of models: names to directories. Torch-free."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from engine.errors import BadRequest, NotFound, WeightsError
from engine.weights.manifest import MANIFEST_FILE

PULLABLE = ("smollm2-moe",)
_LONGEST = 200  # so that file names made of it stay below the 255 bytes of file systems
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{_LONGEST - 1}}}")


class InUse(WeightsError):
    """Another process is at it: try again later."""

    code = "FT-E0575 in-use"


def check_folder(models_dir: Path) -> None:
    """Raises BadRequest when `models_dir` is something else than a folder, or cannot become one."""
    for path in (models_dir, *models_dir.parents):
        try:
            there = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise BadRequest(
                f"The models folder {models_dir}: {error.strerror}.", "Give another --models-dir."
            ) from None
        if not stat.S_ISDIR(there.st_mode):
            raise BadRequest(f"The models folder {models_dir}: {path} is not a folder.", "Give another --models-dir.")
        return


def mode_of(path: Path) -> int:
    """The mode of what is at `path`; 0 where nothing is, or nothing can be."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def model_names(models_dir: Path) -> list[str]:
    """Names of the model directories in `models_dir`, sorted; half-written ones (hidden names) are not models. Raises BadRequest
    when it is no folder."""
    check_folder(models_dir)
    if not models_dir.is_dir():
        return []
    return sorted(p.parent.name for p in models_dir.glob(f"*/{MANIFEST_FILE}") if not p.parent.name.startswith("."))


def find_model(models_dir: Path | str, name_or_dir: str) -> Path:
    """The directory of a model given by name or by path. Raises NotFound with the names there are."""
    models_dir = Path(models_dir)
    if _NAME.fullmatch(name_or_dir) and (models_dir / name_or_dir / MANIFEST_FILE).is_file():
        return models_dir / name_or_dir
    path = Path(name_or_dir).expanduser()
    if ("/" in name_or_dir or path.is_absolute()) and stat.S_ISDIR(mode_of(path)):
        return path.resolve()
    names = model_names(models_dir)
    known = f"Available: {', '.join(names)}." if names else f"No model is here yet: ft models pull {PULLABLE[0]}"
    raise NotFound(f"There is no model {name_or_dir!r} in {models_dir}.", known)


def check_name(name: str) -> str:
    """`name` when it can name a model directory. Raises BadRequest otherwise."""
    if not _NAME.fullmatch(name):
        raise BadRequest(
            f"{name!r} cannot name a model.", f"Use letters, digits, '.', '_' and '-', at most {_LONGEST}."
        )
    return name
