"""The two errors of the pure model: input that breaks a rule, and state that must not exist."""

from __future__ import annotations

import json

_SHOWN_CHARACTERS = 80


def shown(value: object) -> str:
    """Return a value as JSON writes it, at most 80 characters; a longer one ends in "...". None is "nothing"."""
    text = "nothing" if value is None else _text(value)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return text[: _SHOWN_CHARACTERS - 3] + "..."


def _text(value: object) -> str:
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value).decode("utf-8", "replace")
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):
        text = repr(value)
    # A terminal would obey a control character, and UTF-8 cannot write half of a surrogate pair.
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


class InvalidInput(ValueError):
    """Input from outside breaks a rule. The caller rejects it, counts it, and changes nothing else.

    `field` names what is wrong, as the sender wrote it ("tasks[0].resources.cpu"); `rule` says what holds for it
    ("must be at least 0"); `value` is the value that came as JSON writes it, shortened to 80 characters.
    """

    def __init__(self, field: str, rule: str, value: object) -> None:
        self.field = field
        self.rule = rule
        self.value = shown(value)
        super().__init__(f"{field}: {rule} (got {self.value})")

    def of(self, field: str) -> InvalidInput:
        """Return the same error about a field of another name, for input that was translated before it was checked."""
        return _rebuild_invalid_input(field, self.rule, self.value)

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the error picklable: its constructor takes other arguments than its text."""
        return (_rebuild_invalid_input, (self.field, self.rule, self.value))


def _rebuild_invalid_input(field: str, rule: str, shown: str) -> InvalidInput:
    error = InvalidInput(field, rule, None)
    error.value = shown
    error.args = (f"{field}: {rule} (got {shown})",)
    return error


class InvariantBroken(Exception):
    """The program's own state breaks a promise: a defect, never the fault of input.

    Carries a message and the facts of the moment as keyword context, printed sorted by name so that two
    reports of the same defect are equal text.
    """

    def __init__(self, message: str, **context: object) -> None:
        self.message = message
        self.context = dict(sorted(context.items()))
        super().__init__(message)

    def __str__(self) -> str:
        if not self.context:
            return self.message
        facts = ", ".join(f"{name}={value!r}" for name, value in self.context.items())
        return f"{self.message} ({facts})"

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the error picklable with its context."""
        return (_rebuild_invariant_broken, (self.message, self.context))


def _rebuild_invariant_broken(message: str, context: dict[str, object]) -> InvariantBroken:
    return InvariantBroken(message, **context)
