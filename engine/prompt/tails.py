"""What a template writes behind the last words of a conversation to make the model answer. It says whether the answer begins inside
the reasoning, which depends on whose words the last ones are, and how the turn of that answer begins once it is history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.errors import BadRequest
from engine.prompt.conversation import Conversation, Message, Role, Text, ToolCall, ToolResult
from engine.prompt.dialects.contract import Markers
from engine.prompt.marking import behind_leaves
from engine.prompt.template import Traits

_QUERY = Message("user", (Text("q"),))
_CALL = ToolCall("call00000", "f", "{}")
_SAMPLES: dict[Role, tuple[Message, ...]] = {
    "user": (_QUERY,),
    "tool": (_QUERY, Message("assistant", (_CALL,)), Message("tool", (ToolResult(_CALL.id, (Text("r"),)),))),
    "assistant": (_QUERY, Message("assistant", (Text("a"),))),
}


class Tails:
    """`write` makes the text of a whole prompt, with sentinels in the place of what clients said; `opening` is RunBuilder's."""

    def __init__(
        self,
        write: Callable[[Conversation], str],
        markers: Mapping[str, Markers],
        opening: Callable[[str, str], str],
        traits: Traits,
    ) -> None:
        self._write = write
        self._thinking = markers["thinking"]
        self._opening = opening
        self._traits = traits
        self._known: dict[tuple[bool, Role], str] = {}

    def thinking_open(self, thinking: bool, messages: Sequence[Message]) -> bool:
        """Whether a prompt of these messages opens the thinking of its answer."""
        tail = self._tail(thinking, self._ending(messages))
        return tail.rfind(self._thinking.open) > tail.rfind(self._thinking.close)

    def opening(self, thinking: bool, before: Role) -> str:
        """The beginning of an assistant's turn behind one of role `before`, as a prompt ended with it."""
        if before == "tool":
            return self._opening(self._tail(thinking, "tool"), "tool_result")
        return self._opening(self._tail(thinking, "user"), "user")

    def _ending(self, messages: Sequence[Message]) -> Role:
        """Whose words the template sees last. A system message stays only where the answer follows it as it follows a user's."""
        if not messages:
            return "user"
        if messages[-1].blocks and isinstance(messages[-1].blocks[-1], ToolResult):
            return "tool" if self._traits.tool_role else "user"
        return "assistant" if messages[-1].role == "assistant" else "user"

    def _tail(self, thinking: bool, ending: Role) -> str:
        tail = self._known.get((thinking, ending))
        if tail is None:
            try:
                tail = behind_leaves(self._write(Conversation(_SAMPLES[ending], thinking=thinking)))
            except BadRequest:  # no conversation with this template ends like that
                tail = "" if ending == "user" else self._tail(thinking, "user")
            self._known[thinking, ending] = tail
        return tail
