"""`models …`: listing, making and checking model directories. Data on stdout, progress and errors on stderr."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from engine.errors import BadRequest, FtError, NotFound, WeightsError
from engine.weights import fit, making
from engine.weights.manifest import load_manifest, verify
from engine.weights.show import file_size_text, print_json, progress_line, summary
from engine.weights.store import PULLABLE, InUse, check_folder, find_model, model_names

_EXIT_FAILED, _EXIT_USAGE, _EXIT_ABSENT, _EXIT_LATER, _EXIT_SIGNAL = 1, 2, 3, 75, 128


def main(argv: list[str]) -> int:
    """Run one subcommand and return its exit code: 0 done, 1 failed, 2 usage, 3 no such model or source, 75 another process is at it, 128 + signal when
    stopped. Whatever ends it, nothing half-made is left under a model's name."""
    try:
        args = _parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else _EXIT_USAGE
    with _stoppable():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    try:
        check_folder(args.models_dir)
        args.run(args)
    except FtError as error:
        _report(error, args.json)
        if isinstance(error, NotFound):
            return _EXIT_ABSENT
        if isinstance(error, InUse):
            return _EXIT_LATER
        return _EXIT_USAGE if isinstance(error, BadRequest) else _EXIT_FAILED
    except OSError as error:
        _report(
            WeightsError(f"{error.filename or args.models_dir}: {error.strerror}.", "Check disk and permissions."),
            args.json,
        )
        return _EXIT_FAILED
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return _EXIT_SIGNAL + signal.SIGINT
    except _Terminated:
        print("Stopped.", file=sys.stderr)
        return _EXIT_SIGNAL + signal.SIGTERM
    return 0


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends what runs in the block as Ctrl-C does: with its clean-up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Terminated(BaseException):
    pass


def _terminated(number: int, frame: object) -> NoReturn:
    raise _Terminated


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(_EXIT_USAGE, f"ft: {self.prog}: {message}.\n    ft models --help\n")


def _parser() -> _Parser:
    common = _Parser(add_help=False)
    common.add_argument("--models-dir", type=Path, required=True, metavar="DIR", help="folder that holds the models")
    common.add_argument("--json", action="store_true", help="print one JSON document")
    writing = _Parser(add_help=False)
    writing.add_argument("--force", action="store_true", help="make it again although it is there")
    writing.add_argument("--format", metavar="F", help="format of the experts: keep, bf16, q8_0, q4_0, mxfp4, …")
    writing.add_argument("--dense-format", metavar="F", help="format of the other matrices")
    parser = _Parser(prog="ft models", description="List, make and check model directories.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], None], text: str, *parents: Any) -> _Parser:
        command = commands.add_parser(name, parents=[common, *parents], help=text, description=text)
        command.set_defaults(run=run)
        return command

    add("ls", _ls, "list the models")
    add("show", _show, "print what a model directory says").add_argument("name")
    add("verify", _verify, "check every file of a model against its checksum").add_argument("name")
    pull = add("pull", making.pull, "get a model by name, or from the hub", writing)
    pull.add_argument("name", metavar=f"{PULLABLE[0]}|ORG/REPO[:FORMAT]")
    pull.add_argument("--name", dest="as_name", metavar="NAME", help="name of the new model")
    bring = add("import", making.bring, "convert a Hugging Face directory or a GGUF file", writing)
    bring.add_argument("source", nargs="?", help="a folder, a .gguf file, or an id that --list prints")
    bring.add_argument("--name", help="name of the new model")
    bring.add_argument("--list", action="store_true", help="what Ollama, LM Studio and the Hugging Face cache hold")
    convert = add("convert", making.convert, "write a model or a checkpoint in other formats", writing)
    convert.add_argument("source", help="a model, a Hugging Face directory, or a GGUF file")
    convert.add_argument("target", metavar="NAME|FOLDER", help="the new model")
    fake = add("synth", making.synth, "write random weights at the shapes of a known model, for benchmarks", writing)
    fake.add_argument("--like", required=True, metavar="MODEL", help="a known model, or shape-a, shape-b")
    fake.add_argument("--arch", help="refuse unless MODEL is of this architecture")
    fake.add_argument("--layers", type=_count, metavar="N", help="default: as many as MODEL has")
    fake.add_argument(
        "--vocab", type=_count, metavar="N", help="tokens in the vocabulary; default: as many as MODEL has"
    )
    fake.add_argument("--name", required=True, help="name of the new model")
    add("tiny-hybrid", making.tiny_hybrid, "make the tiny random hybrid model that wiring tests use", writing)
    fits = add("fit", fit.command, "rank known models by what they would do on this machine")
    fit.add_flags(fits)
    return parser


def _ls(args: argparse.Namespace) -> None:
    rows = []
    for name in model_names(args.models_dir):
        try:
            rows.append({**summary(load_manifest(args.models_dir / name)), "error": None})
        except WeightsError as error:
            rows.append({"name": name, "error": str(error)})
    if args.json:
        print_json({"schema": "ft.models/1", "models_dir": str(args.models_dir), "models": rows})
        return
    for row in rows:
        if row["error"]:
            print(f"{row['name']:20} unusable: {row['error']}")
        else:
            size = file_size_text(row["bytes"])
            print(
                f"{row['name']:20} {row['arch']:12} {size:>9}  window {row['window_tokens']:,} {row['quality']}".rstrip()
            )
    if not rows:
        print("No model is here yet: ft models pull smollm2-moe", file=sys.stderr)


def _show(args: argparse.Namespace) -> None:
    manifest = load_manifest(find_model(args.models_dir, args.name))
    facts = {**summary(manifest), "geometry": manifest.geometry.to_json()}
    if args.json:
        print_json({"schema": "ft.model/1", **facts})
        return
    for key, value in facts.items():
        print(f"{key:18} {json.dumps(value) if isinstance(value, dict | list) else value}")


def _verify(args: argparse.Namespace) -> None:
    manifest = verify(find_model(args.models_dir, args.name), progress_line(f"Checking {args.name}"))
    if args.json:
        print_json({"schema": "ft.model-verify/1", "name": manifest.name, "ok": True, "bytes": manifest.total_bytes})
    else:
        print(
            f"{manifest.name}: {1 + len(manifest.banks)} files, {file_size_text(manifest.total_bytes)}, all checksums right"
        )


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _report(error: FtError, as_json: bool) -> None:
    if as_json:
        print_json({"error": {"code": error.code, "message": error.message, "fix": error.hint}})
        return
    print(f"ft: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"    {error.hint}", file=sys.stderr)
