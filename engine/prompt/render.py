"""Conversation to token ids and spans, through the model's own chat template.

Every block is tokenised by itself, so spans are unions of whole tokens and nothing later can change an earlier token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from engine.prompt.conversation import Conversation, Prompt, Role, Span
from engine.prompt.dialects.contract import Dialect
from engine.prompt.echo import Echo, EchoMemory, Place
from engine.prompt.marking import Marks, Spell, align, leaf_of, messages_of, neutral, plain, tools_of
from engine.prompt.normalise import Turn, head_tools, turns_of
from engine.prompt.runs import Run, RunBuilder, cut_prefix
from engine.prompt.tails import Tails
from engine.prompt.template import ChatTemplate
from engine.prompt.tokenizer import Tokenizer


class Renderer:
    """`ends` are the texts of the end-of-turn tokens; `thinking` is the model's default; `switch` the template variable, and
    its value, that keeps the thinking of earlier turns."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        dialect: Dialect,
        echo: EchoMemory,
        ends: Sequence[str],
        thinking: bool,
        preserve_thinking: bool = True,
        switch: tuple[str, bool | str] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._dialect = dialect
        self._echo = echo
        self._ends = frozenset(ends)
        self._thinking = thinking
        self._preserve_thinking = preserve_thinking
        self._switch = switch
        self._runs = RunBuilder(dialect.markers, [*ends, *dialect.layout.ends], tokenizer.split)
        self._tails = Tails(self._sample, dialect.markers, self._runs.opening, template.traits)

    def render(self, conversation: Conversation) -> Prompt:
        """Raises BadRequest when the template refuses the conversation."""
        turns = turns_of(conversation, self._template.traits, self._dialect)

        def text_of(spell: Spell, generation: bool) -> str:
            return self._write(conversation, turns, spell, generation)

        marks = Marks()
        marked, output, full = text_of(marks.mark, False), text_of(plain, False), text_of(plain, True)
        segments = align(output, marked, marks)
        if segments is not None:
            runs = self._runs.build(segments)
        else:
            spell = neutral(self._tokenizer.has_control, self._tokenizer.split)
            output, full = text_of(spell, False), text_of(spell, True)
            runs = self._coarse(output, marked, marks)
        generation = full[len(output) :] if full.startswith(output) else ""
        prompt = self._assemble(runs, turns, self._resolve(conversation.thinking))
        prompt.tokens.extend(self._tokenizer.encode_pieces(self._tokenizer.split(generation)))
        if len(prompt.tokens) > prompt.end:
            prompt.spans.append(Span(prompt.end, len(prompt.tokens), len(conversation.messages), -1, "generation"))
        return prompt

    def thinking_open(self, conversation: Conversation) -> bool:
        """True when the prompt of `conversation` already opens the thinking of the answer."""
        return self._tails.thinking_open(self._resolve(conversation.thinking), conversation.messages)

    def _write(self, conversation: Conversation, turns: list[Turn], spell: Spell, generation: bool) -> str:
        """The template's text for these turns of the conversation, each leaf in them spelled by `spell`."""
        traits, guarded = self._template.traits, self._tokenizer.has_control
        messages = messages_of(turns, spell, guarded, self._dialect.call_id, traits.arguments_as_text)
        tools = tools_of(head_tools(conversation.tools) if traits.tools else [], spell, guarded)
        options = self._options(conversation.thinking, conversation.preserve_thinking)
        return self._template.render(messages, tools, generation, options)

    def _sample(self, conversation: Conversation) -> str:
        """The text of a whole prompt with sentinels in the place of the leaves."""
        turns = turns_of(conversation, self._template.traits, self._dialect)
        return self._write(conversation, turns, Marks().mark, True)

    def _resolve(self, thinking: bool | None) -> bool:
        return self._thinking if thinking is None else thinking

    def _options(self, thinking: bool | None, preserve: bool | None = None) -> dict[str, Any]:
        own = self._resolve(thinking)
        options: dict[str, Any] = {"enable_thinking": own, "thinking": own}  # templates have either name
        if self._switch is not None:
            name, value = self._switch
            if self._preserve_thinking if preserve is None else preserve:
                options[name] = value
            elif isinstance(value, bool):
                options[name] = not value
        return options

    def _coarse(self, output: str, marked: str, marks: Marks) -> list[Run]:
        """One run for each turn, when the template rewrites client text: leaves are not found in its output again."""
        texts, marked_texts = self._runs.chunks(output), self._runs.chunks(marked)
        runs = []
        for index, text in enumerate(texts):
            found = leaf_of(marked_texts[index], marks) if len(texts) == len(marked_texts) else None
            leaf, turn = found or (None, -1)
            run = Run(leaf.message if leaf else -1, -1, leaf.kind if leaf else "frame", turn)
            run.pieces += self._tokenizer.split(text)
            runs.append(run)
        return runs

    def _assemble(self, runs: Sequence[Run], turns: Sequence[Turn], thinking: bool) -> Prompt:
        prompt, place = Prompt([], [], 0), Place()
        for number, group in groupby(runs, key=lambda run: run.turn):
            if number >= 0 and turns[number].role == "assistant":
                before: Role = turns[number - 1].role if number else "user"
                prefixes = [self._tails.opening(own, before) for own in (thinking, not thinking)]
                self._assistant(prompt, list(group), turns[number], prefixes, place)
            else:
                self._append(prompt, list(group))
        return Prompt(prompt.tokens, prompt.spans, len(prompt.tokens))

    def _append(self, prompt: Prompt, runs: Sequence[Run]) -> None:
        for run in runs:
            self._span(prompt, run, self._tokenizer.encode_pieces(run.pieces))

    def _span(self, prompt: Prompt, run: Run, ids: Sequence[int]) -> None:
        start = len(prompt.tokens)
        prompt.tokens.extend(ids)
        if ids:
            prompt.spans.append(Span(start, len(prompt.tokens), run.message, run.block, run.kind))

    def _assistant(self, prompt: Prompt, runs: list[Run], turn: Turn, prefixes: Sequence[str], place: Place) -> None:
        """An answer of the past starts with the generation prefix's own tokens, then goes on as it was generated."""
        found = [(prefix, rest) for prefix in prefixes if (rest := cut_prefix(runs, prefix)) is not None]
        starts = [(prefix, rest) for prefix, rest in found if prefix or rest[0].block >= 0]
        place.update(prompt.tokens)
        for prefix, rest in starts:
            frame = Run(runs[0].message, -1, "frame", runs[0].turn, self._tokenizer.split(prefix))
            last = max((i for i, run in enumerate(rest) if run.block >= 0), default=-1)
            here = place.after(self._tokenizer.encode_pieces(frame.pieces))
            echo = self._echo.recall(turn.blocks, here) if last >= 0 else None
            if echo is not None and self._matches(echo, prefix, runs, turn):
                self._append(prompt, [frame])
                self._append_echo(prompt, rest[: last + 1], echo)
                self._append(prompt, self._closing([*self._own_end(rest[last]), *rest[last + 1 :]]))
                return
        if starts:
            frame = Run(runs[0].message, -1, "frame", runs[0].turn, self._tokenizer.split(starts[0][0]))
            runs = [frame, *starts[0][1]]
        self._append(prompt, runs)

    def _own_end(self, run: Run) -> list[Run]:
        """The end-of-turn token that a dialect's closing marker is, as a frame."""
        places = [i for i, (text, control) in enumerate(run.pieces) if control and text in self._ends]
        return [replace(run, block=-1, kind="frame", pieces=run.pieces[places[-1] :])] if places else []

    def _closing(self, runs: Sequence[Run]) -> list[Run]:
        """What the template puts behind an answer, from the end-of-turn token on: what is before it was generated."""
        for index, run in enumerate(runs):
            for number, (text, control) in enumerate(run.pieces):
                if control and text in self._ends:
                    return [replace(run, pieces=run.pieces[number:]), *runs[index + 1 :]]
        return list(runs)

    def _matches(self, echo: Echo, prefix: str, runs: Sequence[Run], turn: Turn) -> bool:
        """False when the template shows another part of the turn than the model generated, e.g. hides its thinking."""
        shown = "".join(run.text for run in runs)
        marks = self._dialect.markers["thinking"]
        if any((prefix + echo.text).count(mark) != shown.count(mark) for mark in (marks.open, marks.close)):
            return False
        return _kinds(turn) <= {run.kind for run in runs}

    def _append_echo(self, prompt: Prompt, runs: Sequence[Run], echo: Echo) -> None:
        owners: list[Run] = []
        for run in runs:
            if run.block >= 0 and (not owners or (owners[-1].message, owners[-1].block) != (run.message, run.block)):
                owners.append(run)
        ends = echo.ends if len(echo.ends) == len(owners) else (len(echo.ids),)
        start = 0
        for run, end in zip(owners, ends, strict=False):
            self._span(prompt, run, echo.ids[start:end])
            start = max(start, end)


def _kinds(turn: Turn) -> set[str]:
    kinds = {"thinking"} if turn.reasoning else set()
    kinds |= {"tool_call"} if turn.calls else set()
    return kinds | {part.kind for part in turn.content if not isinstance(part, str) and part.text.strip()}
