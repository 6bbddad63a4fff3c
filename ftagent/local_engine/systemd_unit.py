"""A user unit of systemd that runs the engine in the foreground."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

_UNIT = """\
# ft engine unit > ~/.config/systemd/user/ft.service
# systemctl --user daemon-reload && systemctl --user enable --now ft
[Unit]
Description=ft engine
StartLimitIntervalSec=600
StartLimitBurst=3

[Service]
Type=exec
ExecStart={command}
{environment}Restart=on-failure
RestartSec=5
KillMode=mixed
TimeoutStopSec=40
NoNewPrivileges=yes
UMask=0077

[Install]
WantedBy=default.target
"""


def unit(arguments: Sequence[str], env: Mapping[str, str]) -> str:
    """Starts this very ft. Of the environment only the folders stay that say where ft keeps its things."""
    command = " ".join(_quoted(word) for word in [sys.executable, "-P", "-m", "ftagent", "serve", *arguments])
    names = ("FT_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
    lines = [f"Environment={_quoted(f'{name}={env[name]}')}\n" for name in names if env.get(name, "").startswith("/")]
    return _UNIT.format(command=command, environment="".join(lines))


def _quoted(word: str) -> str:
    """As systemd reads a command line: `%` and `$` have a meaning there."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if not word or any(c in word for c in " \t\"'\\;") else escaped
