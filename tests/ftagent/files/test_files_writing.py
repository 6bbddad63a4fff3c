"""The writing contract, with real files; and a real child that is killed at every step of it."""

import json
import os
import signal
import stat
import sys
from pathlib import Path

import json5
import pytest

from ftagent.errors import Conflict, Refused
from ftagent.files import journal
from ftagent.files.backups import KEEP, Backups
from ftagent.files.integrate import integrate, show, write
from ftagent.files.journal import Journal
from ftagent.files.restoring import perform, plan_back_to, plan_undo
from ftagent.paths import find_paths
from ftagent.session import records

BEFORE = '{\n  // mine\n  "models": {"providers": {"x": {"apiKey": "sk-secret-1"}}},\n  "port": 1,\n}\n'
VALUES = {
    ("models", "providers", "ft"): {"baseUrl": "http://127.0.0.1:1919/s/s-1/v1", "apiKey": "ft_sess_abcdef"},
    ("agents", "defaults", "model"): "ft/m",
}


@pytest.fixture
def paths(tmp_path):
    return find_paths({"HOME": str(tmp_path), "FT_HOME": str(tmp_path / "ft")})


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "openclaw.json"
    path.write_text(BEFORE)
    path.chmod(0o640)
    return path


def undo_all(paths):
    undos = plan_undo(paths, None)
    for undo in undos:
        perform(undo, paths)
    return undos


def test_written_and_taken_back_byte_for_byte(paths, file) -> None:
    plan = integrate("openclaw", file, VALUES, "json5")
    assert file.read_text() == BEFORE
    diff = show(plan)
    assert "+" in diff and "127.0.0.1:1919" in diff
    assert "ft_sess_abcdef" not in diff and "sk-secret-1" not in diff
    assert write(plan, paths)
    assert "// mine" in file.read_text() and "ft/m" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert write(integrate("openclaw", file, VALUES, "json5"), paths) is None
    for kept in [paths.journal, *Backups.of(paths, "openclaw", file).folder.iterdir()]:
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    (undo,) = undo_all(paths)
    assert undo.whole
    assert file.read_text() == BEFORE
    assert undo_all(paths) == []


def test_keys_that_somebody_changed_stay(paths, file) -> None:
    write(integrate("openclaw", file, VALUES, "json5"), paths)
    file.write_text(file.read_text().replace("ft/m", "other/m").replace('"port": 1', '"port": 2'))
    (undo,) = undo_all(paths)
    assert not undo.whole
    assert undo.left == [("agents",)]
    text = file.read_text()
    assert '"port": 2' in text and "other/m" in text and "127.0.0.1" not in text and "// mine" in text


def test_writes_above_and_below_each_other_are_taken_back_together(paths, file) -> None:
    for values in (
        {("t", "a"): 1},
        {("t", "b"): {"c": 2}},
        {("models", "providers", "x", "n"): 3},
        {("models",): {"z": 4}},
    ):
        write(integrate("openclaw", file, values, "json5"), paths)
    file.write_text(file.read_text().replace('"port": 1', '"port": 2'))
    (undo,) = undo_all(paths)
    assert (undo.whole, undo.left) == (False, [])
    assert json5.loads(file.read_text()) == {**json5.loads(BEFORE), "port": 2}


def test_what_broke_since_is_refused_and_the_original_is_pinned(paths, file) -> None:
    for number in range(KEEP + 3):
        write(integrate("openclaw", file, {("n",): number}, "json5"), paths)
    backups = Backups.of(paths, "openclaw", file)
    assert len(backups.names()) == KEEP
    file.write_text("{ broken")
    with pytest.raises(Refused, match=r"openclaw\.json:1:"):
        plan_undo(paths, None)
    with pytest.raises(Refused, match=r"openclaw\.json:1:"):
        integrate("openclaw", file, VALUES, "json5")
    entry = Journal(paths).entries()[-1]
    perform(plan_back_to(paths, entry, backups.original()), paths)
    assert file.read_text() == BEFORE
    assert undo_all(paths) == []


def test_a_file_that_was_missing_is_missing_again(paths, tmp_path) -> None:
    file = tmp_path / "new" / "deep" / "config.toml"
    write(integrate("hermes", file, {("a",): 1}), paths)
    assert file.read_text() == "a = 1\n"
    undo_all(paths)
    assert not (tmp_path / "new").exists()


def test_a_link_stays_a_link(paths, file, tmp_path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(file.name)
    write(integrate("openclaw", link, VALUES, "json5"), paths)
    assert link.is_symlink() and "ft/m" in file.read_text()
    undo_all(paths)
    assert link.is_symlink() and file.read_text() == BEFORE


def test_changed_between_plan_and_write(paths, file) -> None:
    plan = integrate("openclaw", file, VALUES, "json5")
    file.write_text(BEFORE + " ")
    with pytest.raises(Refused, match="changed by another program"):
        write(plan, paths)
    assert file.read_text() == BEFORE + " "


def test_what_cannot_be_replaced_is_refused(paths, file, tmp_path) -> None:
    os.link(file, tmp_path / "second")
    with pytest.raises(Refused, match="hard links"):
        integrate("openclaw", file, VALUES, "json5")
    (tmp_path / "second").unlink()
    file.chmod(0o440)
    with pytest.raises(Refused, match="write-protected"):
        integrate("openclaw", file, VALUES, "json5")
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    with pytest.raises(Refused, match="cannot be followed"):
        integrate("openclaw", loop, VALUES)
    (tmp_path / "latin.json").write_bytes(b'{"a":\n "\xe9"}')
    with pytest.raises(Refused, match=r"latin\.json:2:3: not valid UTF-8"):
        integrate("openclaw", tmp_path / "latin.json", VALUES)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_owner_stays(paths, file) -> None:
    os.chown(file, 12345, 12346)
    write(integrate("openclaw", file, VALUES, "json5"), paths)
    assert (file.stat().st_uid, file.stat().st_gid) == (12345, 12346)


def test_one_writer_at_a_time(paths, file, monkeypatch) -> None:
    monkeypatch.setattr(journal, "LOCK_WAIT_S", 0.1)
    with Journal(paths).locked(), pytest.raises(Conflict):
        write(integrate("openclaw", file, VALUES, "json5"), paths)
    assert file.read_text() == BEFORE


def test_a_journal_that_cannot_be_read_is_not_empty(paths, file) -> None:
    write(integrate("openclaw", file, VALUES, "json5"), paths)
    paths.journal.write_text("{")
    with pytest.raises(Refused, match=r"restore\.json cannot be read"):
        write(integrate("openclaw", file, {("a",): 1}, "json5"), paths)


def _killed_at(step: int, action) -> bool:
    """Runs `action` in a child that kills itself with SIGKILL before its `step`th call into the operating system or a file.
    Returns whether it was killed."""
    child = os.fork()
    if child == 0:
        seen = 0

        def watch(frame, event, function):
            nonlocal seen
            kinds = (getattr(function, "__module__", None), type(getattr(function, "__self__", None)).__module__)
            if event == "c_call" and {"posix", "_io", "fcntl"} & set(kinds):
                seen += 1
                if seen == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(watch)
        try:
            action()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_killed_at_every_step_the_file_is_old_or_new(paths, file, monkeypatch) -> None:
    """After each death: the file is whole, no temporary file of ours stays behind the next write, and it can be taken back."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a killed process loses nothing that it has written
    write(integrate("openclaw", file, {("first",): 1}, "json5"), paths)
    base = file.read_text()
    plan = integrate("openclaw", file, VALUES, "json5")
    new = plan.after.decode()
    outcomes = []
    step = 1
    while _killed_at(step, lambda: write(plan, paths)):
        found = file.read_text()
        assert found in (base, new), step
        outcomes.append(found == new)
        write(integrate("openclaw", file, {("last",): step}, "json5"), paths)
        assert sorted(p.name for p in file.parent.iterdir()) == ["ft", "openclaw.json"], step
        undo_all(paths)
        assert file.read_text() == BEFORE, step
        write(integrate("openclaw", file, {("first",): 1}, "json5"), paths)
        step += 1
    assert file.read_text() == new
    assert step > 60
    assert outcomes == sorted(outcomes) and set(outcomes) == {False, True}


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_while_taking_back(paths, file, monkeypatch, stride: int) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    write(integrate("openclaw", file, VALUES, "json5"), paths)
    new = file.read_text()
    step = 1
    while _killed_at(step, lambda: undo_all(paths)):
        assert file.read_text() in (BEFORE, new), step
        undo_all(paths)
        assert file.read_text() == BEFORE, step
        write(integrate("openclaw", file, VALUES, "json5"), paths)
        step += stride
    assert file.read_text() == BEFORE


def test_killed_while_a_record_is_saved(paths, monkeypatch) -> None:
    """A session's record, at every step: the old one or the new one, whole, and the next save finds nothing in its way."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    folder = paths.sessions / "s-aaaaaaaaaa"
    records.save(folder, {"name": "old", "runs": ["x" * 100_000]})
    outcomes = []
    step = 1
    while _killed_at(step, lambda: records.save(folder, {"name": "new", "runs": ["y" * 100_000]})):
        found = json.loads((folder / "session.json").read_text())
        assert found in ({"name": "old", "runs": ["x" * 100_000]}, {"name": "new", "runs": ["y" * 100_000]}), step
        outcomes.append(found["name"] == "new")
        records.save(folder, {"name": "old", "runs": ["x" * 100_000]})
        step += 1
    assert step > 8 and outcomes == sorted(outcomes) and set(outcomes) == {False, True}
    assert [session.id for session in records.all_sessions(paths)] == ["s-aaaaaaaaaa"]
