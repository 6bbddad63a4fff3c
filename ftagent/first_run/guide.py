"""The guide of an empty machine: what comes next follows from what is here, so it goes on wherever it was left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftagent.context import Context
from ftagent.errors import FtError
from ftagent.first_run import kept as keeping
from ftagent.first_run.ask import LEAVE, Answer, Page, ask
from ftagent.first_run.calling import INTERRUPTED, call, document
from ftagent.output import note
from ftagent.paths import short

if TYPE_CHECKING:
    from ftagent.first_run.offers import ModelOffer

STEPS = ("measure", "model", "agent", "dry run", "launch")
READ_BYTES_PER_S = 400e6  # at which starting is priced: a plain disk
TASK = "List the files of this folder and say in one sentence what they are."  # of the agent that takes one question
DASHBOARD = {"d": "dashboard, and no guide again"}
WELCOME = (
    "Neither a model, nor an engine, nor a setting is here yet. Five steps lead to a",
    "running agent; each says what it does and what it costs, and waits for Enter:",
    "",
    "  1 measure   how fast this machine moves and computes experts: some seconds",
    "  2 model     the best one that fits and can be had from here: said there",
    "  3 agent     one that is installed, or one that is installed then",
    "  4 dry run   what the launch would do; changes nothing",
    "  5 launch    starts the engine, and the agent on it",
    "",
)


class Guide:
    """One walk. `memory` is handed to `ft models fit` as it is."""

    def __init__(self, context: Context, memory: str | None) -> None:
        self.context = context
        self.memory = memory
        self.kept = keeping.load(context.paths)
        self.cursor = context.env.get("TERM", "") not in ("", "dumb")
        self.fits: dict[str, Any] | None = None
        self.trouble = ""

    def walk(self) -> int:
        """The exit code: the agent's own once it ran, 0 when left."""
        try:
            while True:
                code = self._step()
                if code is not None:
                    return code
        except KeyboardInterrupt:
            self._left()
            return INTERRUPTED

    def _step(self) -> int | None:
        if not self.kept.measured:
            return self._measure()
        if not self._model_is_here():
            return self._model()
        if not self.kept.agent:
            return self._agent()
        return self._launch()

    def _ask(self, number: int, told: list[str], **page: Any) -> Answer:
        title = f"ft: step {number} of {len(STEPS)}, {STEPS[number - 1]}"
        trouble, self.trouble = ([self.trouble, ""] if self.trouble else []), ""
        print()
        answer = ask(Page([title, "", *trouble, *told], **page), self.context.out, self.cursor)
        if answer.key == LEAVE:
            self._left()
        return answer

    def _left(self) -> None:
        note("ft: left; nothing is lost, the next ft goes on here. All commands: ft help all")

    def _save(self) -> None:
        keeping.save(self.context.paths, self.kept)

    def _closed(self) -> int:
        self.kept.closed = True
        self._save()
        return call(self.context, "top")

    def _measure(self) -> int | None:
        where = short(self.context.paths.profiles, self.context.paths.home)
        costs = [
            "Runs:  ft bench bw --quick, then ft models fit --costs",
            "Costs: about 10 s of the processor; downloads nothing; keeps a file of 1 kB in",
            f"       {where}",
        ]
        answer = self._ask(1, list(WELCOME), go="measure", costs=lambda _: costs, keys={"s": "skip", **DASHBOARD})
        if answer.key == LEAVE:
            return 0
        if answer.key == "d":
            return self._closed()
        code = 0 if answer.key == "s" else call(self.context, "bench", "bw", "--quick")
        if code == 0:
            self.kept.measured = True
        else:
            self.trouble = f"It ended with code {code}. Enter tries again, s goes on without it."
        self._save()
        return None

    def _model_is_here(self) -> bool:
        from ftagent.local_engine.models import find_model

        try:
            models_dir = self.context.models_dir(self.context.settings())
            return bool(self.kept.model) and find_model(self.kept.model, models_dir, self.context.cwd).pulled
        except FtError:
            return False

    def _model(self) -> int | None:
        from ftagent.first_run import offers

        if self.kept.pull:
            return self._go_on()
        models_dir = self.context.models_dir(self.context.settings())
        if self.fits is None:
            as_if = ("--memory", self.memory) if self.memory else ()
            self.fits = document(self.context, "models", "fit", "--costs", *as_if)
        found = offers.models(self.fits, offers.models_here(models_dir, self.context.cwd))
        told = list(found.reasons[:3])
        if not self.fits:
            told.append("ft models fit did not answer; what is here can be used all the same.")
        told += [""] if told else []
        if not found.offers:
            return self._no_model(told)
        answer = self._ask(
            2,
            told,
            choices=[offer.label for offer in found.offers],
            go="get it" if found.offers[0].pull else "use it",
            costs=lambda chosen: self._costs(found.offers[chosen]),
            keys=DASHBOARD,
        )
        if answer.key == LEAVE:
            return 0
        if answer.key == "d":
            return self._closed()
        self._take(found.offers[answer.chosen])
        return None

    def _go_on(self) -> int | None:
        """With a pull that was interrupted, or failed."""
        from ftagent.first_run.offers import ModelOffer

        kept = self.kept
        offer = ModelOffer(kept.model, kept.model, tuple(kept.pull.split()), kept.download_bytes, kept.disk_bytes)
        told = [f"Getting {offer.name} was not finished; what has arrived is kept.", ""]
        keys = {"o": "other models", **DASHBOARD}
        answer = self._ask(2, told, go="go on", costs=lambda _: self._costs(offer), keys=keys)
        if answer.key == LEAVE:
            return 0
        if answer.key == "d":
            return self._closed()
        if answer.key == "o":
            self.kept.model = self.kept.pull = ""
            self._save()
        else:
            self._take(offer)
        return None

    def _costs(self, offer: ModelOffer) -> list[str]:
        pull = f"ft models pull {' '.join(offer.pull)}" if offer.pull else ""
        chosen = "" if self._is_set(offer.name) else f"ft config set model {offer.name}"
        runs = ", then ".join(filter(None, (pull, chosen))) or "nothing: it is the model of your settings"
        return [*offer.costs(), f"Runs:  {runs}"]

    def _take(self, offer: ModelOffer) -> None:
        """Pulls it if need be; the choice is kept before, so that an interrupted pull is gone on with."""
        self.kept.model, self.kept.pull = offer.name, " ".join(offer.pull)
        self.kept.download_bytes, self.kept.disk_bytes = offer.download_bytes or 0, offer.disk_bytes
        self._save()
        code = call(self.context, "models", "pull", *offer.pull) if offer.pull else 0
        if code == 0:
            self.kept.pull = ""
            code = 0 if self._is_set(offer.name) else call(self.context, "config", "set", "model", offer.name)
            self.kept.model = offer.name if code == 0 else ""
        if code != 0:
            self.trouble = f"It ended with code {code}."
        self._save()

    def _is_set(self, name: str) -> bool:
        return self.context.settings().text("model") == name

    def _no_model(self, told: list[str]) -> int | None:
        told.append("Free some disk, or name a folder on another one: export FT_MODELS_DIR=FOLDER")
        answer = self._ask(2, told, go="look again", keys=DASHBOARD)
        self.fits = None
        if answer.key == LEAVE:
            return 0
        return self._closed() if answer.key == "d" else None

    def _agent(self) -> int | None:
        from ftagent.first_run import offers

        found = offers.agents(self.context)
        told = (
            []
            if any(o.install is None and "part of ft" not in o.label for o in found)
            else ["No agent is installed.", ""]
        )
        answer = self._ask(
            3,
            told,
            choices=[offer.label for offer in found],
            go="take it" if found[0].install is None else "install it",
            costs=lambda chosen: found[chosen].costs(self.context),
            keys={"m": "another model", **DASHBOARD},
        )
        if answer.key == LEAVE:
            return 0
        if answer.key == "d":
            return self._closed()
        if answer.key == "m":
            self.kept.model = ""
        else:
            offer = found[answer.chosen]
            code = call(self.context, "agents", "install", offer.name, "--yes") if offer.install is not None else 0
            if code == 0:
                self.kept.agent = offer.name
            else:
                self.trouble = f"It ended with code {code}. Enter tries again; another one can be chosen."
        self._save()
        return None

    def _launch(self) -> int | None:
        """The dry run costs and changes nothing, so it needs no Enter of its own."""
        words = ["launch", self.kept.agent]
        task = ["--", TASK] if self.kept.agent == "mini" else []
        print(f"\n{self.context.out(f'ft: step 4 of {len(STEPS)}, dry run', 'bold')}")
        dry = call(self.context, *words, "--dry-run", *task)
        if dry != 0:
            self.trouble = f"The dry run ended with code {dry}; ft doctor says more. Enter looks again."
        go = "launch" if dry == 0 else "look again"
        keys = {"a": "another agent", "m": "another model", **DASHBOARD}
        answer = self._ask(5, [], go=go, costs=lambda _: self._launch_costs(), keys=keys)
        if answer.key == LEAVE:
            return 0
        if answer.key == "d":
            return self._closed()
        if answer.key != "enter":
            self.kept.agent = ""
            self.kept.model = self.kept.model if answer.key == "a" else ""
        elif dry == 0:
            return self._launched(call(self.context, *words, *task))
        self._save()
        return None

    def _launched(self, code: int) -> int:
        """Once an agent ran, `ft` is the dashboard."""
        self.kept.closed = any(self.context.paths.sessions.glob("s-*"))
        self._save()
        if not self.kept.closed:
            note("ft: no agent has run yet. What stands in the way: ft doctor. The next ft goes on here.")
        return code

    def _launch_costs(self) -> list[str]:
        from ftagent.first_run.offers import size_text, time_text

        folder = self.context.models_dir(self.context.settings()) / self.kept.model
        n_bytes = sum(file.stat().st_size for file in folder.glob("*") if file.is_file())
        read = f"{size_text(n_bytes)} are read ({time_text(n_bytes / READ_BYTES_PER_S)} at {READ_BYTES_PER_S / 1e6:.0f} MB/s)"
        return [
            f"Runs:  ft launch {self.kept.agent}, in {short(self.context.cwd, self.context.paths.home)}",
            f"Costs: the engine starts and {read}; then the agent runs here.",
            "       The engine ends by itself ten minutes after its last use.",
        ]
