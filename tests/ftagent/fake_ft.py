"""`ft` whose engine is fake_front.py: everything else is the real program."""

import errno
import os
import sys
from pathlib import Path

from ftagent.cli import main
from ftagent.local_engine import command, process, provision

FRONT = str(Path(__file__).with_name("fake_front.py"))


def fake_command(*arguments: str) -> list[str]:
    if arguments[0] != "serve":
        return [sys.executable, "-P", "-m", "engine", *arguments]
    return [sys.executable, "-P", FRONT, *arguments[1:]]


def fake_tool(env, *arguments, output_to_stderr=False):
    """`models pull`: the folder with the one field that plans read."""
    assert arguments[:2] == ("models", "pull")
    folder = Path(arguments[arguments.index("--models-dir") + 1]) / arguments[2]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ftw.json").write_text('{"window_tokens": 65536, "quality": "toy"}')
    return 0


def full_disk(descriptor):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


if os.environ.get("FAKE_FULL_DISK"):
    os.fsync = full_disk
command.engine_command = process.engine_command = fake_command
provision.run_engine_tool = fake_tool
sys.exit(main())
