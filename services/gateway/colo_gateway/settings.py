"""What an operator may set of the gateway."""

from colo_common.model.invalid import InvalidInput
from colo_common.runtime.settings import Common

__all__ = ["GatewaySettings"]


class GatewaySettings(Common, frozen=True, kw_only=True):
    """`http_port` serves the API beside the health pages. `ask_timeout_s` bounds every question to another service.

    `tape_size` facts and `trace_size` traces are kept; `streams_max` readers may follow, each with `stream_queue` facts waiting.
    """

    http_port: int = 8088
    ask_timeout_s: float = 5.0
    tape_size: int = 10_000
    trace_size: int = 2_000
    streams_max: int = 100
    stream_queue: int = 2_000

    def validate(self) -> None:
        """Raise InvalidInput for a limit that is below 1."""
        for name in ("tape_size", "trace_size", "streams_max", "stream_queue"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, "must be at least 1", getattr(self, name))
        if not 0 < self.ask_timeout_s <= 60:
            raise InvalidInput("ask_timeout_s", "must be above 0 and at most 60", self.ask_timeout_s)
