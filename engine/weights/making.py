"""The `models` commands that write a model: pull, import, convert, synth and the wiring model."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from engine.errors import BadRequest, NotFound, WeightsError
from engine.weights import discover
from engine.weights.catalogue import config_of, known_models
from engine.weights.config import architecture
from engine.weights.manifest import MANIFEST_FILE, Progress, load_manifest
from engine.weights.plausible import check_config
from engine.weights.show import file_size_text, print_json, progress_line, summary
from engine.weights.store import PULLABLE, check_name, find_model, mode_of

KEEP = "keep"


def pull(args: argparse.Namespace) -> None:
    """`models pull NAME|ORG/REPO[:FORMAT]`."""
    wanted, _, suffix = args.name.partition(":")
    if suffix and args.format:
        raise BadRequest(f"The format is given twice: {suffix} and {args.format}.", "Leave --format out.")
    format = _checked(suffix or args.format or KEEP)
    if wanted in PULLABLE:
        _pull_builtin(args, wanted, suffix or args.format)
        return
    repo = known_models()[wanted].repo if wanted in known_models() else wanted
    if repo.count("/") != 1:
        raise NotFound(
            f"There is no model {wanted!r} to pull.",
            f"Known: {', '.join(PULLABLE)}. Others: a name that ft models fit prints, ORG/REPO of the hub, "
            "or what is on the disk: ft models import --list",
        )
    name = check_name(args.as_name or pulled_name(wanted, format))

    def make(progress: Progress) -> None:
        from engine.weights.pull import pull as pull_repository

        pull_repository(repo, args.models_dir, name, format, args.dense_format or KEEP, progress, _say)

    _make(args, name, make)


def pulled_name(wanted: str, format: str) -> str:
    """What a pull calls its model where no name is given."""
    default = wanted.partition("/")[2] or wanted
    return default if format == KEEP else f"{default}-{format}"


def _pull_builtin(args: argparse.Namespace, name: str, format: str | None) -> None:
    def make(progress: Progress) -> None:
        from engine.weights.builtin import smollm2_moe

        smollm2_moe(args.models_dir, name, format or "q8_0", args.dense_format or "bf16", progress)

    _make(args, name, make)


def tiny_hybrid(args: argparse.Namespace) -> None:
    """`models tiny-hybrid`."""

    def make(progress: Progress) -> None:
        from engine.weights.builtin import tiny_hybrid as make_hybrid

        make_hybrid(args.models_dir, "tiny-hybrid", progress)

    _make(args, "tiny-hybrid", make)


def synth(args: argparse.Namespace) -> None:
    """`models synth --like MODEL --name NAME`."""
    config = config_of(args.like, args.layers, args.vocab)
    try:
        check_config(config, args.like)
    except WeightsError as error:
        raise BadRequest(error.message, "Give other --layers or --vocab.") from None
    if args.arch and architecture({"model_type": args.arch}) != architecture(config):
        raise BadRequest(
            f"{args.like} is of architecture {architecture(config)}, not {args.arch}.", "Leave --arch out."
        )

    def make(progress: Progress) -> None:
        from engine.weights.synth import synth as write

        write(
            args.models_dir, args.name, config, args.format or "q8_0", args.dense_format or "bf16", progress, args.like
        )

    _make(args, check_name(args.name), make)


def bring(args: argparse.Namespace) -> None:
    """`models import SOURCE --name NAME`, or `models import --list`."""
    if args.list:
        _list(args)
        return
    if args.source is None or args.name is None:
        raise BadRequest("A source and --name are needed.", "What is on the disk: ft models import --list")
    source = Path(args.source)
    if ":" in args.source and not mode_of(source):
        found = discover.find(args.source, os.environ, Path.home())
        if found is None:
            raise NotFound(f"{args.source!r} is not on this machine.", "ft models import --list")
        source = found.path
    _convert(args, source, args.models_dir, check_name(args.name))


def convert(args: argparse.Namespace) -> None:
    """`models convert SOURCE NAME|FOLDER`."""
    target = Path(args.target)
    folder, name = (target.absolute().parent, target.name) if "/" in args.target else (args.models_dir, args.target)
    check_name(name)
    source = Path(args.source)
    try:
        model = find_model(args.models_dir, args.source)
    except NotFound:
        if not mode_of(source):
            raise
        model = source
    if not (model / MANIFEST_FILE).is_file():
        _convert(args, source, folder, name)
        return
    manifest = load_manifest(model)
    if (folder / name).absolute() == model.absolute():
        raise BadRequest(f"{name} cannot be written over itself.", "Give the result another name.")

    def make(progress: Progress) -> None:
        from engine.weights.refit import refit

        refit(manifest, folder, name, _checked(args.format or KEEP), _checked(args.dense_format or KEEP), progress)

    _make(args, name, make, folder)


def _convert(args: argparse.Namespace, path: Path, models_dir: Path, name: str) -> None:
    def make(progress: Progress) -> None:
        from engine.weights.checkpoint import open_checkpoint
        from engine.weights.choice import choose
        from engine.weights.convert import convert as write
        from engine.weights.convert import weight_map_of

        formats = _checked(args.format or KEEP), _checked(args.dense_format or KEEP)
        source, facts = open_checkpoint(path, "f32" if formats[1] == "f32" else "bf16")
        for note in (*choose(source, weight_map_of(facts.config), *formats).notes, *facts.notes):
            _say(note)
        write(source, facts, models_dir, name, *formats, progress)

    _make(args, name, make, models_dir)


def _list(args: argparse.Namespace) -> None:
    found = discover.discover(os.environ, Path.home())
    if args.json:
        print_json({"schema": "ft.models-found/1", "models": [model.to_json() for model in found]})
        return
    for model in found:
        print(f"{file_size_text(model.size_bytes):>9}  {model.kind:11}  {model.id}")
    if found:
        print("To bring one in: ft models import ID --name NAME", file=sys.stderr)
    else:
        print("Ollama, LM Studio and the Hugging Face cache hold no model here.", file=sys.stderr)


def _make(
    args: argparse.Namespace, name: str, make: Callable[[Progress], None], models_dir: Path | None = None
) -> None:
    """Run `make` unless a whole model of that name is there, and print where it is."""
    directory = (models_dir or args.models_dir) / name
    made = args.force or not directory.exists()
    if made:
        started = time.monotonic()
        make(progress_line(f"Writing {name}"))
        print(f"Wrote {directory} in {time.monotonic() - started:.1f} s.", file=sys.stderr)
    manifest = load_manifest(directory)
    if not made:
        print(f"{name} is already there.", file=sys.stderr)
    if args.json:
        print_json({"schema": "ft.model/1", **summary(manifest), "made": made})
    else:
        print(directory)


def _checked(format: str) -> str:
    from engine.kernels.contract import FORMATS

    if format not in (KEEP, *FORMATS):
        raise BadRequest(f"The format {format!r} is not known.", f"Use one of {KEEP}, {', '.join(FORMATS)}.")
    return format


def _say(line: str) -> None:
    print(line, file=sys.stderr)
