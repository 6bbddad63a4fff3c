"""Ask the running engine: health, stats, requests, explain, anchors"""

from __future__ import annotations

import argparse
import json
from typing import Any

from ftagent.context import Context
from ftagent.engine_report import running_client
from ftagent.errors import NotHere
from ftagent.explain import anchors_text, explain_text
from ftagent.output import print_json, table

_COLUMNS = (
    ("session", "SESSION"),
    ("api", "API"),
    ("prompt_tokens", "PROMPT"),
    ("cached_tokens", "CACHED"),
    ("replayed_tokens", "REPLAYED"),
    ("new_tokens", "NEW"),
    ("output_tokens", "OUT"),
    ("ttft_s", "TTFT"),
    ("end", "END"),
    ("scripted", "SCRIPTED"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="health|stats|requests|explain|anchors")
    for name, about in (
        ("health", "whether it is alive"),
        ("stats", "counters and the memory map"),
        ("requests", "the newest requests, one a line"),
        ("explain", "what each turn of a session had to compute, and why"),
        ("anchors", "the saved states that a next prompt can resume from"),
    ):
        action = actions.add_parser(name, help=about, description=about.capitalize() + ".")
        action.add_argument("--json", action="store_true")
        if name == "requests":
            action.add_argument("--session", metavar="ID", help="of one session")
            action.add_argument("-n", "--lines", type=int, default=20, metavar="N")
        if name == "explain":
            action.add_argument("session", nargs="?", metavar="SESSION", help="default: the one used last")
            action.add_argument("--texts", action="store_true", help="show the old and the new text around each break")


def run(args: argparse.Namespace, context: Context) -> int:
    """Exit 3 when no engine is running."""
    client = running_client(context)
    if args.action == "requests":
        return _requests(client, args)
    if args.action == "explain":
        return _explain(client, args)
    if args.action == "anchors":
        return _anchors(client, args)
    document = client.get("/health" if args.action == "health" else "/v1/stats")
    if args.json:
        print_json(document)
    else:
        _print_flat(document)
    return 0


def _requests(client: Any, args: argparse.Namespace) -> int:
    if args.session:
        session = _full_id(client, args.session)
        answer = client.get(f"/v1/sessions/{session}/turns?limit={max(0, args.lines)}")
        records = answer["turns"]
    else:
        answer = client.get(f"/v1/requests?limit={max(0, args.lines)}")
        records = answer["requests"]
    if args.json:
        print_json({"schema": answer["schema"], "requests": records})
        return 0
    rows = [[head for _, head in _COLUMNS]]
    for record in records:
        rows.append([_cell(record.get(key)) for key, _ in _COLUMNS])
    print(table(rows))
    return 0


def _explain(client: Any, args: argparse.Namespace) -> int:
    """Exit 3 when there is no such session, or none at all."""
    session = _full_id(client, args.session) if args.session else _newest(client)
    facts = client.get(f"/v1/sessions/{session}")
    answer = client.get(f"/v1/sessions/{session}/turns" + ("?texts=1" if args.texts else ""))
    if args.json:
        print_json({"schema": answer["schema"], "session": facts, "turns": answer["turns"]})
    else:
        print(explain_text(facts, answer["turns"]))
    return 0


def _anchors(client: Any, args: argparse.Namespace) -> int:
    worker = client.get("/v1/stats").get("engine") or {}
    checkpoints = (worker.get("checkpoints") or {}).get("list") or []
    if args.json:
        print_json({"schema": "ft.anchors/1", "anchors": checkpoints})
    else:
        print(anchors_text(checkpoints))
    return 0


def _newest(client: Any) -> str:
    used = [s for s in client.get("/v1/sessions")["sessions"] if s.get("last_request")]
    if not used:
        raise NotHere("No session has made a request yet.", "ft launch", code="FT-E0301 no-session")
    return str(max(used, key=lambda s: s["last_request"])["id"])


def _full_id(client: Any, wanted: str) -> str:
    """A session by id, unique beginning of an id, or name. Raises NotHere."""
    sessions = client.get("/v1/sessions")["sessions"]
    exact = [s["id"] for s in sessions if wanted in (s["id"], s.get("name"))]
    near = exact[-1:] or [
        s["id"] for s in sessions if len(wanted) >= 4 and wanted in (s["id"][: len(wanted)], s["id"][2:][: len(wanted)])
    ]
    if len(near) != 1:
        raise NotHere(f"The engine knows no session {wanted!r}.", "ft ls", code="FT-E0301 no-session")
    return str(near[0])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _print_flat(value: Any, prefix: str = "") -> None:
    """One fact a line: `memory.kv.used_bytes  1,024`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _print_flat(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list):
        print(f"{prefix:40} {json.dumps(value, ensure_ascii=False)}")
    else:
        print(f"{prefix:40} {_cell(value)}")
