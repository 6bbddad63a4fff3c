"""Conversations that the agents' own records pin to a paid provider's model, continued on our engine."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.agents.entries import ANSWER, ENTRIES, Command
from tests.agents.homes import everything

pytestmark = pytest.mark.agents

SECOND = "And once more."
SCRIPT = {"turns": [{"blocks": [{"text": ANSWER}]}, {"blocks": [{"text": SECOND}]}], "side": "A title"}
CONTINUE = {
    "claude": ("-p", "Again.", "--continue", "--allowedTools", "Bash"),
    "codex": ("exec", "-s", "danger-full-access", "resume", "--last", "Again."),
    "opencode": ("run", "--continue", "Again."),
    "pi": ("--continue", "-p", "Again."),
    "qwen": ("--yolo", "--continue", "Again."),
}
RECORDS = {  # below the home, as text
    "claude": ".claude/projects/*/*.jsonl",
    "codex": ".codex/sessions/*/*/*/*.jsonl",
    "pi": ".pi/agent/sessions/*/*.jsonl",
    "qwen": ".qwen/projects/*/chats/*.jsonl",
}
STORES = {"codex": ".codex/state_*.sqlite", "opencode": ".local/share/opencode/opencode.db"}
SAID = ("message", "part")  # tables of OpenCode whose rows are what was said
UUID = 36
Rows = dict[tuple[str, str], dict[str, Any]]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("agent", [n if n == "pi" else pytest.param(n, marks=pytest.mark.slow) for n in CONTINUE])
def test_case_3_a_conversation_that_pins_a_paid_model(rig: Any, agent: str) -> None:
    """It is continued here, by the agent's own arguments, and says afterwards what it said before; another one stays untouched."""
    other, _ = two_conversations(rig, agent)
    pin(rig.home, agent, "ft" if agent == "codex" else "anthropic")  # of a provider as well: the test below
    texts, rows = records(rig.home, agent), said(rig.home, agent)
    run = rig.launch(agent, *CONTINUE[agent], model="tiny-hybrid", timeout_s=120, script=SCRIPT)
    assert run.code == 0 and SECOND in run.stdout, run
    assert {request["end"] for request in run.requests if not request["side"]} == {"stop"}, run
    rig.assert_nothing_left(run)
    for file, text in texts.items():
        now = file.read_text()
        assert now == text if other in file.name else now.startswith(text), "what was said was rewritten"
    later = said(rig.home, agent)
    changed = {key for key, row in rows.items() if later.get(key) != row}
    assert not [key for key in changed if key[0] in SAID or key[1] == other], "what was said was rewritten"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("provider", ["openai", "paid", "gone"])
def test_case_3_codex_goes_on_with_no_conversation_of_another_provider(rig: Any, provider: str) -> None:
    """One that comes with it, one of the user's configuration, one that is not there: it is asked for by its id, Codex says that
    it stays with its provider, and neither that one nor anybody else is asked."""
    _, newest = two_conversations(rig, "codex")
    pin(rig.home, "codex", provider)
    texts, rows = records(rig.home, "codex"), said(rig.home, "codex")
    again = ("exec", "-s", "danger-full-access", "resume", newest, "Again.")
    run = rig.launch("codex", *again, model="tiny-hybrid", timeout_s=120, script=SCRIPT)
    assert run.code == 1 and run.requests == [] and "provider" in run.stderr and provider in run.stderr, run
    rig.assert_nothing_left(run)
    assert (records(rig.home, "codex"), said(rig.home, "codex")) == (texts, rows)


def two_conversations(rig: Any, agent: str) -> tuple[str, str]:
    """Their ids, the older one first."""
    rig.install(agent)
    rig.compute_nothing()
    rig.make_hostile(everything(agent))
    args = next(way.args for way in ENTRIES[agent].values() if isinstance(way, Command))
    found: list[str] = []
    for _ in range(2):
        run = rig.launch(agent, *args, model="tiny-hybrid", timeout_s=120, script=SCRIPT)
        assert run.code == 0, run
        found += identities(rig.home, agent) - set(found)
    older, newer = found
    return older, newer


def identities(home: Path, agent: str) -> set[str]:
    """The agent's own ids of its conversations."""
    if agent in RECORDS:
        return {file.stem[-UUID:] for file in home.glob(RECORDS[agent])}
    return {id_ for table, id_ in said(home, agent) if table == "session"}


def records(home: Path, agent: str) -> dict[Path, str]:
    return {file: file.read_text() for file in home.glob(RECORDS[agent])} if agent in RECORDS else {}


def pin(home: Path, agent: str, provider: str) -> None:
    """Makes each conversation in the home one with a paid provider's model, wherever the agent notes which it is."""
    pinned = 0
    for file, text in records(home, agent).items():
        theirs = text.replace('"ft"', f'"{provider}"').replace("tiny-hybrid", "claude-opus-4-7")
        pinned += theirs != text
        times = file.stat()
        file.write_text(theirs)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # by which an agent knows the newest
    for database in stores(home, agent):
        with sqlite3.connect(database) as store:
            for table, column in columns(store):
                swap = f"replace(replace({column}, 'tiny-hybrid', 'claude-opus-4-7'), '\"ft\"', '\"{provider}\"')"
                where = f"{column} like '%tiny-hybrid%' or {column} like '%\"ft\"%'"
                pinned += store.execute(f"update '{table}' set {column} = {swap} where {where}").rowcount
                set_ = f"update '{table}' set {column} = ? where {column} = 'ft'"
                pinned += store.execute(set_, (provider,)).rowcount
    assert pinned >= 2, "no record names the model"


def stores(home: Path, agent: str) -> list[Path]:
    return sorted(home.glob(STORES[agent])) if agent in STORES else []


def columns(store: sqlite3.Connection) -> list[tuple[str, str]]:
    """Those that hold text, of each table."""
    tables = [name for (name,) in store.execute("select name from sqlite_master where type = 'table'")]
    found = [(table, row[1], row[2]) for table in tables for row in store.execute(f"pragma table_info('{table}')")]
    return [(table, column) for table, column, kind in found if kind.lower() in ("text", "")]


def said(home: Path, agent: str) -> Rows:
    """Rows of conversations and of what was said in them, by table and id."""
    rows: Rows = {}
    for database in stores(home, agent):
        with sqlite3.connect(database) as store:
            store.row_factory = sqlite3.Row
            for table in ("threads", "session", *SAID):
                if store.execute("select 1 from sqlite_master where name = ?", (table,)).fetchone():
                    rows |= {(table, row["id"]): dict(row) for row in store.execute(f"select * from {table}")}
    return rows
