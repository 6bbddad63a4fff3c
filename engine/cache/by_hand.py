"""Saved states that a person keeps or gives up, beside what lines want."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.cache.checkpoints import CheckpointStore
from engine.cache.claims import base
from engine.cache.node import Checkpoint
from engine.errors import BadRequest, NotFound, Unsupported

PINNED_SHARE = 4  # of the cap at most one in so many
SCHEMA = "ft.anchors-act/1"


class AnchorsByHand:
    """`act` is called between two steps. No store: this model needs no states."""

    def __init__(self, store: CheckpointStore | None) -> None:
        self._store = store

    def act(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """`do`: pin, unpin or drop what `id`, `position` and `line` name, as the listing has them; gc: drop what no line wants
        and nobody has pinned. Says how many were dropped, and their bytes.

        Raises Unsupported, BadRequest, and NotFound for what is not there any more."""
        if self._store is None:
            raise Unsupported("This model keeps no saved states: its prefixes are pages of KV.")
        if asked["do"] == "gc":
            gone = [c for c in self._store.kept() if not c.claims and not c.pinned]
        else:
            found = self._find(self._store, asked)
            if asked["do"] == "pin":
                self._pin(self._store, found)
            else:
                found.pinned = False
            gone = [found] if asked["do"] == "drop" else []
        for checkpoint in gone:
            self._store.give_up(checkpoint)
        pinned = sum(c.pinned for c in self._store.kept())
        return {"schema": SCHEMA, "dropped": len(gone), "bytes": sum(c.bytes for c in gone), "pinned": pinned}

    def _pin(self, store: CheckpointStore, checkpoint: Checkpoint) -> None:
        most = max(1, store.cap // PINNED_SHARE)
        if not checkpoint.pinned and sum(c.pinned for c in store.kept()) >= most:
            raise BadRequest(
                f"{most} saved states are pinned already, and no more than a quarter of all {store.cap} can be.",
                "Let go of one first.",
            )
        checkpoint.pinned = True

    @staticmethod
    def _find(store: CheckpointStore, asked: Mapping[str, Any]) -> Checkpoint:
        """An id alone may be another state's by now."""
        for checkpoint in store.kept():
            same = (str(checkpoint.state), checkpoint.position) == (str(asked["id"]), asked["position"])
            if same and base(checkpoint.session) == asked["line"]:
                return checkpoint
        raise NotFound("This saved state is not there any more.", "Look again: ft ctl anchors")
