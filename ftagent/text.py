"""Text that goes to files, to the engine and to agents is UTF-8; names on disk and arguments need not be."""

from __future__ import annotations

from ftagent.errors import Refused


def require_utf8(what: str, text: str) -> None:
    """Raises Refused when bytes that are not UTF-8 reached us in `text` (a folder's name, an argument)."""
    if printable(text) != text:
        raise Refused(
            f"{what} is not valid UTF-8: {printable(text)}",
            "Rename it, type it anew, or pass it as UTF-8.",
            code="FT-E0415 not-utf-8",
        )


def printable(text: str) -> str:
    """With escapes in place of what UTF-8 cannot carry. In the text of a JSON document they are JSON's own."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def visible(text: str) -> str:
    """With escapes in place of what is no printable character: what others wrote does nothing to a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
