"""What a process says and understands: the door between its connection and the bus, for versions that know less."""

from __future__ import annotations

from typing import Protocol

__all__ = ["WireFilter"]


class WireFilter(Protocol):
    """Takes away from messages what one version does not know, as its decoders and its events do."""

    def hears(self, subject: str, stream: str) -> bool:
        """Whether this version listens to the subject of a stream at all ("" for one that is in no stream)."""
        ...

    def fact(self, subject: str, data: bytes) -> bytes:
        """An event as this version says or understands it."""
        ...

    def request(self, subject: str, data: bytes) -> bytes:
        """A request as this version asks or understands it."""
        ...

    def reply(self, subject: str, data: bytes) -> bytes:
        """The answer to a request of the subject, likewise."""
        ...
