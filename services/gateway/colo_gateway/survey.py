"""Asks every control service how it is, and the bus how far each is behind."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from colo_common.events.registry import STREAMS, Stream, request_subject
from colo_common.events.status import GetServiceStatus, ServiceStatus
from colo_common.events.wire import decode_reply, encode_request
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Backlog, PortError, Survey
from colo_gateway.state_replies import ServiceEntry

__all__ = ["CONTROL_SERVICES", "ServiceSurvey", "service_entry"]

#: In the order in which work passes them. Collectors and executors run one a node: their nodes' freshness speaks for them.
CONTROL_SERVICES: Final = ("gateway", "jobs", "scheduler", "overcommit", "evictor")
#: Services without which the API cannot answer.
NEEDED: Final = ("jobs", "scheduler", "overcommit")
_NO_ANSWER: Final = "nobody answers: it is stopped, still starting, or stuck"
# Orders to the executors have a consumer for each node, which say nothing about a control service.
_STREAMS: Final = tuple(stream.value for stream in STREAMS if stream not in (Stream.CMD, Stream.NODE))
_REST_S: Final = 2.0
_IMPATIENT_S: Final = 0.2
# The bus is asked about every consumer: seldom enough not to be seen, and often enough for an alert or a scaler.
_PENDING_EVERY: Final = 3


class ServiceSurvey:
    """Surveys of the control services. `needed` is what the newest background survey found, for the readiness of the gateway, and
    `pending` how far each service was behind, at most some seconds ago.
    """

    def __init__(self, bus: Survey, timeout_s: float) -> None:
        self._bus = bus
        self._timeout_s = timeout_s
        self._needed: dict[str, str] = dict.fromkeys(NEEDED, "has not been asked yet")
        #: Messages that wait for each control service; empty while the bus does not say.
        self.pending: Mapping[str, int] = {}

    def needed(self) -> Mapping[str, str]:
        """For each service that the API needs, "" or why it cannot be asked."""
        return self._needed

    async def watch(self) -> None:
        """Keep `needed` up to date until cancelled."""
        turns = 0
        while True:
            found = await asyncio.gather(*(self._instances(service) for service in NEEDED))
            self._needed = {
                service: "" if instances else _NO_ANSWER for service, instances in zip(NEEDED, found, strict=True)
            }
            if turns % _PENDING_EVERY == 0:
                self.pending = pending_of(await self._backlogs())
            turns += 1
            await asyncio.sleep(_REST_S if all(found) else _IMPATIENT_S)

    async def entries(self, dead_letters: Mapping[str, int]) -> tuple[tuple[ServiceEntry, ...], tuple[str, ...]]:
        """Every control service, and a sentence for what could not be found out. Takes `timeout_s` at most."""
        asked = asyncio.gather(*(self._instances(service) for service in CONTROL_SERVICES))
        backlogs, instances = await asyncio.gather(self._backlogs(), asked)
        missing = () if backlogs is not None else ("how far services are behind: the bus does not say",)
        entries = tuple(
            service_entry(service, found, backlogs, dead_letters.get(service, 0))
            for service, found in zip(CONTROL_SERVICES, instances, strict=True)
        )
        return entries, missing

    async def _instances(self, service: str) -> list[ServiceStatus]:
        question = GetServiceStatus(service=service)
        try:
            answers = await self._bus.ask_all(request_subject(question), encode_request(question), self._timeout_s)
        except PortError:
            return []
        found = []
        for data in answers:
            try:
                answer = decode_reply(GetServiceStatus, data)
            except InvalidInput:
                continue
            if isinstance(answer, ServiceStatus):
                found.append(answer)
        return sorted(found, key=lambda one: (one.started_at_ms, one.boot_id))

    async def _backlogs(self) -> Sequence[Backlog] | None:
        try:
            return await self._bus.backlogs(_STREAMS, self._timeout_s)
        except PortError:
            return None


def pending_of(backlogs: Sequence[Backlog] | None) -> dict[str, int]:
    """Messages that wait for each control service; {} when the bus did not say."""
    if backlogs is None:
        return {}
    return {service: sum(each.pending for each in _own(service, backlogs)) for service in CONTROL_SERVICES}


def _own(service: str, backlogs: Sequence[Backlog]) -> list[Backlog]:
    """The consumers of a service, without those that nobody reads any more while others of its are read.

    A service whose number of partitions changed, or of another version, has left them: what waits there waits for nobody.
    """
    own = [each for each in backlogs if each.consumer.startswith(f"colo-{service}-")]
    return [each for each in own if each.is_read] or own


def service_entry(
    service: str, instances: Sequence[ServiceStatus], backlogs: Sequence[Backlog] | None, dead_letters: int
) -> ServiceEntry:
    """The entry of a service from what its instances and the bus say."""
    own = _own(service, backlogs or ())
    # The gateway is not ready while a service is away that it asks; here that service speaks for itself.
    others = set(CONTROL_SERVICES) - {service}
    problems_of = [{part: why for part, why in one.problems.items() if part not in others} for one in instances]
    ready = [problems for problems in problems_of if not problems]
    problems = {f"{part}: {why}": None for each in problems_of for part, why in each.items()}
    return ServiceEntry(
        service=service,
        is_ready=bool(ready),
        why="" if ready else "; ".join(problems) or _NO_ANSWER,
        instances=tuple(instances),
        pending=None if backlogs is None else sum(each.pending for each in own),
        unacknowledged=None if backlogs is None else sum(each.unacknowledged for each in own),
        consumers=tuple(own),
        dead_letters=dead_letters,
    )
