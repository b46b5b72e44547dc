"""Answers of the gateway as the commands show them to a person."""

from typing import Any, TypeVar

import msgspec

from colo_common.model.printable import printable_values

__all__ = ["answer_as"]

_Reply = TypeVar("_Reply")


def answer_as(answer: Any, reply: type[_Reply]) -> _Reply:
    """The answer as its type, with every text in it printable: reasons, labels and messages come from anybody.

    Programs get the answer as it is (`print_data`). Raises msgspec.ValidationError for an answer of another version.
    """
    # Facts are of many types, which only the bytes hold as they are.
    return msgspec.json.decode(msgspec.json.encode(printable_values(answer)), type=reply)
