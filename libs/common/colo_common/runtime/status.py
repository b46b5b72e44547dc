"""Answers how one instance of a service is. The shell answers by itself, so that a core that has too much to do is seen."""

import os
import socket
from collections.abc import Awaitable, Callable, Mapping

from prometheus_client.metrics import MetricWrapperBase

from colo_common.events.registry import request_spec_of
from colo_common.events.status import GetServiceStatus, ServiceStatus
from colo_common.events.wire import encode_reply
from colo_common.ports import Answerer, Clock
from colo_common.runtime.build import build_version
from colo_common.runtime.lease_keeper import LeaseKeeper
from colo_common.runtime.metrics import ServiceMetrics

__all__ = ["StatusAnswer"]


class StatusAnswer:
    """The status of the instance that began to serve when this was made."""

    def __init__(
        self,
        service: str,
        boot_id: str,
        clock: Clock,
        metrics: ServiceMetrics,
        *,
        problems: Callable[[], Awaitable[Mapping[str, str]]],
        leases: LeaseKeeper | None = None,
    ) -> None:
        self._service = service
        self._boot_id = boot_id
        self._clock = clock
        self._metrics = metrics
        self._problems = problems
        self._leases = leases
        self._version = build_version()
        self._started_at_ms = clock.now_ms()

    def answerers(self) -> dict[str, Answerer]:
        """The answerer of the status request, by its subject."""
        return {request_spec_of(GetServiceStatus).subject.of(service=self._service): self._answer}

    async def _answer(self, data: bytes, headers: Mapping[str, str]) -> bytes:
        del data, headers
        problems = await self._problems()
        leases = self._leases
        held = () if leases is None else leases.held
        return encode_reply(
            ServiceStatus(
                service=self._service,
                boot_id=self._boot_id,
                host=socket.gethostname(),
                pid=os.getpid(),
                version=self._version,
                started_at_ms=self._started_at_ms,
                now_ms=self._clock.now_ms(),
                problems={part: problem for part, problem in problems.items() if problem},
                inbox_items=self._metrics.inbox_items.total(),
                outgoing_messages=self._metrics.outgoing_messages.total(),
                handled=_count_of(self._metrics.handled),
                dead_letters=_count_of(self._metrics.dead_letters),
                refusals=_count_of(self._metrics.refusals),
                held=tuple(partition for partition, _ in held),
                partitions=0 if leases is None else leases.partitions,
                fence=max((fence for _, fence in held), default=0),
                held_for_ms=0 if leases is None else leases.held_for_ms(),
                facts_missed=_count_of(self._metrics.facts_missed),
                store_losses=_count_of(self._metrics.store_losses),
                unrestored_items=self._metrics.unrestored_items.total(),
            )
        )


def _count_of(metric: MetricWrapperBase) -> int:
    """The sum over all labels of a counter."""
    return int(
        sum(
            sample.value
            for family in metric.collect()
            for sample in family.samples
            if not sample.name.endswith("_created")
        )
    )
