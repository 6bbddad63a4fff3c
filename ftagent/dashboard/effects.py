"""What a screen answers to a key, carried out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ftagent.dashboard import leaving
from ftagent.dashboard.app import Options
from ftagent.dashboard.model import Act, Frame, Part, Source
from ftagent.dashboard.screens.new_session import NewSession
from ftagent.dashboard.screens.overlays import Confirm, Overlay, Prompt
from ftagent.dashboard.screens.view import (
    Ask,
    Effect,
    Explain,
    Fix,
    Go,
    Predict,
    Preview,
    Run,
    Save,
    Say,
    Type,
    View,
)
from ftagent.dashboard.theme import Palette

SETTLED_S = 0.3  # after the last key, before a plan is asked for


class Host(Protocol):
    """The terminal, as far as the desk needs it."""

    def draw(self) -> None:
        """Show the desk's lines."""

    def leave(self, message: str | None) -> None:
        """End; `message` is printed behind."""

    def ring(self, text: str) -> None:
        """A bell, with words for whoever shows them."""

    def copy(self, text: str) -> None:
        """Into the clipboard."""

    def dress(self, palette: Palette) -> None:
        """Paint with these colours."""

    def retime(self, fps: float) -> None:
        """Draw so often."""

    def palette_of_commands(self) -> None:
        """Open it."""

    async def lend(self, work: leaving.Work) -> None:
        """The terminal belongs to `work` until it ends."""


class Effects:
    """Base of the desk: the half that reaches outside."""

    source: Source
    options: Options
    host: Host
    frame: Frame
    overlay: Overlay | None
    tasks: set[asyncio.Task[None]]
    _previewing: asyncio.Task[None] | None = None

    @property
    def view(self) -> View:
        """The screen that is shown."""
        raise NotImplementedError

    def go(self, part: Part) -> None:
        """To another screen."""
        raise NotImplementedError

    def say(self, text: str) -> None:
        """A line for the person."""
        raise NotImplementedError

    def readonly(self) -> bool:
        return self.options.readonly or self.frame.readonly

    def perform(self, effect: Effect) -> None:
        """Carry out; what takes time goes on behind the display."""
        match effect:
            case Ask(question, act, asked):
                self.overlay = Confirm(question, lambda: self.act(act, asked))
            case Run() if self.readonly():
                self.say("This dashboard only reads.")
            case Run(arguments, ""):
                self.background(self.host.lend(leaving.child([*self.options.ft, *arguments])))
            case Run(arguments, question):
                self.overlay = Confirm(question, lambda: self.perform(Run(arguments)))
            case Fix():
                self._fix(effect)
            case Type(question, arguments):
                self.overlay = Prompt(question, lambda word: self.perform(Run((*arguments, word))))
            case Preview():
                self._ask_preview(effect)
            case Explain(request):
                self.background(self._explain(request))
            case Predict(label, asked):
                self.background(self._predict(self.view, label, asked))
            case Go(part):
                self.go(part)
            case Say(text):
                self.say(text)
            case Save(name, text):
                self._save(name, text)

    def _fix(self, fix: Fix) -> None:
        """Run as it is written, without a shell, as `ft doctor --fix` does; what only the person can do is copied."""
        from ftagent.doctor.check import Check
        from ftagent.doctor.fixing import argv_of

        argv = argv_of(Check("", "FAIL", "", fix.command, by_hand=fix.by_hand), self.options.ft)
        if self.readonly() or argv is None:
            self.host.copy(fix.command)
            self.say(f"copied, for your shell: {fix.command}")
        else:
            words = argv
            self.overlay = Confirm(f"{fix.why} Run {fix.command} ?".strip(), lambda: self._run_fix(words))

    def _run_fix(self, argv: Sequence[str]) -> None:
        self.background(self._fixed(argv))

    async def _fixed(self, argv: Sequence[str]) -> None:
        await self.host.lend(leaving.child(argv))
        self.source.again("doctor")

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Kept until it has ended."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def act(self, act: Act, arguments: Mapping[str, Any]) -> None:
        """Of the source, when it offers that now."""
        if self.readonly():
            self.say("This dashboard only reads.")
        elif act not in self.frame.offers:
            self.say(f"Not possible here: {act}.")
        else:
            self.background(self._acted(act, arguments))

    async def _acted(self, act: Act, arguments: Mapping[str, Any]) -> None:
        view, outcome = self.view, await self.source.act(act, **arguments)
        if act == "apply" and outcome.done:
            view.back()  # the plan is what is now
        self.say(outcome.text)

    async def _explain(self, request: str) -> None:
        answer = await self.source.explain(request)
        self.go("turns")
        self.view.told(answer)
        self.host.draw()

    async def _predict(self, view: View, label: str, asked: Mapping[str, Any]) -> None:
        view.told(await self.source.what_if(label, **asked))
        self.host.draw()

    def _ask_preview(self, asked: Preview) -> None:
        """Of many asked for one after the other only the last one is made."""
        if self._previewing is not None:
            self._previewing.cancel()
        self._previewing = self.background(self._preview(asked))

    async def _preview(self, asked: Preview) -> None:
        await asyncio.sleep(SETTLED_S)
        form = self.overlay
        text = await leaving.output([*self.options.ft, *asked.arguments], asked.columns)
        if isinstance(form, NewSession) and form.preview().arguments == asked.arguments:
            form.plan, form.plan_of = text, asked.arguments
            self.host.draw()

    def _save(self, name: str, text: str) -> None:
        path = Path.cwd() / name
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            self.say(f"not written: {error}")
        else:
            self.say(f"written: {path}")
