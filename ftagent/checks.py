"""The checks of `ft doctor`, in order: each finds one fact and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ftagent.agents import loader
from ftagent.context import Context
from ftagent.doctor import agents, engine, machine, places
from ftagent.doctor.check import Check as Check
from ftagent.launch.find import agent_path, cached_version, find_executable
from ftagent.local_engine.running import find_engine


def run_checks(context: Context, agent: str | None, thorough: bool = False) -> Iterator[Check]:
    """`thorough` starts short processes of our own: the engine's plan of memory, and the dry run of `agent`."""
    settings, settings_check = places.settings(context)
    yield settings_check
    yield from places.folders(context)
    yield from places.secrets(context)
    yield from places.clock(context)
    yield from machine.network(context)
    yield from machine.managed()
    yield from machine.limits()
    yield from machine.gpu(context)
    if settings is not None:
        model, found = engine.models(context, settings)
        yield from found
        yield engine.engine(context, settings)
        yield from engine.leftovers(context)
        if thorough and model is not None and find_engine(context.paths) is None:
            yield from machine.memory(context, settings, model)
    else:
        for id_ in ("models", "engine"):
            yield Check(id_, "SKIP", "not looked at: the settings cannot be read")
    yield from agents.sessions(context)
    yield from agents.orphans(context)
    for name in [agent] if agent else loader.names():
        found_agent = agents.agent(name, context, required=agent is not None)
        yield found_agent
        if thorough and agent is not None and found_agent.status in ("OK", "WARN") and settings is not None:
            yield from agents.plan(name, context)


def run_probe(context: Context, agent: str) -> list[Check]:
    """Starts the agent. An assumption that does not hold is a warning: the launch may still work."""
    from ftagent.launch.probe import probe

    harness = loader.load(agent)
    adapter = harness.adapter
    if "card" not in harness.declaration:
        return [Check("probe", "SKIP", f"{adapter.title} has no card")]
    executable = find_executable(adapter.executables, agent_path(context.env, context.paths)).require(
        adapter.title, adapter.install_hint
    )
    version = cached_version(executable, context.paths)
    status = {True: "OK", False: "WARN", None: "SKIP"}
    return [
        Check(f"probe {found.name}", status[found.holds], found.text)
        for found in probe(harness, executable, version, context.env)
    ]
