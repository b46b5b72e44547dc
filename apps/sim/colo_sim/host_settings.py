"""Settings of the process that runs simulated nodes."""

from typing import Final

from colo_common.model.invalid import InvalidInput
from colo_common.runtime.settings import Common
from colo_executor.reflex_policy import ReflexPolicy

__all__ = ["HostSettings"]

_DEVICES_MOST: Final = 64


class HostSettings(Common, frozen=True, kw_only=True):
    """`nodes` equal machines; the first has the number `first_node`, so that several processes simulate one fleet.

    Times are simulated ms. A machine's load changes every `sub_step_ms`; the executor's reflex sees it `reflex_ms` later (a real
    one reads every 20 ms and acts within 100 ms).

    The last `device_nodes` of them have the GPUs and network cards, 1 GiB of huge pages a zone and the label disk=ssd.

    In the baseline of plain CPU requests batch work fills `plain_fill_pct` of the room that requests leave, and none of nodes with
    devices where others have none.

    `trace` is a file of online load ("": the fleet series where it is installed, else a synthetic day). `report` is a file
    for the machines' ledgers, rewritten every second and at the end.
    """

    nodes: int = 12
    first_node: int = 1
    sockets: int = 2
    zones_per_socket: int = 2
    cpus_per_zone: int = 16
    memory_gib_per_zone: int = 64
    gpus_per_zone: int = 0
    nics_per_zone: int = 0
    device_nodes: int = 1_000
    plain_fill_pct: int = 100
    seed: int = 1
    trace: str = ""
    sample_ms: int = 1_000
    sub_step_ms: int = 1_000
    reflex_ms: int = 100
    report: str = ""
    reflex: ReflexPolicy = ReflexPolicy()

    def validate(self) -> None:
        """Raise InvalidInput for the first value that is out of range."""
        for name, most in (
            ("nodes", 1_000),
            ("first_node", 1_000_000),
            ("sockets", 16),
            ("zones_per_socket", 16),
            ("cpus_per_zone", 512),
            ("memory_gib_per_zone", 4_096),
        ):
            if not 1 <= getattr(self, name) <= most:
                raise InvalidInput(name, f"must be 1 to {most}", getattr(self, name))
        for name in ("gpus_per_zone", "nics_per_zone"):
            if not 0 <= getattr(self, name) <= _DEVICES_MOST:
                raise InvalidInput(name, f"must be 0 to {_DEVICES_MOST}", getattr(self, name))
        if not 0 <= self.device_nodes <= 1_000:
            raise InvalidInput("device_nodes", "must be 0 to 1000", self.device_nodes)
        if not 0 <= self.plain_fill_pct <= 100:
            raise InvalidInput("plain_fill_pct", "must be 0 to 100", self.plain_fill_pct)
        for name in ("sample_ms", "sub_step_ms"):
            if not 100 <= getattr(self, name) <= 600_000:
                raise InvalidInput(name, "must be 100 to 600000", getattr(self, name))
        if not 10 <= self.reflex_ms < self.sub_step_ms:
            raise InvalidInput("reflex_ms", "must be at least 10 and below sub_step_ms", self.reflex_ms)
        self.reflex.validate()
