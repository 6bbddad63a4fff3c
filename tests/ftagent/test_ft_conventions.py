"""What every command keeps: exit codes, schemas of JSON, variables of options, colours, help, signals. The real program."""

import fcntl
import json
import os
import pty
import signal
import time

import pytest

from ftagent.commandline.runner import build_parser, take_variables
from ftagent.errors import UsageError


def test_exit_0_1_2_3_4(sandbox) -> None:
    assert sandbox.run("config", "show").returncode == 0
    assert sandbox.run("doctor", "--strict").returncode == 1
    assert sandbox.run("launch").returncode == 2
    assert sandbox.run("sessions", "show", "nobody").returncode == 3
    (sandbox.ft_home / "config").mkdir()
    (sandbox.ft_home / "config" / "config.toml").write_text("= 1\n")
    assert sandbox.run("ls").returncode in (0, 4)
    assert sandbox.run("config", "validate").returncode == 4


def test_exit_5_of_an_engine_that_cannot_start(sandbox) -> None:
    """A model directory whose tensors are not there: the real engine says so and ends."""
    sandbox.model("broken")
    done = sandbox.run("engine", "start", "-m", "broken", "--wait", "20")
    assert done.returncode == 5, done.stderr
    assert sandbox.run("engine", "stop").returncode == 0


def test_exit_6_where_the_port_is_somebody_elses(sandbox) -> None:
    import socket

    sandbox.model()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", int(sandbox.env["FT_PORT"])))
        other.listen()
        assert sandbox.run("engine", "start").returncode == 6


def test_exit_75_while_another_pull_runs(sandbox) -> None:
    folder = sandbox.ft_home / "data" / "models" / ".model.pull"
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = sandbox.run("models", "pull", "owner/model")
    assert done.returncode == 75, done.stderr


def test_exit_125_126_127_and_the_agents_own(sandbox, pulled) -> None:
    assert sandbox.run("launch", "pi", fake=True).returncode == 127
    assert sandbox.agent("exit 41").exists()
    assert sandbox.run("launch", "pi", fake=True).returncode == 41
    sandbox.agent("kill -TERM $$")
    assert sandbox.run("launch", "pi", fake=True).returncode == 143
    (sandbox.bin / "pi").chmod(0o644)
    assert sandbox.run("launch", "pi", fake=True).returncode == 126
    sandbox.agent("exit 0")
    engine = sandbox.runtime / "engine.json"
    engine.write_text(json.dumps({**json.loads(engine.read_text()), "admin_token": "wrong"}))
    refused = sandbox.run("launch", "pi", fake=True)
    assert refused.returncode == 125, refused.stderr


@pytest.mark.parametrize(("name", "code"), [("INT", 130), ("TERM", -15)])
def test_signals_end_it_quietly(name: str, code: int, sandbox) -> None:
    log = sandbox.ft_home / "state" / "logs" / "engine.log"
    log.parent.mkdir(parents=True)
    log.write_text("one\n")
    process = sandbox.start("engine", "logs", "-f")
    assert process.stdout.readline() == "one\n"
    process.send_signal(getattr(signal, "SIG" + name))
    _, errors = process.communicate(timeout=180)
    assert process.returncode == code
    assert "Traceback" not in errors


def test_a_variable_for_every_option(sandbox) -> None:
    """Flag > variable > project > user > default, and a bad value names its variable."""
    assert json.loads(sandbox.run("config", "show", env={"FT_JSON": "1"}).stdout)["schema"] == "ft.config/1"
    assert sandbox.run("doctor", env={"FT_STRICT": "on"}).returncode == 1
    bad = sandbox.run("doctor", env={"FT_STRICT": "perhaps"})
    assert bad.returncode == 2 and "$FT_STRICT" in bad.stderr
    (sandbox.ft_home / "config").mkdir()
    (sandbox.ft_home / "config" / "config.toml").write_text("ctx = 1000\n")

    def shown(**env: str) -> tuple[int, str]:
        options = json.loads(sandbox.run("config", "show", "--json", env=env).stdout)["options"]
        return options["ctx"]["value"], options["ctx"]["origin"].rpartition("/")[2]

    assert shown() == (1000, "config.toml")
    (sandbox.project / ".ft.toml").write_text("ctx = 2000\n")
    assert shown() == (2000, ".ft.toml")
    assert shown(FT_CTX="3000") == (3000, "$FT_CTX")
    plan = sandbox.run("launch", "pi", "--dry-run", "--json", "--ctx", "4000", "--force", env={"FT_CTX": "3000"})
    assert json.loads(plan.stdout)["engine"]["window_tokens"] == 4000


def test_what_destroys_is_typed() -> None:
    parser = build_parser("uninstall")
    take_variables(parser, {"FT_YES": "1", "FT_KEEP_MODELS": "1"})
    args = parser.parse_args([])
    assert (args.yes, args.keep_models) == (False, True)
    with pytest.raises(UsageError, match="FT_VALUES"):
        take_variables(build_parser("completion"), {"FT_VALUES": "x"})


@pytest.mark.parametrize(
    ("env", "flags", "coloured"),
    [
        ({}, [], False),
        ({"CLICOLOR_FORCE": "1"}, [], True),
        ({"FORCE_COLOR": "1"}, [], True),
        ({"FORCE_COLOR": "0"}, [], False),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, [], True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, [], False),
        ({"NO_COLOR": "1"}, ["--color=always"], True),
        ({"FORCE_COLOR": "1", "FT_COLOR": "never"}, [], False),
        ({"FT_COLOR": "never"}, ["--color", "always"], True),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, [], True),
    ],
)
def test_colours(env, flags, coloured, sandbox) -> None:
    assert ("\x1b" in sandbox.run(*flags, "doctor", env=env).stdout) is coloured


@pytest.mark.parametrize(
    ("env", "coloured"), [({}, True), ({"CLICOLOR": "0"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)]
)
def test_colours_on_a_terminal(env, coloured, sandbox) -> None:
    text, code = on_terminal(sandbox, ["doctor"], b"", env)
    assert (("\x1b[" in text), code) == (coloured, 0)


def on_terminal(sandbox, arguments, typed: bytes, env=()) -> tuple[str, int]:
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(sandbox.project)
        command = [*sandbox.fake_ft, *arguments]
        os.execvpe(command[0], command, {**sandbox.env, **dict(env)})
    if typed:
        os.write(master, typed)
    text = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    _, status = os.waitpid(pid, 0)
    os.close(master)
    return text.decode(), os.waitstatus_to_exitcode(status)


def test_questions_are_asked_on_a_terminal_only(sandbox) -> None:
    (sandbox.project / ".ft.toml").write_text('engine = "http://10.0.0.1:1"\n')
    text, code = on_terminal(sandbox, ["config", "trust"], b"n\n")
    assert "[y/N]" in text and code == 4
    for env, flags in (({"CI": "1"}, []), ({"FT_NO_INPUT": "1"}, []), ({}, ["--no-input"])):
        text, code = on_terminal(sandbox, ["config", "trust", *flags], b"", env)
        assert "[y/N]" not in text and code == 4
    assert on_terminal(sandbox, ["config", "trust"], b"y\n")[1] == 0
    assert sandbox.run("config", "get", "engine").stdout == "http://10.0.0.1:1\n"


def test_help_is_short_or_long_with_examples_first(sandbox) -> None:
    short = sandbox.run("launch", "-h")
    long = sandbox.run("launch", "--help")
    assert (short.returncode, long.returncode) == (0, 0)
    assert len(short.stdout.splitlines()) < 8 < len(long.stdout.splitlines())
    assert long.stdout.index("examples:") < long.stdout.index("--dry-run")
    assert sandbox.run("help", "config", "set").stdout == sandbox.run("config", "set", "--help").stdout
    near = sandbox.run("restroe")
    assert near.returncode == 2 and "ft restore" in near.stderr


def test_a_unit_for_systemd(sandbox, tmp_path) -> None:
    unit = sandbox.run("engine", "unit", "-m", "my model", "--port", "2000").stdout
    assert '--model "my model" --port 2000' in unit
    assert f"Environment=FT_HOME={sandbox.ft_home}" in unit
    assert not (sandbox.home / ".config").exists()


def test_a_thousand_sessions_are_listed_quickly_and_a_broken_one_hides_none(sandbox) -> None:
    """In processor time, beside the same command without sessions; the best of three."""

    def cost() -> float:
        times = []
        for _ in range(3):
            before = os.times()
            assert sandbox.run("ls", "--json").returncode == 0
            after = os.times()
            times.append(after.children_user + after.children_system - before.children_user - before.children_system)
        return min(times)

    empty = cost()
    root = sandbox.ft_home / "state" / "sessions"
    letters = "abcdefghijklmnopqrstuvwxyz234567"
    for number in range(1000):
        folder = root / f"s-aaaaaaa{letters[number >> 10]}{letters[number >> 5 & 31]}{letters[number & 31]}"
        folder.mkdir(parents=True)
        record = {"schema": "ft.session/1", "id": folder.name, "name": f"n{number}", "created": str(time.time())}
        record |= {"agent": {"name": "pi"}, "project": {"root": str(sandbox.project)}, "runs": [], "model": {"id": "m"}}
        (folder / "session.json").write_text(json.dumps(record) if number % 50 else "{broken")
    listed = json.loads(sandbox.run("ls", "--json").stdout)["sessions"]
    assert len(listed) == 1000
    assert sum(row["status"] == "unreadable" for row in listed) == 20
    assert cost() - empty < 0.2
