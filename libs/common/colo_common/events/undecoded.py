"""A message about a node as it came: for cores that know of every node, and compute only for those that they act for."""

from msgspec import Struct

from colo_common.events.fact import Fact
from colo_common.events.wire import decode, node_at

__all__ = ["Undecoded"]


class Undecoded(Struct, frozen=True, kw_only=True, gc=False):
    """Event of the shell: the bytes of one message, and the node that its subject names."""

    subject: str
    node: str
    data: bytes

    @classmethod
    def of(cls, subject: str, data: bytes) -> "Undecoded":
        """The message of a concrete subject. Raises InvalidInput for a subject that is not registered or names no node."""
        return cls(subject=subject, node=node_at(subject), data=data)

    def decoded(self) -> Fact:
        """What it says. Raises InvalidInput as `decode` does."""
        return decode(self.subject, self.data)
