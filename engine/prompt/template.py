"""A model's chat template: Jinja in a sandbox, the way model authors test it, and what the template can express."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment

from engine.errors import BadRequest, FtError
from engine.weights.manifest import remedy

_PROBE, _ANSWER = "\ue0f5probe\ue0f6", "\ue0f5answer\ue0f6"
_THINKING = {"enable_thinking": True, "thinking": True}
_PLAIN_ID = "call00000"  # nine letters and digits: some templates take no other


class _Generation(Extension):
    """`{% generation %}` marks training targets; when rendering it is only a pair of brackets."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@dataclass(frozen=True, slots=True)
class Traits:
    """What the template renders. Where it is False the normaliser spells the thing out as text in `content`."""

    tools: bool
    tool_calls: bool
    tool_role: bool
    reasoning: bool
    system_anywhere: bool
    user_repeated: bool
    text_beside_thinking: bool = True  # in a turn with calls
    calls_together: bool = True  # several in one turn
    arguments_as_text: bool = False  # of calls: JSON rather than an object
    text_beside_calls: bool = True  # in one turn; else the template has no place for it
    thinking_in_text: bool = True  # reasoning in the content of a message is shown; else it is none of the history


def compile_template(source: str) -> Template:
    """The template, as models are served with it. Raises jinja2's TemplateError when it does not compile."""
    # Lists may be changed: some templates count calls in one of their own. What they are given is made for each rendering.
    environment = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)  # local time, as users read it
    return environment.from_string(source)


class ChatTemplate:
    """`variables` are the names the template may use besides messages and tools, e.g. bos_token."""

    def __init__(self, source: str, variables: dict[str, Any]) -> None:
        self._template = compile_template(source)
        self._variables = variables
        self._none: list[dict[str, Any]] | None = None  # what stands for no tools
        self.traits = self._probe()

    @staticmethod
    def load(path: Path, variables: dict[str, Any]) -> ChatTemplate:
        """Raises FtError naming the file when it is missing or no template."""
        try:
            return ChatTemplate(path.read_text(encoding="utf-8"), variables)
        except (OSError, UnicodeDecodeError, TemplateError, BadRequest) as error:
            raise FtError(f"{path} cannot be used as a chat template ({error}).", remedy(path.parent)) from None

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        generation_prompt: bool = False,
        options: dict[str, Any] | None = None,
    ) -> str:
        """The conversation as text. Raises BadRequest when the template refuses it."""
        try:
            return self._template.render(
                messages=messages,
                tools=tools or self._none,
                documents=None,
                add_generation_prompt=generation_prompt,
                **{**self._variables, **(options or {})},
            )
        except (TemplateError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise BadRequest(
                f"The model's chat template refuses this conversation: {error}", "Start a new conversation."
            ) from None

    def _probe(self) -> Traits:
        user = {"role": "user", "content": "q"}
        answer = {"role": "assistant", "content": ""}
        tool = {"type": "function", "function": {"name": _PROBE, "description": "d", "parameters": {"type": "object"}}}
        result = {"role": "tool", "content": _PROBE, "tool_call_id": _PLAIN_ID, "name": "f"}
        try:
            self.render([user])
        except BadRequest:  # some templates go through the tools without asking whether there are any
            self._none = []
            self.render([user])  # a template that cannot render this is no chat template
        # Some templates show a call's id in the place of its name, some concatenate its arguments as text.
        ways = [(text, by_id) for text in (False, True) for by_id in (False, True)]
        way = next((w for w in ways if self._shows([user, {**answer, "tool_calls": [_call(_PROBE, *w)]}])), None)
        call, plain_call = _call(_PROBE, *(way or ways[0])), _call("f", *(way or ways[0]))
        return Traits(
            tools=self._shows([user], [tool]),
            tool_calls=way is not None,
            # A template that ignores tool calls would render a result with no call before it.
            tool_role=way is not None and self._shows([user, {**answer, "tool_calls": [plain_call]}, result]),
            # Some templates drop the reasoning of an answer at once, and keep it for calls.
            reasoning=self._shows([user, {"role": "assistant", "content": "a", **_thought(_PROBE)}])
            or (way is not None and self._shows([user, {**answer, **_thought(_PROBE), "tool_calls": [plain_call]}])),
            system_anywhere=self._behind("system") is not None and self._behind("system") == self._behind("user"),
            user_repeated=self._shows([user, {"role": "user", "content": _PROBE}]),
            text_beside_thinking=way is None
            or self._shows([user, {**answer, "content": _PROBE, **_thought("r"), "tool_calls": [plain_call]}]),
            calls_together=way is None or self._shows([user, {**answer, "tool_calls": [plain_call, call]}]),
            arguments_as_text=way is not None and way[0],
            text_beside_calls=way is None
            or self._takes([user, {**answer, "content": "t", "tool_calls": [plain_call]}, result]),
            thinking_in_text=self._shows([user, {"role": "assistant", "content": f"<think>{_PROBE}</think>a"}]),
        )

    def _takes(self, messages: list[dict[str, Any]]) -> bool:
        try:
            self.render(messages, options=_THINKING)
        except BadRequest:
            return False
        return True

    def _behind(self, role: str) -> str | None:
        """What a prompt has behind a message that follows an answer; None where the message does not stay in that place."""
        messages = [("user", "q"), ("assistant", _ANSWER), (role, _PROBE)]
        try:
            text = self.render([{"role": r, "content": c} for r, c in messages], None, True, _THINKING)
        except BadRequest:
            return None
        before, found, behind = text.rpartition(_PROBE)
        return behind if found and _ANSWER in before else None

    def _shows(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> bool:
        try:
            return _PROBE in self.render(messages, tools, options=_THINKING)
        except BadRequest:
            return False


def _call(name: str, text: bool, by_id: bool) -> dict[str, Any]:
    arguments = '{"a": "b"}' if text else {"a": "b"}
    function = {"name": name, "arguments": arguments}
    return {"id": name if by_id and name == _PROBE else _PLAIN_ID, "type": "function", "function": function}


def _thought(text: str) -> dict[str, str]:
    """Reasoning under both names that templates have for it."""
    return {"reasoning_content": text, "thinking": text}


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML and sorts keys; models were trained without either.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)
