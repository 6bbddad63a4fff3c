"""Where things are kept, and who may read them."""

import stat
from pathlib import Path

import pytest

from ftagent import atomic
from ftagent.errors import Refused
from ftagent.paths import ensure, find_paths, short


def test_xdg_and_relative_values_ignored(tmp_path: Path) -> None:
    paths = find_paths(
        {"HOME": "/h", "XDG_STATE_HOME": "/s", "XDG_CACHE_HOME": "rel", "XDG_RUNTIME_DIR": str(tmp_path)}
    )
    assert paths.state == Path("/s/ft")
    assert paths.cache == Path("/h/.cache/ft")
    assert paths.config_file == Path("/h/.config/ft/config.toml")
    assert paths.models == Path("/h/.local/share/ft/models")
    assert paths.runtime == tmp_path / "ft"


def test_ft_home_overrides_everything() -> None:
    paths = find_paths({"HOME": "/h", "FT_HOME": "/t", "XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/r"})
    folders = (paths.config, paths.state, paths.runtime, paths.data, paths.cache)
    assert all(folder.parent == Path("/t") for folder in folders)
    with pytest.raises(Refused, match="absolute"):
        find_paths({"HOME": "/h", "FT_HOME": "here"})


def test_ensure_makes_private_folders(tmp_path: Path) -> None:
    made = ensure(tmp_path / "a" / "b")
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (made, made.parent)] == [0o700, 0o700]
    (tmp_path / "wide").mkdir(mode=0o755)
    assert stat.S_IMODE(ensure(tmp_path / "wide").stat().st_mode) == 0o755
    (tmp_path / "file").write_text("x")
    with pytest.raises(Refused, match="Cannot make"):
        ensure(tmp_path / "file" / "below")


def test_a_folder_of_ours_is_no_link_and_nobody_else_writes_in_it(tmp_path: Path) -> None:
    """What lies behind a link is not ours: nothing is made there and its mode stays."""
    target = tmp_path / "etc"
    target.mkdir(mode=0o755)
    (tmp_path / "ft").symlink_to(target)
    with pytest.raises(Refused, match="is a link to"):
        ensure(tmp_path / "ft")
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(Refused, match="Others may write"):
        ensure(tmp_path / "open")
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o777


def test_a_state_folder_that_is_a_link_is_refused_and_untouched(sandbox, tmp_path: Path) -> None:
    target = tmp_path / "etc"
    target.mkdir(mode=0o755)
    (sandbox.ft_home / "state").symlink_to(target)
    sandbox.model()
    done = sandbox.run("launch", "mini", "--no-exec", fake=True)
    assert done.returncode == 4
    assert "is a link to" in done.stderr
    assert (stat.S_IMODE(target.stat().st_mode), list(target.iterdir())) == (0o755, [])


def test_a_models_folder_may_be_a_link(sandbox, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (sandbox.ft_home / "data").mkdir()
    (sandbox.ft_home / "data" / "models").symlink_to(disk)
    assert sandbox.run("engine", "start", "-q", fake=True).returncode == 0
    assert (disk / "smollm2-moe" / "ftw.json").exists()


def test_atomic_write_keeps_the_old_bytes_when_it_fails(tmp_path: Path) -> None:
    file = tmp_path / "f"
    atomic.write_text(file, "old")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(UnicodeEncodeError):
        atomic.write_text(file, "new \ud800")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_short_is_for_whole_components() -> None:
    assert short("/h/me/x", Path("/h/me")) == "~/x"
    assert short("/h/meme/x", Path("/h/me")) == "/h/meme/x"
