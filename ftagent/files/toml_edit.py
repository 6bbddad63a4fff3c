"""One key of a TOML text, by a parser that keeps comments, order and spacing."""

from __future__ import annotations

from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from ftagent.files.keys import CannotEdit, Edit


def edit_toml(text: str, edit: Edit) -> str:
    """Raises CannotEdit, also where the parser would not write the rest as it found it."""
    try:
        document = tomlkit.parse(text)
        if tomlkit.dumps(document) != text:
            raise CannotEdit("its form would not be kept")
        place: Any = document
        for name in edit.key[:-1]:
            if name not in place:
                if edit.remove:
                    return text
                place[name] = tomlkit.table()
            place = place[name]
        if edit.remove:
            place.pop(edit.key[-1], None)
        else:
            place[edit.key[-1]] = edit.value
        new = tomlkit.dumps(document)
    except (TOMLKitError, ValueError, TypeError, AttributeError) as error:
        raise CannotEdit(f"the new value cannot be written as TOML: {error}") from None
    if "\r\n" in text and "\n" not in text.replace("\r\n", ""):
        new = new.replace("\r\n", "\n").replace("\n", "\r\n")
    return new
