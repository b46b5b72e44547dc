"""A fact that a stream had kept, with its age: for cores that must not take what was said long ago for new."""

from msgspec import Struct

from colo_common.events.fact import Fact

__all__ = ["Replayed"]


class Replayed(Struct, frozen=True, kw_only=True, gc=False):
    """Event of the shell: the fact was stored `age_ms` before it arrived here, in ms of the service's clock.

    The bus counts the age by its own clock alone, from the message to the subscription, so that no two clocks are compared.
    """

    fact: Fact
    age_ms: int
