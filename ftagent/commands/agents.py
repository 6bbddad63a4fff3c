"""List agents, install them into ft's own folder, and show what is assumed of one"""

from __future__ import annotations

import argparse
import json
from typing import Any

from ftagent.agents import loader
from ftagent.agents.install import Recipe, install, installed_version, recipe_of, steps
from ftagent.context import Context
from ftagent.errors import FtError, NotHere, Refused
from ftagent.launch.find import agent_path, cached_version, find_executable
from ftagent.output import note, print_json, table


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  ft agents ls\n"
        "  ft agents install codex --dry-run     the very commands, nothing is run\n"
        "  ft agents install codex               the version known to be good; your own installation stays\n"
        "  ft agents card claude                 what ft assumes of it, and of which versions\n"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ls|install|update|card")
    for name, about in (
        ("ls", "the agents, where they are found, and which version is known to be good"),
        ("install", "install the version known to be good, from where its makers publish it"),
        ("update", "as install, where another version is there"),
        ("card", "what is assumed of an agent, by version"),
    ):
        action = actions.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
        if name != "ls":
            action.add_argument("agent", help="one of: " + ", ".join(loader.names()))
        if name in ("install", "update"):
            action.add_argument("--version", metavar="V", help="another version than the one known to be good")
            action.add_argument("--dry-run", action="store_true", help="show the commands, run nothing")
            action.add_argument("-y", "--yes", action="store_true", help="do not ask")
        else:
            action.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace, context: Context) -> int:
    if args.action == "ls":
        return _list(args, context)
    harness = loader.load(args.agent)
    if args.action == "card":
        return _card(args, harness.declaration)
    recipe = recipe_of(harness)
    if recipe is None:
        raise NotHere(f"{harness.adapter.title} has no recipe here.", harness.adapter.install_hint)
    if args.version:
        recipe = recipe.with_version(args.version)
    present = installed_version(context.paths, recipe)
    if args.action == "update" and present is None:
        raise NotHere(f"ft has not installed {args.agent}.", f"ft agents install {args.agent}")
    if present == recipe.version:
        note(f"ft: {recipe.package} {present} is there already")
        return 0
    return _install(args, context, recipe)


def _install(args: argparse.Namespace, context: Context, recipe: Recipe) -> int:
    """The commands are shown before anything runs."""
    import shlex

    for step in steps(context.paths, recipe):
        print(shlex.join(step), flush=True)  # before what the step itself says
    if args.dry_run:
        return 0
    if not args.yes and context.may_ask and not context.confirm("Run this?"):
        raise Refused("Nothing was installed.", f"ft agents install {recipe.agent} --yes")
    executable = install(context.paths, recipe, context.env)
    note(f"ft: {recipe.package} {recipe.version} is installed: {executable}")
    return 0


def _list(args: argparse.Namespace, context: Context) -> int:
    rows: list[dict[str, Any]] = []
    for name in loader.names():
        try:
            harness = loader.load(name)
        except FtError as error:
            rows.append(
                {
                    "name": name,
                    "title": None,
                    "path": None,
                    "version": None,
                    "known_good": None,
                    "ours": False,
                    "problem": error.message,
                }
            )
            continue
        recipe = recipe_of(harness)
        found = find_executable(harness.adapter.executables, agent_path(context.env, context.paths))
        ours = found.path is not None and found.path.is_relative_to(context.paths.agents)
        version = (
            installed_version(context.paths, recipe) if ours and recipe else cached_version(found.path, context.paths)
        )
        rows.append(
            {
                "name": name,
                "title": harness.adapter.title,
                "path": None if found.path is None else str(found.path),
                "version": version,
                "known_good": None if recipe is None else recipe.version,
                "ours": ours,
                "problem": "; ".join(found.skipped) or None,
            }
        )
    if args.json:
        print_json({"schema": "ft.agents/1", "agents": rows})
        return 0
    cells = [
        [str("-" if row[key] is None else row[key]) for key in ("name", "version", "known_good", "path")]
        for row in rows
    ]
    print(table([["NAME", "VERSION", "KNOWN GOOD", "WHERE"], *cells]))
    return 0


def _card(args: argparse.Namespace, declaration: dict[str, Any]) -> int:
    sections = ("versions", "wire", "launch", "card", "install")
    card = {name: declaration[name] for name in sections if name in declaration}
    if args.json:
        print_json({"schema": "ft.agent-card/1", "agent": args.agent, **{name: card.get(name) for name in sections}})
        return 0
    for name in sections:
        value = card.get(name)
        if isinstance(value, dict):
            print(f"{name}")
            for key, inner in value.items():
                for item in inner if isinstance(inner, list) and inner and isinstance(inner[0], dict) else [inner]:
                    print(f"  {key:22} {item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)}")
        elif value is not None:
            print(f"{name:24} {value}")
    return 0
