"""What a plan needs to know of a model folder: the few fields of its `ftw.json`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ftagent.atomic import read_json
from ftagent.errors import EngineNotReady, NotHere

DEFAULT_MODEL = "smollm2-moe"
DEFAULT_WINDOW_TOKENS = 65536
PULLABLE = (DEFAULT_MODEL,)
THINKING_SWITCH = "preserve_thinking"  # the variable of a chat template


@dataclass(frozen=True, slots=True)
class LocalModel:
    """`reference` is what the engine is told (a name or an absolute folder); `directory` is None until it is pulled."""

    name: str
    reference: str
    directory: Path | None
    window_tokens: int | None
    toy: bool

    @property
    def pulled(self) -> bool:
        return self.directory is not None

    @property
    def thinking_switch(self) -> bool | None:
        """Whether the chat template can keep the reasoning of earlier turns on request; None while it is not here."""
        if self.directory is None:
            return None
        try:
            template = (self.directory / "chat_template.jinja").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None
        return THINKING_SWITCH in template


def find_model(wanted: str, models_dir: Path, cwd: Path) -> LocalModel:
    """Resolves a name or a folder without loading anything.

    Raises NotHere when it is neither here nor one that can be made here, EngineNotReady when its manifest is damaged.
    """
    as_path = Path(wanted).expanduser()
    is_folder = "/" in wanted or wanted.startswith(("~", "."))
    directory = (cwd / as_path).resolve() if is_folder else models_dir / wanted
    manifest_file = directory / "ftw.json"
    if manifest_file.is_file():
        manifest = read_json(manifest_file)
        window = None if manifest is None else manifest.get("window_tokens")
        if manifest is None or not isinstance(window, int):
            again = f"pull {wanted}" if wanted in PULLABLE else f"import SOURCE --name {directory.name}"
            raise EngineNotReady(
                f"{manifest_file} is damaged: it is not a readable model manifest.",
                f"Make it again: ft models {again} --force",
                code="FT-E0510 weights",
            )
        name = str(manifest.get("name") or directory.name) if is_folder else wanted
        reference = str(directory) if is_folder else wanted
        return LocalModel(name, reference, directory, window, manifest.get("quality") == "toy")
    if wanted in PULLABLE:
        return LocalModel(wanted, wanted, None, DEFAULT_WINDOW_TOKENS, True)
    present = installed(models_dir)
    raise NotHere(
        f"Model {wanted!r} is not here ({manifest_file.parent}).",
        "Here are: " + ", ".join(present) if present else f"ft models pull {DEFAULT_MODEL}",
        code="FT-E0310 unknown-model",
    )


def installed(models_dir: Path) -> list[str]:
    return sorted(path.parent.name for path in models_dir.glob("*/ftw.json"))
