"""Settings: which source wins, and what is said about a bad one."""

from pathlib import Path

import pytest

from ftagent.errors import Refused, UsageError
from ftagent.settings.config import load_settings


def test_precedence(tmp_path: Path) -> None:
    user = tmp_path / "config.toml"
    user.write_text('model = "user"\nctx = "32k"\nport = 2000\nkv = 1000\n')
    (tmp_path / ".ft.toml").write_text('model = "project"\nctx = 4096\n')
    settings = load_settings(user, tmp_path, {"FT_MODEL": "env", "FT_WAIT": "5"}, {"model": "flag", "kv": None})
    assert settings.values["model"] == "flag"
    assert settings.values["ctx"] == 4096
    assert settings.values["port"] == 2000
    assert settings.values["kv"] == 1000
    assert settings.values["wait"] == 5
    origins = {name: settings.origins[name] for name in ("model", "ctx", "port", "wait", "threads")}
    assert origins == {
        "model": "--model",
        "ctx": str(tmp_path / ".ft.toml"),
        "port": str(user),
        "wait": "$FT_WAIT",
        "threads": "default",
    }


def test_a_project_cannot_redirect(tmp_path: Path) -> None:
    (tmp_path / ".ft.toml").write_text('model = "m"\n\nengine = "http://evil.example"\nmodels_dir = "/x"\nport = 1\n')
    settings = load_settings(tmp_path / "none.toml", tmp_path, {})
    assert settings.values["engine"] is None
    assert settings.values["models_dir"] is None
    assert settings.values["port"] == 1919
    assert len(settings.warnings) == 3
    assert f"{tmp_path / '.ft.toml'}:3" in settings.warnings[0]


def test_broken_toml_names_file_and_line_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('model = "a"\nctx = = 3\n')
    with pytest.raises(Refused) as caught:
        load_settings(file, None, {})
    assert f"{file}:2:" in caught.value.message
    assert caught.value.exit_code == 4
    assert file.read_text() == 'model = "a"\nctx = = 3\n'


@pytest.mark.parametrize("line", ['ctx = "many"', "ctx = 0", "ctx = true", "port = 70000", "model = 3", "wait = 0"])
def test_a_bad_value_is_an_error_with_its_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text("# a comment\n" + line + "\n")
    with pytest.raises(Refused, match=r"config\.toml:2"):
        load_settings(file, None, {})


def test_a_bad_variable_and_a_bad_flag_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\$FT_PORT"):
        load_settings(tmp_path / "x", None, {"FT_PORT": "http"})
    with pytest.raises(UsageError, match="--ctx"):
        load_settings(tmp_path / "x", None, {}, {"ctx": "-5"})


def test_unknown_keys_are_named(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('modle = "x"\n')
    assert "config.toml:1: unknown key 'modle'" in load_settings(file, None, {}).warnings[0]
