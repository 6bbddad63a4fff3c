"""A program in a terminal of its own, as far as the tests that play a person at one agree."""

import os
import select
import time
from contextlib import suppress


class Job:
    """`pid` has the terminal whose other end is `master`; `output` is what came so far."""

    pid: int
    master: int
    output: str

    def wait(self, limit_s: float = 400.0) -> int:
        """The exit code of the program, whose output is taken until it ends. The machine may be busy with anything."""
        deadline = time.monotonic() + limit_s
        while True:
            if select.select([self.master], [], [], 0.02)[0]:
                with suppress(OSError):
                    self.output += os.read(self.master, 65536).decode(errors="replace")
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            assert time.monotonic() < deadline, self.output
