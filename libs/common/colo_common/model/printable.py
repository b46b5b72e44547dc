"""Text from outside as a person may see it: a terminal would obey the codes in it, and hide what they hide."""

import json
import unicodedata
from typing import Any, Final

__all__ = ["printable", "printable_values"]

#: Control codes, codes that turn or hide what is around them, halves of surrogate pairs, separators of lines.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str, keeps: str = "") -> str:
    """The text with every such character written as JSON writes it ("\\u001b", "\\n"); those in `keeps` stay as they are."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character in keeps or unicodedata.category(character) not in _HIDDEN
        else json.dumps(character)[1:-1]
        for character in text
    )


def printable_values(value: Any) -> Any:
    """Plain values, as JSON holds them, with every text in them printable, keys as well."""
    match value:
        case str():
            return printable(value)
        case dict():
            return {printable_values(key): printable_values(each) for key, each in value.items()}
        case list():
            return [printable_values(each) for each in value]
        case _:
            return value
