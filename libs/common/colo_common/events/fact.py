"""The common fields of every event, command and telemetry message."""

from msgspec import Struct

from colo_common.model.units import Ms, Number, Us

__all__ = ["Fact"]


class Fact(Struct, frozen=True, kw_only=True):
    """Base type of every event, command and telemetry message.

    The core sets `at_ms` (the service's clock, Unix milliseconds). The shell stamps the rest when it publishes: `producer` (service
    name), `boot_id` (new at each process start), `seq` (counts messages of that boot from 1), `sent_us` (wall clock, Unix
    microseconds, also where the service's clock is scaled).
    """

    at_ms: Ms = 0
    producer: str = ""
    boot_id: str = ""
    seq: Number = 0
    sent_us: Us = 0
