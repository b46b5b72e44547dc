"""The parameters of the reflex: those of its two rules, of its limits, and its own."""

from typing import Literal

from msgspec import Struct

from colo_executor.bandwidth import BandwidthPolicy
from colo_executor.freeze import FreezePolicy
from colo_executor.lease import LeasePolicy
from colo_executor.slo import SloPolicy
from colo_executor.stall import StallPolicy
from colo_executor.suppress import SuppressPolicy

__all__ = ["ReflexPolicy"]


class ReflexPolicy(Struct, frozen=True, kw_only=True):
    """The policies of the two rules, of the lease, of the limits by online latency and by the traffic of memory, and of freezing,
    and the limits of the reflex itself.

    `rule` `usage` keeps batch work below what online work leaves of the node. `stall` shrinks it only where that relieves online
    work that waits for a CPU. `auto` takes `stall` where the kernel was read back to make batch work give way, by its idle class
    or by weights, and where the waits of all busy online work can be read, and `usage` elsewhere, as on virtual machines for
    batch work (`colocation_mode` `vm`). Where no wait can be read, `usage` decides in any case. After `blind_ms` without a
    reading the node's load is unknown and the ceiling goes to the floor. A ceiling that the kernel refused is tried again after
    `retry_ms`, doubled at each refusal up to `retry_most_ms`.
    """

    rule: Literal["auto", "usage", "stall"] = "auto"
    suppress: SuppressPolicy = SuppressPolicy()
    stall: StallPolicy = StallPolicy()
    lease: LeasePolicy = LeasePolicy()
    slo: SloPolicy = SloPolicy()
    bandwidth: BandwidthPolicy = BandwidthPolicy()
    freeze: FreezePolicy = FreezePolicy()
    blind_ms: int = 1_000
    retry_ms: int = 1_000
    retry_most_ms: int = 30_000

    def validate(self) -> None:
        """Raise InvalidInput for a number without meaning."""
        self.suppress.validate()
        self.stall.validate()
        self.lease.validate()
        self.slo.validate()
        self.bandwidth.validate()
        self.freeze.validate()
