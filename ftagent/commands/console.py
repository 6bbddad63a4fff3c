"""The web console: the dashboard in a browser of this machine, with a slider for the memory"""

from __future__ import annotations

import argparse
import os
import webbrowser
from html import escape
from pathlib import Path

from ftagent.context import Context
from ftagent.errors import NotHere
from ftagent.launch.receipt import Prices
from ftagent.local_engine.report import running_client
from ftagent.output import note, print_json

_DOOR = "console.html"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--open", action="store_true", help="open it in the browser ($BROWSER, or the desktop's)")
    parser.add_argument("--json", action="store_true", help="the address as one JSON document")
    parser.epilog = "The address works once, within two minutes, on this machine. Prices are those of the receipts: ft config set price_input ..."


def run(args: argparse.Namespace, context: Context) -> int:
    """Exit 3 when no engine is running, or no browser is there to open."""
    client = running_client(context)
    prices = Prices.of(context.settings())
    told = None if prices is None else {"input": prices.input, "cached": prices.cached, "output": prices.output}
    answer = client.post("/v1/engine/console", {"prices": told})
    url = str(answer["url"])
    if args.json:
        print_json({"schema": "ft.console/1", "url": url, "expires_s": answer["expires_s"]})
    else:
        print(url)
    if args.open:
        _open(context.paths.engine_file.with_name(_DOOR), url)
    elif not args.json:
        note(f"ft: open it in a browser of this machine within {answer['expires_s']:.0f} s; it works once")
    return 0


def _open(door: Path, url: str) -> None:
    """By way of a file that only its owner reads: everybody on the machine sees the arguments of a browser that starts."""
    door.unlink(missing_ok=True)
    descriptor = os.open(door, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        where = escape(url)
        file.write(
            f'<!doctype html><meta http-equiv="refresh" content="0;url={where}"><a href="{where}">ft console</a>\n'
        )
    if not webbrowser.open(door.as_uri()):
        raise NotHere(
            "No browser could be opened.", "Open the address yourself: ft console", code="FT-E0305 no-browser"
        )
