"""Where ft keeps its things: XDG base directories, or everything below `FT_HOME`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ftagent.errors import Refused


@dataclass(frozen=True, slots=True)
class Paths:
    """Folders, not necessarily existing. `ensure` makes one, 0700."""

    home: Path  # the user's
    config: Path
    state: Path
    runtime: Path
    data: Path
    cache: Path

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def sessions(self) -> Path:
        return self.state / "sessions"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def engine_log(self) -> Path:
        return self.logs / "engine.log"

    @property
    def models(self) -> Path:
        return self.data / "models"

    @property
    def checkpoints(self) -> Path:
        """What the engine keeps of sessions over a restart."""
        return self.data / "checkpoints"

    @property
    def profiles(self) -> Path:
        """Bandwidths that were measured on this machine."""
        return self.state / "profiles"

    @property
    def backups(self) -> Path:
        """Bytes of files of the user before we changed them."""
        return self.state / "backups"

    @property
    def journal(self) -> Path:
        """What we changed in files of the user."""
        return self.state / "restore.json"

    @property
    def trust(self) -> Path:
        """Projects whose own settings may run or redirect something."""
        return self.state / "trust.json"

    @property
    def agents(self) -> Path:
        """Agents that `ft agents install` has installed."""
        return self.data / "agents"

    @property
    def engine_file(self) -> Path:
        return self.runtime / "engine.json"

    @property
    def leases(self) -> Path:
        return self.runtime / "leases"


def _base(env: Mapping[str, str], variable: str, fallback: Path) -> Path:
    """An XDG variable counts only when it is absolute."""
    value = env.get(variable, "")
    return Path(value) if value.startswith("/") else fallback


def user_home(env: Mapping[str, str]) -> Path:
    value = env.get("HOME", "")
    return Path(value) if value.startswith("/") else Path.home()


def find_paths(env: Mapping[str, str], platform: str = sys.platform) -> Paths:
    """Touches nothing. A relative `FT_HOME` is refused, because it would mean another place in each folder."""
    home = user_home(env)
    override = env.get("FT_HOME", "")
    if override:
        if not override.startswith("/"):
            raise Refused(f"FT_HOME is not an absolute path: {override}", 'export FT_HOME="$PWD/ft-home"')
        root = Path(override)
        return Paths(home, root / "config", root / "state", root / "runtime", root / "data", root / "cache")
    runtime = _base(env, "XDG_RUNTIME_DIR", Path("/nonexistent"))
    runtime = runtime / "ft" if runtime.is_dir() else Path(f"/tmp/ft-{os.getuid()}")  # noqa: S108 - checked by ensure
    support = home / "Library" / "Application Support" / "ft"
    if platform == "darwin" and support.is_dir():
        return Paths(home, support, support / "state", runtime, support / "data", support / "cache")
    return Paths(
        home=home,
        config=_base(env, "XDG_CONFIG_HOME", home / ".config") / "ft",
        state=_base(env, "XDG_STATE_HOME", home / ".local" / "state") / "ft",
        runtime=runtime,
        data=_base(env, "XDG_DATA_HOME", home / ".local" / "share") / "ft",
        cache=_base(env, "XDG_CACHE_HOME", home / ".cache") / "ft",
    )


def ensure(directory: Path) -> Path:
    """Makes a private folder (0700) with its parents; one that exists keeps its mode, whoever made it.

    Raises Refused when it is not a folder, is a link, belongs to somebody else, or others may write in it.
    """
    try:
        for parent in reversed([folder for folder in directory.parents if not folder.exists()]):
            parent.mkdir(mode=0o700, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        raise Refused(
            f"Cannot make the folder {directory}: {error.strerror}.", "Set FT_HOME to a folder you own."
        ) from None
    if stat.S_ISLNK(found.st_mode):
        raise Refused(
            f"{directory} is a link to {directory.readlink()}.",
            "Remove it, or set FT_HOME to the folder that is meant.",
        )
    if found.st_uid != os.getuid():
        raise Refused(f"{directory} belongs to another user.", "Set FT_HOME to a folder you own.")
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise Refused(f"Others may write in {directory}.", f"chmod go-w {directory}")
    return directory


def short(path: Path | str, home: Path) -> str:
    """A path for people: `~` for the home folder."""
    text = str(path)
    prefix = str(home)
    return "~" + text[len(prefix) :] if text == prefix or text.startswith(prefix + "/") else text
