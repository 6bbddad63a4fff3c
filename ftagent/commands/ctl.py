"""Ask the running engine: health, stats, cache, requests, explain, anchors, draft"""

from __future__ import annotations

import argparse
import json
from typing import Any

from ftagent.context import Context
from ftagent.errors import NotHere, UsageError
from ftagent.explain import anchors_text, explain_text
from ftagent.local_engine.client import EngineClient, EngineHttpError
from ftagent.local_engine.memory import PRESETS, map_text, move_text, request_body
from ftagent.local_engine.report import running_client
from ftagent.output import print_json, table
from ftagent.session.records import SESSION_ID, all_sessions, read_record

CACHE_S = 40.0  # the engine answers after the step it is in, within 30 s
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
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="health|stats|cache|requests|explain|anchors|draft"
    )
    for name, about in (
        ("health", "whether it is alive"),
        ("stats", "every counter and every effective setting"),
        ("cache", "who has the memory: expert slots and KV; change it while requests run"),
        ("requests", "the newest requests, one a line"),
        ("explain", "what each turn of a session had to compute, and why"),
        ("anchors", "the saved states that a next prompt can resume from"),
        ("draft", "a declaration drafted from what a session's client was seen to do"),
    ):
        action = actions.add_parser(name, help=about, description=about.capitalize() + ".")
        action.add_argument("--json", action="store_true", help="as one JSON document")
        if name == "requests":
            action.add_argument("--session", metavar="ID", help="of one session")
            action.add_argument("-n", "--lines", type=int, default=20, metavar="N", help="at most so many (default 20)")
        if name == "cache":
            _configure_cache(action)
        if name in ("explain", "draft"):
            action.add_argument("session", nargs="?", metavar="SESSION", help="default: the one used last")
        if name == "explain":
            action.add_argument("--texts", action="store_true", help="show the old and the new text around each break")


def _configure_cache(action: argparse.ArgumentParser) -> None:
    action.add_argument("--moe", metavar="N", help="expert slots over all layers, such as 512 or 2k")
    action.add_argument("--kv", metavar="N", help="KV tokens over all sessions, such as 64k")
    action.add_argument(
        "--preset",
        choices=PRESETS,
        help="minimum: KV 4k, one layer of experts; chat: KV 10k, the rest experts; agent: KV 50k or more, two layers of "
        "experts or more; auto: the engine decides",
    )
    action.add_argument("--auto", action="store_true", help="let the engine decide again: as --preset auto")
    action.add_argument("--what-if", action="store_true", help="say what it would give, and change nothing")
    action.epilog = "What is set by hand stays; the other gives way. Nothing that runs is stopped or refused."


def run(args: argparse.Namespace, context: Context) -> int:
    """Exit 3 when no engine is running."""
    asked = request_body(args.moe, args.kv, args.preset, args.auto) if args.action == "cache" else {}
    client = running_client(context)
    if args.action == "cache":
        return _cache(client, asked, args)
    if args.action == "requests":
        return _requests(client, args, context)
    if args.action == "explain":
        return _explain(client, args, context)
    if args.action == "draft":
        return _draft(client, args, context)
    if args.action == "anchors":
        return _anchors(client, args)
    document = client.get("/health" if args.action == "health" else "/v1/stats")
    if args.json:
        print_json({"schema": "ft.health/1", **document})
    else:
        _print_flat(document)
    return 0


def _cache(client: EngineClient, asked: dict[str, Any], args: argparse.Namespace) -> int:
    """Exit 2 for sizes that this engine's memory could never give."""
    if not asked:
        if args.what_if:
            raise UsageError("--what-if goes with what would be changed.", "ft ctl cache --what-if --kv 64k")
        told = client.get("/v1/engine/memory", timeout_s=CACHE_S)
        text = map_text(told) if not args.json else ""
    else:
        path = f"/v1/engine/memory/{'plan' if args.what_if else 'apply'}"
        try:
            told = client.post(path, asked, timeout_s=CACHE_S)
        except EngineHttpError as error:
            if error.status != 400:
                raise
            raise UsageError(error.message.removeprefix("The engine answered 400: "), "ft ctl cache") from None
        text = move_text(told, asked) if not args.json else ""
    if args.json:
        print_json(told)
    else:
        print(text)
    return 0


def _requests(client: EngineClient, args: argparse.Namespace, context: Context) -> int:
    if args.session:
        session = _full_id(client, args.session, context)
        answer = _turns(client, session, f"?limit={max(0, args.lines)}")
        records = answer["turns"][-args.lines :] if args.lines > 0 else []
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


def _explain(client: EngineClient, args: argparse.Namespace, context: Context) -> int:
    """Exit 3 when there is no such session, or none at all."""
    session = _full_id(client, args.session, context) if args.session else _newest(client)
    facts = _facts(client, session, context)
    answer = _turns(client, session, "?texts=1" if args.texts else "")
    if args.json:
        print_json({"schema": answer["schema"], "session": facts, "turns": answer["turns"]})
    else:
        print(explain_text(facts, answer["turns"]))
    return 0


def _draft(client: EngineClient, args: argparse.Namespace, context: Context) -> int:
    """TOML for `ft launch run --declaration FILE`. Exit 3 when there is no such session, or nothing is watched in it."""
    session = _full_id(client, args.session, context) if args.session else _newest(client)
    answer = _known(client, f"/v1/sessions/{session}/draft")
    if answer is None:
        raise NotHere(
            f"Nothing is drafted of session {session}: its declaration was verified, or it is forgotten.",
            "ft launch run -- COMMAND",
            code="FT-E0301 no-session",
        )
    if args.json:
        print_json(answer)
    else:
        print(answer["toml"], end="")
    return 0


def _anchors(client: EngineClient, args: argparse.Namespace) -> int:
    worker = client.get("/v1/stats").get("engine") or {}
    checkpoints = (worker.get("checkpoints") or {}).get("list") or []
    if args.json:
        print_json({"schema": "ft.anchors/1", "anchors": checkpoints})
    else:
        print(anchors_text(checkpoints))
    return 0


def _known(client: EngineClient, path: str) -> Any:
    """The answer, or None where the engine has ended or never had the session."""
    try:
        return client.get(path)
    except EngineHttpError as error:
        if error.status != 404:
            raise
        return None


def _facts(client: EngineClient, session: str, context: Context) -> dict[str, Any]:
    """From the engine; of an ended session from its record here."""
    facts = _known(client, f"/v1/sessions/{session}")
    if facts is None:
        record = read_record(context.paths.sessions / session) or {}
        facts = record.get("engine") or {"id": session, "name": record.get("name")}
    return dict(facts)


def _turns(client: EngineClient, session: str, query: str) -> dict[str, Any]:
    """The records of one session, which outlive it; then without the texts."""
    answer = _known(client, f"/v1/sessions/{session}/turns{query}")
    if answer is None:
        of_all = client.get("/v1/requests")
        answer = {"schema": of_all["schema"], "turns": [r for r in of_all["requests"] if r.get("session") == session]}
    return dict(answer)


def _newest(client: EngineClient) -> str:
    records = client.get("/v1/requests")["requests"]
    named = [record["session"] for record in records if SESSION_ID.fullmatch(str(record.get("session")))]
    if not named:
        raise NotHere("No session has made a request yet.", "ft launch", code="FT-E0301 no-session")
    return str(named[-1])


def _full_id(client: EngineClient, wanted: str, context: Context) -> str:
    """A session by id, unique beginning of an id, or name: one that is alive, else one of our records. Raises NotHere."""
    ended = [(session.id, session.field("name")) for session in reversed(all_sessions(context.paths))]
    alive = [(session["id"], session.get("name")) for session in client.get("/v1/sessions")["sessions"]]
    for known in (alive, ended):
        exact = [id_ for id_, name in known if wanted in (id_, name)]
        near = exact[-1:] or [
            id_ for id_, _ in known if len(wanted) >= 4 and (id_.startswith(wanted) or id_[2:].startswith(wanted))
        ]
        if len(near) == 1 and SESSION_ID.fullmatch(near[0]):
            return str(near[0])
    raise NotHere(f"The engine knows no session {wanted!r}.", "ft ls", code="FT-E0301 no-session")


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
