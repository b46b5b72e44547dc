"""The options that every command takes: whose token, and whose certificates."""

import os
from collections.abc import Sequence
from typing import Final

from colo_cli.failure import Failure

__all__ = ["EVERYWHERE", "take_everywhere"]

#: Option -> its variable and what it is.
EVERYWHERE: Final = {
    "--token": ("COLO_TOKEN", "bearer token for the gateway; @FILE reads it from a file"),
    "--ca": ("COLO_CA", "PEM file of the authority that signed the gateway's certificate"),
}


def take_everywhere(words: Sequence[str]) -> list[str]:
    """The words without these options, whose values are now in the environment. Raises Failure (2) for one without a value.

    A word after "--" is no option.
    """
    kept: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*kept, word, *rest]
        option, equals, value = word.partition("=")
        if option not in EVERYWHERE:
            kept.append(word)
            continue
        if not equals:
            if not rest:
                raise Failure(f"{option}: needs a value: {EVERYWHERE[option][1]}", 2)
            value = rest.pop(0)
        if not value.strip():
            raise Failure(f"{option}: must not be empty: {EVERYWHERE[option][1]}", 2)
        os.environ[EVERYWHERE[option][0]] = value
    return kept
