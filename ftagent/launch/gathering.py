"""What the pure plan needs from the disk and of the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ftagent.context import Context
from ftagent.errors import Refused
from ftagent.launch import leftovers
from ftagent.launch import plan as planning
from ftagent.local_engine.provision import EngineChoice, Prospect, start_command


def gather(
    request: planning.LaunchRequest,
    session: planning.SessionState,
    prospect: Prospect,
    choice: EngineChoice,
    context: Context,
) -> planning.Plan:
    """The plan. Raises Refused for a file that cannot be read, without --force."""
    from ftagent.local_engine.models import DEFAULT_WINDOW_TOKENS

    engine = planning.EngineState(
        url=prospect.url.text,
        running=prospect.running is not None,
        command=start_command(prospect, choice, context),
        model=prospect.model.name,
        window_tokens=prospect.window_tokens or DEFAULT_WINDOW_TOKENS,
        model_window_tokens=prospect.model.window_tokens,
        toy=prospect.model.toy,
        needs_pull=prospect.running is None and not prospect.model.pulled,
        thinking_switch=prospect.model.thinking_switch,
    )
    left = leftovers.find(request.harness, context.paths)
    texts: dict[str, str] = {}
    for path in planning.paths_to_read(request, session, engine):
        try:
            texts[str(path)] = leftovers.text_after(path, path.read_text(encoding="utf-8"), left)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        except (OSError, UnicodeDecodeError) as error:
            if not request.force:
                raise Refused(f"{path} cannot be read: {error}.", "Repair the file, or go on with --force.") from None
    plan = planning.build(request, session, engine, texts)
    return replace(plan, leftovers=left, forecast=_forecast(plan, prospect, context))


def _forecast(plan: planning.Plan, prospect: Prospect, context: Context) -> dict[str, Any]:
    from ftagent.forecast import before_launch

    first = plan.request.harness.declaration.get("launch", {}).get("first_prompt")
    running = None if prospect.running is None else prospect.running.client
    return before_launch(context.paths, plan.engine.model, first, plan.injection.watchdog_s, running).json()
