"""The mini agent: a module of this distribution, run by the interpreter that runs ft."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harnesses.contract import HarnessError, Injection, LaunchContext
from harnesses.launchdata import check_window, environment, read_launch

LAUNCH = read_launch(Path(__file__).parent)
# -E and -P: modules of the project the user works in never stand in for ours, while the tools still get PYTHONPATH.
ARGV = ("-E", "-P", "-m", "harnesses.mini")


class MiniAdapter:
    name = "mini"
    title = LAUNCH.title
    executables: Sequence[str] = ()
    install_hint = "it is part of ft"
    version_args: Sequence[str] = ()

    def reads(self, context: LaunchContext) -> list[Path]:
        return []

    def inject(self, context: LaunchContext) -> Injection:
        if context.resume is not None:
            raise HarnessError("The mini agent keeps no conversations.", "Start a new session.")
        return Injection(
            argv=[*ARGV, *context.args],
            env=environment(LAUNCH, context),
            warnings=check_window(LAUNCH, context),
            watchdog_s=float(context.silence_limit_s),
            watchdog_default_s=LAUNCH.watchdog_default_s,
        )

    def transcript(self, context: LaunchContext, harness_id: str) -> Path | None:
        return None


ADAPTER = MiniAdapter()
