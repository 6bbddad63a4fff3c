"""`engine serve --upstream URL`: the front, before servers somewhere else."""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from engine.errors import FtError
from engine.front.anticipation import Anticipation
from engine.front.context import Front
from engine.front.forecast import Forecast
from engine.front.heads import Heads
from engine.front.metrics import Metrics
from engine.front.recorder import Recorder
from engine.front.records import EventBus, Records
from engine.front.runtime import RuntimeDir, listen
from engine.front.server import model_directory, run, start_log
from engine.front.sessions import Sessions
from engine.settings import Settings, SettingsError, add_flags, resolve_values
from engine.upstream.limits import CANNOT
from engine.upstream.model import Model, load
from engine.upstream.upstream import Upstream

UNKNOWN_WINDOW = 1 << 20  # until an upstream was heard nothing is served anyway
TOKEN = "FT_UPSTREAM_TOKEN"  # noqa: S105 - the variable's name


_LOG = logging.getLogger("engine.upstream")


class Elsewhere(FtError):
    """What agents read would leave this machine, and nobody said that it may; exit code 4."""

    code = "FT-E0430 remote-upstream"


def serve(settings: Settings) -> int:
    """Serve until stopped. Raises Elsewhere, NotFound, WeightsError or Conflict before anything listens."""
    tokens = tokens_of(os.environ.pop(TOKEN, ""), len(settings.upstream))
    refuse_elsewhere(settings.upstream, settings.upstream_elsewhere == "yes")
    start_log(settings)
    model = load(model_directory(settings))
    if model.note:
        _LOG.warning(model.note)
    runtime = RuntimeDir.take(settings.runtime_dir.absolute())
    try:
        with listen(settings.host, settings.port) as sock:
            return run(front_of(settings, model, tokens, sock.getsockname()[1]), settings, runtime, sock)
    finally:
        runtime.close()


def front_of(settings: Settings, model: Model, tokens: Sequence[str], port: int) -> Front:
    """The front on `port` before the upstreams of `settings`, with a key of `tokens` for each; nothing is asked of them yet."""
    bus, metrics = EventBus(), Metrics()
    upstream = Upstream(settings.upstream, tokens, model.language, bus, metrics, settings.kv)
    return Front(
        model=model.name,
        language=model.language,
        sampling_defaults=model.sampling_defaults,
        planned_window=settings.kv or model.window or UNKNOWN_WINDOW,
        supervisor=upstream,
        sessions=Sessions(secrets.token_urlsafe(32), model.language.template),
        records=Records(),
        bus=bus,
        metrics=metrics,
        anticipation=Anticipation("off", upstream, metrics),
        heartbeat_s=settings.heartbeat_s,
        heads=Heads(None),
        recorder=Recorder(settings.record_dir),
        forecast=Forecast(None, model.name),
        max_requests=settings.max_requests,
        port=port,
    )


def tokens_of(text: str, count: int) -> list[str]:
    """One key for all upstreams, or one for each, in their order; "": none. Raises SettingsError for another number."""
    words = text.split() or [""]
    if len(words) not in (1, count):
        raise SettingsError(f"{TOKEN} holds {len(words)} keys for {count} upstreams.", "Give one key, or one for each.")
    return words * count if len(words) == 1 else words


def refuse_elsewhere(urls: Sequence[str], allowed: bool) -> None:
    """Raises Elsewhere for addresses on other machines, unless that is `allowed`."""
    far = [url for url in urls if not is_loopback(urlsplit(url).hostname or "")]
    if far and not allowed:
        raise Elsewhere(
            f"{', '.join(far)} is another machine: everything the agent reads would go there.",
            "If that is what you want: ft serve --upstream URL --force (engine serve: --upstream-elsewhere yes)",
        )


def is_loopback(host: str) -> bool:
    """Whether a host of a URL is this machine itself."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def plan(arguments: Sequence[str]) -> int:
    """What `engine plan` says with an upstream: nothing is allocated here, and what will not be there."""
    parser = argparse.ArgumentParser(prog="engine plan")
    add_flags(parser)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    values = resolve_values(vars(args), os.environ, ("model",))
    refuse_elsewhere(values["upstream"], values["upstream_elsewhere"] == "yes")
    model, urls = values["model"], values["upstream"]
    if args.json:
        told = {"schema": "ft.upstream-plan/1", "upstream": list(urls), "model": model}
        print(json.dumps({**told, "kv_tokens": values["kv"], "total_bytes": 0, "fits": True, "cannot": CANNOT}))
        return 0
    print(f"{model} is computed by {', '.join(urls)}; no memory is taken here for weights or caches.")
    print("The window is what the upstream tells, at most --kv. What is not there:")
    sys.stdout.writelines(f"  {name:<14}{why}\n" for name, why in CANNOT.items())
    return 0
