"""Whether a claimant may use a reservation at all, before any figure is compared.

The order of the tests decides which mismatch is returned. A reservation that is requested by name only has to be the claimant's
own. Without a name its taints and its unschedulable mark are tested too; taints count for every claimant
(koordinator-sh/koordinator tests them only when a claimant selects reservations).
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from colo_common.model.constraints import Taint, Toleration
from colo_common.model.reservation import ReservationSpec
from colo_common.model.resource_list import CPU, MEMORY
from colo_scheduler.reservations.owners import Claimant, is_owner

__all__ = ["UNSCHEDULABLE", "Mismatch", "mismatch_of", "reserved_amounts"]

UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint that a claimant must tolerate to use an unschedulable reservation."""


class Mismatch(StrEnum):
    """Why a claimant may not use a reservation."""

    NOT_OWNER = "not-owner"
    OTHER_NAME = "other-name"
    UNSCHEDULABLE = "unschedulable"
    TAINTED = "tainted"


def reserved_amounts(spec: ReservationSpec) -> dict[str, int]:
    """The amounts that a reservation holds, by resource name."""
    return {CPU: spec.request.cpu_mcpu, MEMORY: spec.request.memory_bytes}


def mismatch_of(spec: ReservationSpec, claimant: Claimant) -> Mismatch | None:
    """None when the claimant may use the reservation."""
    if claimant.ignores_reservations:
        return None
    if not is_owner(claimant, spec.owners):
        return Mismatch.NOT_OWNER
    if claimant.reservation and claimant.reservation != spec.name:
        return Mismatch.OTHER_NAME
    if not claimant.reservation:
        if spec.is_unschedulable and not _is_tolerated(UNSCHEDULABLE, claimant.tolerations):
            return Mismatch.UNSCHEDULABLE
        keeping_away = [taint for taint in spec.taints if taint.effect != "PreferNoSchedule"]
        if not all(_is_tolerated(taint, claimant.tolerations) for taint in keeping_away):
            return Mismatch.TAINTED
    return None


def _is_tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(
        toleration.key in ("", taint.key)
        and toleration.value in (None, taint.value)
        and toleration.effect in ("", taint.effect)
        for toleration in tolerations
    )
