"""The local engine that runs: found through its runtime file, believed only when it answers with the same nonce."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ftagent.atomic import read_json
from ftagent.errors import EngineNotReady
from ftagent.local_engine.client import EngineClient, EngineUrl, parse_engine_url
from ftagent.paths import Paths


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """An engine that answered `/health`. `pid` and `log` are None where it was named by URL."""

    client: EngineClient
    model: str | None
    pid: int | None
    version: str | None

    @property
    def url(self) -> EngineUrl:
        return self.client.url

    def ready_state(self) -> dict[str, Any]:
        """The body of `/ready` with `ready: bool` added."""
        status, body = self.client.call("GET", "/ready", timeout_s=5.0)
        state = body if isinstance(body, dict) else {}
        return {**state, "ready": status == 200}

    def is_ours_to_use(self) -> bool:
        """Has one that ends when it is idle stay for what comes. False: it is ending, or has ended."""
        try:
            status, _ = self.client.call("POST", "/v1/engine/use", {}, timeout_s=10.0)
        except EngineNotReady:
            return False
        return status != 503


def find_engine(paths: Paths) -> RunningEngine | None:
    """Ours when the runtime folder names it and `/health` returns the nonce written there; else None, and for one that is ending."""
    record = read_json(paths.engine_file)
    if record is None or not isinstance(record.get("port"), int) or not record.get("nonce") or record.get("ending"):
        return None
    client = EngineClient(parse_engine_url(f"http://127.0.0.1:{record['port']}"), record.get("admin_token"))
    try:
        status, health = client.call("GET", "/health", timeout_s=10.0)
    except EngineNotReady:
        return None
    if status != 200 or not isinstance(health, dict) or health.get("nonce") != record["nonce"]:
        return None
    return RunningEngine(client, record.get("model"), record.get("pid"), health.get("version"))


def is_crashed(state: Mapping[str, Any]) -> bool:
    """Of the body of `/ready`: the front answers, and its worker is beyond restarting."""
    return str(state.get("state", "")).startswith("crashed")


def has_crashed(engine: RunningEngine) -> bool:
    """Asks it; one that is too busy to answer has not."""
    try:
        return is_crashed(engine.ready_state())
    except EngineNotReady:
        return False
