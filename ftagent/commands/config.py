"""Show and change settings, say where they come from, and trust a project's own"""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import Any

from ftagent.context import Context, find_project
from ftagent.errors import FtError, NotHere, Refused, UsageError
from ftagent.output import note, print_json, table
from ftagent.settings.config import BY_NAME, OPTIONS, PROJECT_FILE, Option, read_toml
from ftagent.text import require_utf8


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "A flag wins over its variable FT_<OPTION>, that over the project's .ft.toml, that over your config.toml.\n\n"
        "examples:\n"
        "  ft config show --origin          every option, and where its value comes from\n"
        "  ft config set ctx 64k            in your own file; comments and order stay\n"
        "  ft config set model mine --project\n"
        "  ft config set ctx --unset\n"
    )
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="show|get|set|edit|validate|path|schema|trust"
    )
    show = _add(actions, "show", "every option and its value")
    show.add_argument("--origin", action="store_true", help="also where each value comes from")
    show.add_argument("--json", action="store_true", help="as one JSON document")
    get = _add(actions, "get", "the value of one option")
    get.add_argument("key", metavar="OPTION", help="its name, as ft config show lists it")
    get.add_argument("--json", action="store_true", help="as one JSON document")
    set_ = _add(actions, "set", "write one option; everything else in the file stays as it is")
    set_.add_argument("key", metavar="OPTION", help="its name, as ft config show lists it")
    set_.add_argument("value", nargs="?", help="as it would be written after the flag")
    set_.add_argument("--unset", action="store_true", help="take it out of the file")
    set_.add_argument("--dry-run", action="store_true", help="show the difference, write nothing")
    edit = _add(actions, "edit", "open the file in your editor ($VISUAL, $EDITOR), and check it afterwards")
    validate = _add(actions, "validate", "check your file and the project's; exit 4 when something is wrong")
    validate.add_argument("--json", action="store_true", help="as one JSON document")
    path = _add(actions, "path", "where the file is")
    for action in (set_, edit, path):
        action.add_argument("--project", action="store_true", help=f"the project's {PROJECT_FILE}, not your own file")
    _add(actions, "schema", "the JSON schema of the file, for editors")
    trust = _add(actions, "trust", "let the project's file, as it is now, set what runs or redirects something")
    trust.add_argument("-y", "--yes", action="store_true", help="do not ask")
    trust.add_argument("--remove", action="store_true", help="trust it no more")
    trust.add_argument("--dry-run", action="store_true", help="only show what it would set")


def _add(actions: Any, name: str, about: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=about, description=about[0].upper() + about[1:] + "."
    )
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    actions = {
        "show": _show,
        "get": _get,
        "set": _set,
        "edit": _edit,
        "validate": _validate,
        "path": _path,
        "schema": _schema,
        "trust": _trust,
    }
    return actions[args.action](args, context)


def _file(args: argparse.Namespace, context: Context) -> Path:
    return find_project(context.cwd) / PROJECT_FILE if args.project else context.paths.config_file


def _option(name: str) -> Option:
    option = BY_NAME.get(name.replace("-", "_"))
    if option is None:
        from difflib import get_close_matches

        near = get_close_matches(name, BY_NAME, n=1, cutoff=0.5)
        raise UsageError(f"There is no option {name!r}.", f"Did you mean: {near[0]}" if near else "ft config show")
    return option


def _show(args: argparse.Namespace, context: Context) -> int:
    settings = context.settings()
    if args.json:
        values = {o.name: {"value": settings.values[o.name], "origin": settings.origins[o.name]} for o in OPTIONS}
        print_json({"schema": "ft.config/1", "options": values})
        return 0
    rows = [["OPTION", "VALUE", *(["FROM"] if args.origin else []), "MEANING"]]
    for option in OPTIONS:
        value = settings.values[option.name]
        origin = [settings.origins[option.name]] if args.origin else []
        rows.append([option.name, "-" if value is None else str(value), *origin, option.help])
    print(table(rows))
    return 0


def _get(args: argparse.Namespace, context: Context) -> int:
    option = _option(args.key)
    settings = context.settings()
    value = settings.values[option.name]
    if args.json:
        found = {"value": value, "origin": settings.origins[option.name]}
        print_json({"schema": "ft.config/1", "options": {option.name: found}})
    elif value is None:
        raise NotHere(f"{option.name} is not set.", f"ft config set {option.name} VALUE")
    else:
        print(("on" if value else "off") if isinstance(value, bool) else value)
    return 0


def _set(args: argparse.Namespace, context: Context) -> int:
    from ftagent.files import integrate
    from ftagent.files.keys import Edit
    from ftagent.files.writing import plan_edits

    option = _option(args.key)
    if args.unset == (args.value is not None):
        raise UsageError("Give a value, or --unset.", f"ft config set {option.name} VALUE")
    require_utf8(f"The value of {option.name}", args.value or "")
    file = _file(args, context)
    if args.project and not option.inert and not args.unset:
        note(f"ft: {option.name} counts in a project's file only where that is trusted: ft config trust")
    edit = Edit((option.name,), remove=True) if args.unset else Edit((option.name,), _value(option, args.value))
    plan = plan_edits("ft", file, [edit], "toml", "Correct the file: ft config edit")
    if args.dry_run:
        print(integrate.show(plan), end="")
        return 0
    if integrate.write(plan, context.paths) is None:
        note(f"ft: {file} says so already")
    return 0


def _value(option: Option, text: str) -> Any:
    """As it is written in the file: numbers and switches as such, everything else as it was typed."""
    try:
        value = option.parse(text)
    except ValueError as expected:
        raise UsageError(
            f"{option.name} is {text!r}, expected {expected}.", "ft config show", code="FT-E0413 bad-value"
        ) from None
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and str(value) == text.strip():
        return value
    return text.strip()


def _edit(args: argparse.Namespace, context: Context) -> int:
    import subprocess

    from ftagent.files.writing import commit, plan_content

    file = _file(args, context)
    editor = context.env.get("VISUAL") or context.env.get("EDITOR")
    if not editor:
        raise NotHere("No editor is set.", f"export EDITOR=nano, or open {file} yourself")
    if not file.exists():
        commit(plan_content("ft", file, _template(args.project).encode(), "toml"), context.paths)
    code = subprocess.run([*shlex.split(editor), str(file)], env=dict(context.env), check=False).returncode
    if code != 0:
        raise FtError(f"The editor ended with code {code}.", f"Look at {file}")
    return _validate(args, context)


def _template(project: bool) -> str:
    lines = ["# Settings of ft. `ft config validate` checks this file.", ""]
    for option in OPTIONS:
        if option.inert or not project:
            default = option.default
            shown = "" if default is None else str(default).lower() if isinstance(default, bool) else repr(default)
            lines += [f"# {option.help}", f"# {option.name} = {shown}".rstrip(), ""]
    return "\n".join(lines)


def _validate(args: argparse.Namespace, context: Context) -> int:
    from ftagent.settings.config import load_settings
    from ftagent.settings.trust import trusted_by

    project = find_project(context.cwd)
    settings = load_settings(context.paths.config_file, project, {}, None, trusted_by(context.paths))
    files = [str(file) for file in (context.paths.config_file, project / PROJECT_FILE) if file.exists()]
    if getattr(args, "json", False):
        print_json({"schema": "ft.config-check/1", "files": files, "warnings": settings.warnings})
        return Refused.exit_code if settings.warnings else 0
    if settings.warnings:
        raise Refused("; ".join(settings.warnings) + ".", "ft config edit", code="FT-E0413 bad-value")
    note(f"ft: {', '.join(files)}: nothing is wrong" if files else "ft: no settings file: all defaults")
    return 0


def _path(args: argparse.Namespace, context: Context) -> int:
    print(_file(args, context))
    return 0


def _schema(args: argparse.Namespace, context: Context) -> int:
    from ftagent.settings.schema import config_schema

    print_json(config_schema())
    return 0


def _trust(args: argparse.Namespace, context: Context) -> int:
    from ftagent.settings.trust import forget, trust

    file = find_project(context.cwd) / PROJECT_FILE
    if args.remove:
        note(f"ft: {file} is trusted no more" if forget(context.paths, file) else f"ft: {file} was not trusted")
        return 0
    if not file.exists():
        raise NotHere(f"There is no {file}.", "ft config path --project")
    redirecting = {key: value for key, value in read_toml(file).items() if key in BY_NAME and not BY_NAME[key].inert}
    for key, value in redirecting.items():
        print(f"{key} = {value!r}    {BY_NAME[key].help}")
    if not redirecting:
        note(f"ft: {file} holds nothing that needs to be trusted")
        return 0
    if args.dry_run:
        return 0
    if not args.yes and not (context.may_ask and context.confirm(f"Let {os.fspath(file)} set this?")):
        raise Refused(f"{file} was not trusted.", "ft config trust --yes")
    trust(context.paths, file)
    note(f"ft: trusted as it is now; after any change it is asked for anew: {file}")
    return 0
