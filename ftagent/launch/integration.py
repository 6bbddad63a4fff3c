"""`--integrate`: keys of ours in the agent's own configuration, in place of a configuration of this launch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ftagent.errors import UsageError
from ftagent.files.integrate import integrate, show
from ftagent.files.writing import FilePlan
from ftagent.launch.plan import MASK, Plan, launch_context


def integrated(plan: Plan) -> tuple[Plan, FilePlan]:
    """The plan without the variables and files that stand for the user's own, and the change of the latter. Touches nothing.

    Raises UsageError for an agent whose launch needs no file, Refused for a file that cannot be changed.
    """
    request = plan.request
    adapter = request.harness.adapter
    wanted = getattr(adapter, "integration", None)
    if wanted is None:
        raise UsageError(f"{adapter.title} needs no file of yours.", "Leave out --integrate.")
    context = launch_context(request, plan.session, plan.engine, plan.window_tokens, plan.max_output_tokens, plan.read)
    found = wanted(context)
    change = integrate(adapter.name, found.path, found.values, found.format)
    ours = set(found.replaces)
    environment = {name: value for name, value in plan.environment.items() if name not in ours}
    environment.update({name: request.env[name] for name in ours if name in request.env})
    injection = replace(
        plan.injection,
        files=[],
        env=[variable for variable in plan.injection.env if variable.name not in ours],
        warnings=[w for w in plan.injection.warnings if not w.code.startswith(("FT-W0110", "FT-W0114"))],
    )
    left = [variable for variable in plan.set_variables if variable.name not in ours]
    warnings = [warning for warning in plan.warnings if not warning.code.startswith(("FT-W0110", "FT-W0114"))]
    return replace(plan, injection=injection, environment=environment, set_variables=left, warnings=warnings), change


def to_json(change: FilePlan, plan: Plan) -> dict[str, Any]:
    """An entry of `files` of the plan."""
    return {
        "path": str(change.target),
        "action": "create" if change.before is None else "edit",
        "why": "this engine as a provider of your own configuration; undone by ft restore",
        "diff": show(change).replace(plan.session.token, MASK),
        "sha_before": None,
    }
