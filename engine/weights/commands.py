"""`models …`: listing, making and checking model directories. Data on stdout, progress and errors on stderr."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from engine.errors import BadRequest, FtError, NotFound, WeightsError
from engine.weights.catalogue import config_of
from engine.weights.config import architecture
from engine.weights.manifest import Manifest, Progress, load_manifest, verify
from engine.weights.store import PULLABLE, check_name, find_model, model_names

FORMATS = ("q8_0", "bf16", "f32", "q4_0", "mxfp4", "nvfp4", "fp8")
_EXIT_FAILED, _EXIT_USAGE, _EXIT_ABSENT = 1, 2, 3


def main(argv: list[str]) -> int:
    """Run one subcommand and return its exit code: 0 done, 1 failed, 2 usage, 3 no such model or source."""
    try:
        args = _parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else _EXIT_USAGE
    try:
        args.run(args)
    except FtError as error:
        _report(error, args.json)
        if isinstance(error, NotFound):
            return _EXIT_ABSENT
        return _EXIT_USAGE if isinstance(error, BadRequest) else _EXIT_FAILED
    except OSError as error:
        _report(
            WeightsError(f"{error.filename or args.models_dir}: {error.strerror}.", "Check disk and permissions."),
            args.json,
        )
        return _EXIT_FAILED
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(_EXIT_USAGE, f"ft: {self.prog}: {message}.\n    ft models --help\n")


def _parser() -> _Parser:
    common = _Parser(add_help=False)
    common.add_argument("--models-dir", type=Path, required=True, metavar="DIR", help="folder that holds the models")
    common.add_argument("--json", action="store_true", help="print one JSON document")
    making = _Parser(add_help=False)
    making.add_argument("--force", action="store_true", help="make it again although it is there")
    parser = _Parser(prog="ft models", description="List, make and check model directories.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], None], text: str, *parents: Any) -> _Parser:
        command = commands.add_parser(name, parents=[common, *parents], help=text, description=text)
        command.set_defaults(run=run)
        return command

    add("ls", _ls, "list the models")
    add("show", _show, "print what a model directory says").add_argument("name")
    add("verify", _verify, "check every file of a model against its checksum").add_argument("name")
    pull = add("pull", _pull, "get a model by name", making)
    pull.add_argument("name", metavar="|".join(PULLABLE))
    bring = add("import", _import, "convert a Hugging Face directory or a GGUF file", making)
    bring.add_argument("source", type=Path)
    bring.add_argument("--name", required=True, help="name of the new model")
    fake = add("synth", _synth, "write random weights at the shapes of a known model, for benchmarks", making)
    fake.add_argument("--like", required=True, metavar="MODEL", help="a known model, or shape-a, shape-b")
    fake.add_argument("--arch", help="refuse unless MODEL is of this architecture")
    fake.add_argument("--layers", type=_count, metavar="N", help="default: as many as MODEL has")
    fake.add_argument(
        "--vocab", type=_count, metavar="N", help="tokens in the vocabulary; default: as many as MODEL has"
    )
    fake.add_argument("--name", required=True, help="name of the new model")
    add("tiny-hybrid", _tiny_hybrid, "make the tiny random hybrid model that wiring tests use", making)
    for command, dense_default in ((pull, "bf16"), (bring, "bf16"), (fake, "bf16")):
        command.add_argument("--format", choices=FORMATS, default="q8_0", help="format of the experts")
        command.add_argument("--dense-format", choices=FORMATS, default=dense_default, help="format of other matrices")
    return parser


def _ls(args: argparse.Namespace) -> None:
    rows = []
    for name in model_names(args.models_dir):
        try:
            rows.append({**_summary(load_manifest(args.models_dir / name)), "error": None})
        except WeightsError as error:
            rows.append({"name": name, "error": str(error)})
    if args.json:
        _print_json({"schema": "ft.models/1", "models_dir": str(args.models_dir), "models": rows})
        return
    for row in rows:
        if row["error"]:
            print(f"{row['name']:20} unusable: {row['error']}")
        else:
            size = _size(row["bytes"])
            print(
                f"{row['name']:20} {row['arch']:12} {size:>9}  window {row['window_tokens']:,} {row['quality']}".rstrip()
            )
    if not rows:
        print("No model is here yet: ft models pull smollm2-moe", file=sys.stderr)


def _show(args: argparse.Namespace) -> None:
    manifest = load_manifest(find_model(args.models_dir, args.name))
    summary = {**_summary(manifest), "geometry": manifest.geometry.to_json()}
    if args.json:
        _print_json({"schema": "ft.model/1", **summary})
        return
    for key, value in summary.items():
        print(f"{key:18} {json.dumps(value) if isinstance(value, dict | list) else value}")


def _verify(args: argparse.Namespace) -> None:
    manifest = verify(find_model(args.models_dir, args.name), _progress(f"Checking {args.name}"))
    if args.json:
        _print_json({"schema": "ft.model-verify/1", "name": manifest.name, "ok": True, "bytes": manifest.total_bytes})
    else:
        print(f"{manifest.name}: {1 + len(manifest.banks)} files, {_size(manifest.total_bytes)}, all checksums right")


def _pull(args: argparse.Namespace) -> None:
    if args.name not in PULLABLE:
        raise NotFound(
            f"There is no model {args.name!r} to pull.",
            f"Known: {', '.join(PULLABLE)}. Others: ft models import SOURCE --name NAME",
        )

    def make(progress: Progress) -> None:
        from engine.weights.builtin import smollm2_moe

        smollm2_moe(args.models_dir, args.name, args.format, args.dense_format, progress)

    _make(args, args.name, make)


def _tiny_hybrid(args: argparse.Namespace) -> None:
    def make(progress: Progress) -> None:
        from engine.weights.builtin import tiny_hybrid

        tiny_hybrid(args.models_dir, "tiny-hybrid", progress)

    _make(args, "tiny-hybrid", make)


def _synth(args: argparse.Namespace) -> None:
    def make(progress: Progress) -> None:
        from engine.weights.synth import synth

        synth(args.models_dir, args.name, config, args.format, args.dense_format, progress, args.like)

    config = config_of(args.like, args.layers, args.vocab)
    if args.arch and architecture({"model_type": args.arch}) != architecture(config):
        raise BadRequest(
            f"{args.like} is of architecture {architecture(config)}, not {args.arch}.", "Leave --arch out."
        )
    _make(args, check_name(args.name), make)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _import(args: argparse.Namespace) -> None:
    def make(progress: Progress) -> None:
        from engine.weights.checkpoint import open_checkpoint
        from engine.weights.convert import convert

        source, facts = open_checkpoint(args.source, "f32" if args.dense_format == "f32" else "bf16")
        convert(source, facts, args.models_dir, args.name, args.format, args.dense_format, progress)

    _make(args, check_name(args.name), make)


def _make(args: argparse.Namespace, name: str, make: Callable[[Progress], None]) -> None:
    """Run `make` unless a whole model of that name is there, and print where it is."""
    directory = args.models_dir / name
    made = args.force or not directory.exists()
    if made:
        started = time.monotonic()
        make(_progress(f"Writing {name}"))
        print(f"Wrote {directory} in {time.monotonic() - started:.1f} s.", file=sys.stderr)
    manifest = load_manifest(directory)
    if not made:
        print(f"{name} is already there.", file=sys.stderr)
    if args.json:
        _print_json({"schema": "ft.model/1", **_summary(manifest), "made": made})
    else:
        print(directory)


def _summary(manifest: Manifest) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "directory": str(manifest.directory),
        "arch": manifest.arch,
        "source": manifest.source,
        "created_by": manifest.created_by,
        "bytes": manifest.total_bytes,
        "window_tokens": manifest.window_tokens,
        "experts": manifest.geometry.experts,
        "top_k": manifest.geometry.top_k,
        "formats": sorted(
            {bank.format for bank in manifest.banks} or {e.format for e in manifest.dense.values() if e.format}
        ),
        "kv_dtype": manifest.kv_dtype,
        "dialect": manifest.dialect,
        "thinking": manifest.thinking,
        "quality": manifest.quality,
    }


def _progress(label: str) -> Progress:
    """A progress line on a terminal, and one line per tenth elsewhere."""
    shown = -1
    live = sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        nonlocal shown
        percent = 100 * done // max(total, 1)
        if percent == shown or (not live and percent // 25 == shown // 25):
            return
        shown = percent
        end = "\r" if live and done < total else "\n"
        print(f"{label} {percent:3d} %", end=end, file=sys.stderr, flush=True)

    return show


def _report(error: FtError, as_json: bool) -> None:
    if as_json:
        _print_json({"error": {"code": error.code, "message": error.message, "fix": error.hint}})
        return
    print(f"ft: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"    {error.hint}", file=sys.stderr)


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2, ensure_ascii=False))


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB"
