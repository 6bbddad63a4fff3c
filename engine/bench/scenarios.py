"""Sessions of an agent, exact to the token: what it sends, what the model answers, and what of it is new.

Each is a list of `Ask`s that goes through the same doors as a request from the wire. The sessions differ in what the agent
or the template does to context that was already sent; `declaration` is what such an agent declares.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.bench.bound import prompt_pieces
from engine.bench.toy import BASH, FRAME, GENERATION, HEAD, SUMMARY_HEAD, THINK_CLOSE, Words
from engine.prompt.conversation import Block, Conversation, Message, Text, Thinking, ToolCall, ToolResult
from engine.prompt.edits.policy import Wire

HEADER, REMINDER, CARRIER, INSTRUCTION = "hdr", "rmd", "crr", "ins"  # how these texts begin
PLACEHOLDER = "the old out put was set off for now"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens, frames included, and how many of each."""

    turns: int = 5
    steps: int = 8
    system: int = 16384
    user: int = 200
    thinking: int = 400
    text: int = 60
    call: int = 120
    result: int = 1500
    header: int = 30
    reminder: int = 120
    carrier: int = 80
    keep_results: int = 4
    clear_at_once: int = 8
    compact_over: int = 40000
    instruction: int = 300
    summary: int = 2000
    keep_messages: int = 4


QUICK = Sizes(turns=3, steps=5, system=2048, result=300, compact_over=5000, summary=500, clear_at_once=4)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `new` counts the tokens of text that nobody has seen before, with its frames and the generation
    prefix; None: the tokens of the `fresh` (message, block)s. `line` names the conversation, `side` says that it is not
    the agent's own; `about` is the line that it asks a summary of. `waits` is false when the request comes at once, as
    siblings do."""

    conversation: Conversation
    reply: tuple[Block, ...]
    new: int | None
    line: str = "main"
    about: str = ""
    waits: bool = True
    side: bool = False
    body: Mapping[str, Any] = field(default_factory=dict)
    wire: Wire = field(default_factory=Wire)
    fresh: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Scenario:
    """`asks` makes the session. `preserve_thinking` False: the template drops thinking before the last user message.
    `counted` names the line whose tokens are reported, "" for all. `canonical` is what the declaration makes of a request."""

    name: str
    asks: Callable[[Sizes], Iterator[Ask]]
    rules: Callable[[Sizes], tuple[Mapping[str, Any], ...]] = lambda sizes: ()
    echo: Mapping[str, str] = field(default_factory=dict)
    wire: Mapping[str, Any] = field(default_factory=dict)
    keep: tuple[Mapping[str, Any], ...] = ()
    side: tuple[Mapping[str, Any], ...] = ()
    preserve_thinking: bool = True
    counted: str = ""
    canonical: Callable[[Conversation], Conversation] = lambda conversation: conversation

    def declared(self, sizes: Sizes) -> dict[str, Any]:
        """What the agent of this session declares (`edits/1`)."""
        echo = {"thinking": "verbatim", "text": "verbatim", "args": "verbatim", "ids": "verbatim", **self.echo}
        return {
            "schema": "edits/1",
            "harness": f"bench-{self.name.replace('_', '-')}",
            "versions": ">=1",
            "wire": {"api": ["chat"], **self.wire},
            "echo": echo,
            "rule": list(self.rules(sizes)),
            "keep": [*KEEP, *self.keep],
            "side": list(self.side),
        }


KEEP = (
    {"edge": "head.end", "class": "head", "quota": 2},
    {"edge": "turn[-1].query.end", "class": "turn", "quota": 3},
    {"edge": "prompt.end", "class": "live", "quota": 2},
)


class Agent:
    """Writes the session: the texts, the history it keeps, and how it sends it."""

    def __init__(self, sizes: Sizes, view: Callable[[Agent], list[Message]] | None = None, seed: int = 1) -> None:
        self.sizes = sizes
        self.words = Words(seed)
        self.system = Message("system", (Text(self.words.text(sizes.system - HEAD)),))
        self.history: list[Message] = []
        self.calls = 0
        self._view = view or (lambda agent: agent.history)

    def conversation(self) -> Conversation:
        return Conversation((self.system, *self._view(self)), (BASH,))

    def say(self, size: int | None = None, *more: str, opening: str = "") -> int:
        """A user message, its first word `opening`; returns its tokens."""
        size = size or self.sizes.user
        text = self.words.text(size - FRAME)
        texts = [f"{opening}{text[3:]}" if opening else text, *more]
        self.history.append(Message("user", tuple(Text(text) for text in texts)))
        return size + sum(1 + len(text.split()) for text in more)

    def result(self) -> int:
        """The output of the last call; returns its tokens."""
        content = (Text(self.words.text(self.sizes.result - FRAME)),)
        self.history.append(Message("tool", (ToolResult(f"call_{self.calls}", content),)))
        return self.sizes.result

    def reply(self, last: bool) -> tuple[Block, ...]:
        """The model's next turn: thinking, text, and a call unless it is the `last` of the user's turn."""
        sizes = self.sizes
        thinking = Thinking(self.words.text(sizes.thinking - THINK_CLOSE))
        if last:
            return thinking, Text(self.words.text(sizes.text - 1))
        self.calls += 1
        return (
            thinking,
            Text(self.words.text(sizes.text)),
            self.words.call(f"call_{self.calls}", sizes.call - 2),
        )

    def answered(self, reply: tuple[Block, ...]) -> None:
        self.history.append(Message("assistant", reply))

    def session(self, *user_more: str) -> Iterator[tuple[int, bool, int]]:
        """For each request (step, whether it is the turn's last, tokens that are new); the caller asks and answers."""
        first = self.sizes.system
        for _ in range(self.sizes.turns):
            new = first + self.say(None, *user_more)
            first = 0
            for step in range(self.sizes.steps):
                last = step + 1 == self.sizes.steps
                yield step, last, new + GENERATION
                if not last:
                    new = self.result()


def plain(view: Callable[[Agent], list[Message]] | None = None) -> Callable[[Sizes], Iterator[Ask]]:
    """The base session, sent as `view` makes it."""

    def asks(sizes: Sizes) -> Iterator[Ask]:
        agent = Agent(sizes, view)
        for _, last, new in agent.session():
            reply = agent.reply(last)
            yield Ask(agent.conversation(), reply, new)
            agent.answered(reply)

    return asks


def without_thinking(agent: Agent) -> list[Message]:
    return [replace(m, blocks=tuple(b for b in m.blocks if not isinstance(b, Thinking))) for m in agent.history]


def cleared(batch: Callable[[Sizes], int]) -> Callable[[Agent], list[Message]]:
    """Results older than the newest `keep_results` are cleared, `batch` at a time."""

    def view(agent: Agent) -> list[Message]:
        results = [i for i, m in enumerate(agent.history) if m.role == "tool"]
        at_once = batch(agent.sizes)
        stale = set(results[: max(0, len(results) - agent.sizes.keep_results) // at_once * at_once])
        return [_emptied(m) if i in stale else m for i, m in enumerate(agent.history)]

    return view


def _emptied(message: Message) -> Message:
    (result,) = message.blocks
    assert isinstance(result, ToolResult)
    return Message("tool", (replace(result, content=(Text(PLACEHOLDER),)),))


def respelled(agent: Agent) -> list[Message]:
    """A client that sends its own defaults among the arguments of the calls it sends back, in its own order."""

    def again(block: Block) -> Block:
        if not isinstance(block, ToolCall):
            return block
        arguments = json.loads(block.arguments)
        return replace(block, arguments=json.dumps({"bg": False, **arguments}))

    return [replace(m, blocks=tuple(again(b) for b in m.blocks)) for m in agent.history]


def reminder(sizes: Sizes) -> Iterator[Ask]:
    """A reminder behind the user's text, dropped from it in the next turn."""
    agent = Agent(sizes)
    text = f"{REMINDER} " + agent.words.text(sizes.reminder - 1)

    def view(agent: Agent) -> list[Message]:
        users = [i for i, m in enumerate(agent.history) if m.role == "user"]
        return [replace(m, blocks=m.blocks[:1]) if i in users[:-1] else m for i, m in enumerate(agent.history)]

    agent._view = view
    for _, last, new in agent.session(text):
        reply = agent.reply(last)
        yield Ask(agent.conversation(), reply, new)
        agent.answered(reply)


def carrier(sizes: Sizes) -> Iterator[Ask]:
    """Each request ends with a user message that the next one no longer has."""
    agent = Agent(sizes)
    for _, last, new in agent.session():
        reply = agent.reply(last)
        sent = agent.conversation()
        trailing = Message("user", (Text(f"{CARRIER} " + agent.words.text(sizes.carrier - FRAME - 1)),))
        yield Ask(replace(sent, messages=(*sent.messages, trailing)), reply, new + sizes.carrier)
        agent.answered(reply)


def compact(sizes: Sizes) -> Iterator[Ask]:
    """Above a limit, at the end of a user turn, the model is asked for a summary, which replaces all but the newest
    messages."""
    agent = Agent(sizes)
    for _, last, new in agent.session():
        reply = agent.reply(last)
        sent = agent.conversation()
        yield Ask(sent, reply, new)
        agent.answered(reply)
        if last and tokens_of(sent) > sizes.compact_over:
            instruction = agent.say(sizes.instruction, opening=INSTRUCTION)
            summary = Text(agent.words.text(sizes.summary - THINK_CLOSE - 1))
            yield Ask(agent.conversation(), (summary,), instruction + GENERATION)
            tail = agent.history[:-1][-sizes.keep_messages :]
            agent.history = [Message("user", (Text(f"{SUMMARY_HEAD} {summary.text}"),)), *tail]


def tokens_of(conversation: Conversation) -> int:
    """Tokens of a prompt that keeps all thinking."""
    return sum(tokens for _, tokens in prompt_pieces(conversation, True))


def volatile_header(sizes: Sizes) -> Iterator[Ask]:
    """The first system block changes with each request."""
    agent = Agent(sizes)
    for _, last, new in agent.session():
        reply = agent.reply(last)
        sent = agent.conversation()
        header = Text(f"{HEADER} " + agent.words.text(sizes.header - 1))
        system = Message("system", (header, *agent.system.blocks))
        yield Ask(replace(sent, messages=(system, *sent.messages[1:])), reply, new)
        agent.answered(reply)


def subagents(head: int) -> Callable[[Sizes], Iterator[Ask]]:
    """Two subagents with one head, each with a task of its own; the second starts while the first is running."""

    def asks(sizes: Sizes) -> Iterator[Ask]:
        agent = Agent(replace(sizes, system=head))
        for number in range(2):
            agent.history = []
            task = agent.say(600 - GENERATION)
            reply = agent.reply(True)
            new = task + GENERATION + (0 if number else head)
            yield Ask(agent.conversation(), reply, new, f"task-{number}", waits=number == 0)

    return asks


def without_header(conversation: Conversation) -> Conversation:
    system, *rest = conversation.messages
    return replace(conversation, messages=(replace(system, blocks=system.blocks[1:]), *rest))


def _clear(n: int, every: int) -> dict[str, Any]:
    """Of the tool results, the newest `n` stay; `every` at a time are cleared."""
    return {
        "id": "clear",
        "op": "clear_result",
        "at": ["nth_newest(tool_result, n).start"],
        "known": "record",
        "when": "always",
        "params": {"n": n, "polling": every},
        "placeholder": PLACEHOLDER,
    }


SCENARIOS = (
    Scenario("append", plain()),
    Scenario("strip_all", plain(without_thinking), echo={"thinking": "drop_all"}),
    Scenario("strip_prev", plain(), preserve_thinking=False),
    Scenario("clear_tools", plain(cleared(lambda sizes: 1)), rules=lambda sizes: (_clear(sizes.keep_results, 1),)),
    Scenario(
        "clear_tools_8",
        plain(cleared(lambda sizes: sizes.clear_at_once)),
        rules=lambda sizes: (_clear(sizes.keep_results, sizes.clear_at_once),),
    ),
    Scenario(
        "reminder",
        reminder,
        rules=lambda sizes: (
            {
                "id": "reminder",
                "op": "drop_block",
                "at": ["user[-1].block[0].end"],
                "known": "request",
                "when": f"matches(user[-1].block[-1].end, '^{REMINDER} ')",
                "applies": "next_user_turn",
            },
        ),
    ),
    Scenario(
        "carrier",
        carrier,
        preserve_thinking=False,
        rules=lambda sizes: (
            {
                "id": "carrier",
                "op": "move_tail",
                "at": [f"tail('^{CARRIER} ').start"],
                "known": "request",
                "when": "always",
            },
        ),
    ),
    Scenario(
        "compact",
        compact,
        rules=lambda sizes: (
            {
                "id": "compact",
                "op": "summarize",
                "at": ["head.end", "summary.start"],
                "known": "reply",
                "params": {"instruction_re": f"^{INSTRUCTION} ", "summary": f"{SUMMARY_HEAD} {{summary}}"},
                "when": f"total >= {sizes.compact_over}",
                "applies": "next_user_turn",
                "tail": {"min_messages": sizes.keep_messages, "place": "after_summary"},
            },
        ),
        side=({"kind": "compaction", "match": {"last_block_re": f"^{INSTRUCTION} "}, "head": "session"},),
    ),
    Scenario(
        "volatile_header",
        volatile_header,
        wire={"volatile": [{"at": "system.block[0]", "re": f"^{HEADER} ", "action": "strip"}]},
        canonical=without_header,
    ),
    Scenario("subagent_12k", subagents(12_000), counted="task-1"),
    Scenario("subagent_6k", subagents(6_000), counted="task-1"),
    Scenario("reserialise", plain(respelled), echo={"args": "json_defaults"}),
)
