"""The settings of the gateway."""

from colo_common.model.invalid import InvalidInput
from colo_common.runtime.settings import Common

__all__ = ["GatewaySettings"]


class GatewaySettings(Common, frozen=True, kw_only=True):
    """The port `http_port` serves the API and the health pages. `ask_timeout_s` bounds every request to another service.

    The gateway keeps `event_log_size` facts and `trace_size` traces. At most `streams_max` event streams may be open, each with at
    most `stream_queue` facts in its queue.
    """

    http_port: int = 8088
    ask_timeout_s: float = 5.0
    event_log_size: int = 10_000
    trace_size: int = 2_000
    streams_max: int = 100
    stream_queue: int = 2_000

    def validate(self) -> None:
        """Raise InvalidInput for a limit below 1 or a timeout out of range."""
        for name in ("event_log_size", "trace_size", "streams_max", "stream_queue"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, "must be at least 1", getattr(self, name))
        if not 0 < self.ask_timeout_s <= 60:
            raise InvalidInput("ask_timeout_s", "must be above 0 and at most 60", self.ask_timeout_s)
