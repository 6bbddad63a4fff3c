"""`python -P -m engine`: serve, worker, plan, models, bench. Each command imports its own room, and nothing else is loaded."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from engine.errors import FtError, report
from engine.settings import Settings, add_flags


def _serve(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="engine serve", description="Serve one model on a loopback port.")
    add_flags(parser)
    settings = Settings.resolve(vars(parser.parse_args(arguments)), os.environ)
    if settings.upstream:
        from engine.upstream.serve import serve as serve_upstream

        return serve_upstream(settings)
    from engine.front.server import serve

    return serve(settings)


def _worker(arguments: Sequence[str]) -> int:
    from engine.worker import main

    return main(list(arguments))


def _plan(arguments: Sequence[str]) -> int:
    if any(word.partition("=")[0] == "--upstream" for word in arguments) or os.environ.get("FT_UPSTREAM"):
        from engine.upstream.serve import plan

        return plan(arguments)
    from engine.memory.plan_command import main

    return main(list(arguments))


def _models(arguments: Sequence[str]) -> int:
    from engine.weights.commands import main

    return main(list(arguments))


def _bench(arguments: Sequence[str]) -> int:
    from engine.bench.runs import main

    return main(arguments)


def _forget(arguments: Sequence[str]) -> int:
    from engine.forget import main

    return main(arguments)


COMMANDS = {
    "serve": (_serve, "the HTTP front and its worker, in the foreground"),
    "worker": (_worker, "the process that owns weights and caches; started by serve"),
    "plan": (_plan, "what a model needs in memory, before a byte is loaded"),
    "models": (_models, "list, pull, import and verify models"),
    "forget": (_forget, "remove what sessions left on disk"),
    "bench": (_bench, "measure a part of the engine, and report what was kept"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 usage, 3 absent, 4 refused, 5 not ready, 6 conflict."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    listing = "\n".join(f"  {name:8} {text}" for name, (_, text) in COMMANDS.items())
    usage = f"usage: engine COMMAND [options]\n\n{listing}\n"
    if words[:1] in (["-h"], ["--help"]):
        sys.stdout.write(usage)
        return 0
    if not words or words[0] not in COMMANDS:
        sys.stderr.write(usage)
        return 2
    try:
        return COMMANDS[words[0]][0](words[1:])
    except FtError as error:
        report(error.code, error.message, error.hint)
        return exit_code(error)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "engine"):
            raise
        fix = "Install ft with all it needs: pip install --upgrade --force-reinstall ftagent"
        report("FT-E0520 unsupported", f"The Python package {package} is missing.", fix)
        return 5
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        report("FT-E0515 system", f"{where}{error.strerror or error}.", "Check free space and permissions there.")
        return 5
    except KeyboardInterrupt:
        return 130


def exit_code(error: FtError) -> int:
    """The process exit code that an error means."""
    number = error.code.split()[0]
    by_code = {"FT-E0402": 2, "FT-E0404": 3, "FT-E0409": 6, "FT-E0430": 4}
    return by_code.get(number, 5 if number.startswith("FT-E05") else 1)


if __name__ == "__main__":
    sys.exit(main())
