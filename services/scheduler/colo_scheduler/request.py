"""A request class: wants that every node answers alike, and that are therefore decided together."""

from typing import NamedTuple

from colo_common.events.job import ReplicaWant
from colo_common.model.qos import PriorityBand, QosClass

__all__ = ["RequestClass", "class_of"]

_BATCH_BANDS = (PriorityBand.MID, PriorityBand.BATCH, PriorityBand.FREE)


class RequestClass(NamedTuple):
    """Everything of a want that a filter, a scorer or the order of classes looks at. `avoid`: node, until (Unix ms), sorted.

    `has_command`: a real machine can run it; `has_work`: a simulated one can.
    """

    priority: int
    cpu_mcpu: int
    memory_bytes: int
    qos: QosClass
    band: PriorityBand
    avoid: tuple[tuple[str, int], ...]
    has_command: bool
    has_work: bool

    @property
    def is_admitted(self) -> bool:
        """Whether batch capacity may be used: best-effort work below the prod band."""
        return self.qos is QosClass.BE and self.band in _BATCH_BANDS


def class_of(want: ReplicaWant) -> RequestClass:
    """The class that a want belongs to."""
    return RequestClass(
        priority=want.priority,
        cpu_mcpu=want.request.cpu_mcpu,
        memory_bytes=want.request.memory_bytes,
        qos=want.qos,
        band=want.band,
        avoid=tuple(sorted(want.avoid)),
        has_command=bool(want.run.command),
        has_work=want.run.work_mcpu_ms >= 1,
    )
