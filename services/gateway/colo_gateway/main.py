"""The gateway as a process."""

import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from aiohttp import web
from msgspec import structs

from colo_common.adapters.redis_refusals import RedisRefusals
from colo_common.ports import Advisory
from colo_common.runtime.access import nats_access_of
from colo_common.runtime.build import build_version
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.process import ServiceProcess, run
from colo_common.runtime.service import Service
from colo_gateway.api import Api, refuse_as_problem
from colo_gateway.ask import Asker
from colo_gateway.audit_routes import AuditRoutes
from colo_gateway.body import BODY_BYTES_MAX
from colo_gateway.clock_headers import tell_clock
from colo_gateway.core import Advised, GatewayCore
from colo_gateway.dead_letters import DeadLetterRoutes
from colo_gateway.door.audit import Auditor
from colo_gateway.door.door import Door
from colo_gateway.door.forwarded import networks_of
from colo_gateway.door.oidc import OidcTokens
from colo_gateway.door.rate import AddressLimits
from colo_gateway.door.server_refusals import ServerRefusals
from colo_gateway.door.tls import ServerCertificates
from colo_gateway.door.token_file import TokenFile
from colo_gateway.gateway_metrics import GatewayMetrics
from colo_gateway.known_query import refuse_unknown_query
from colo_gateway.own_problems import OwnProblems
from colo_gateway.policy.shell import policy_service
from colo_gateway.restrictions.shell import restrictions_service
from colo_gateway.settings import GatewaySettings
from colo_gateway.shell import hears, performer
from colo_gateway.state import StateRoutes
from colo_gateway.streams import Streams
from colo_gateway.suggestions import suggest_nearest
from colo_gateway.survey import ServiceSurvey

__all__ = ["main"]


# A question to every instance of a service; an instance that answers later counts as stuck.
_SURVEY_S: Final = 0.6


async def build(process: ServiceProcess, settings: GatewaySettings) -> None:
    """Add the service to the process, and the API to the HTTP server of its health pages."""
    # Positions of a later start are higher, so that a reader who resumes here what began elsewhere is told of the gap.
    core = GatewayCore(
        event_log_size=settings.event_log_size, trace_size=settings.trace_size, start=process.clock.wall_us()
    )
    streams = Streams(limit=settings.streams_max, queue_size=settings.stream_queue)
    asker = Asker(process.bus, settings.ask_timeout_s)
    survey = ServiceSurvey(process.survey, _SURVEY_S)
    process.background(survey.watch())
    process.metrics.register(GatewayMetrics(core.harm, lambda: survey.pending))
    own = OwnProblems(_tables(process))
    process.background(own.watch())
    service = Service(
        name="gateway",
        core=core,
        bus=process.bus,
        clock=process.clock,
        subscriptions=hears(settings.history_s, settings.history_most),
        perform=performer(streams),
        metrics=process.metrics,
        more_problems=lambda: {**own.found(), **survey.needed()},
    )
    for each in (service, *own.services):
        process.add(each)
    process.background(process.survey.advisories(_counted(service, process.metrics)))
    api = Api(
        asker=asker,
        core=core,
        streams=streams,
        state=StateRoutes(
            asker=asker,
            core=core,
            survey=survey,
            now_ms=process.clock.now_ms,
            clock_speed=settings.clock_speed,
            version=build_version(),
        ),
        dead_letters=DeadLetterRoutes(process.bus, process.dead_letters, process.clock.now_ms),
        audit=AuditRoutes(process.audit),
        telemetry=process.telemetry,
        clock=process.clock,
        clock_speed=settings.clock_speed,
        version=build_version(),
        trace_ratio=settings.trace_ratio,
    )
    auditor = Auditor(service, process.metrics)
    _hear_refusals(process, settings, auditor)
    door = Door(
        asker=asker,
        auditor=auditor,
        metrics=process.metrics,
        # Tokens expire by the wall, however fast a lab's clock runs.
        now_ms=lambda: time.time_ns() // 1_000_000,
        audited_at_ms=process.clock.now_ms,
        tokens=TokenFile(Path(settings.tokens_file)) if settings.tokens_file else None,
        oidc=OidcTokens(settings.oidc) if settings.oidc.issuer else None,
        is_local=settings.is_local,
        requests=AddressLimits(settings.requests_per_s, 2 * settings.requests_per_s),
        failures=AddressLimits(settings.failed_logins_per_min / 60, settings.failed_logins_per_min),
        proxies=networks_of(settings.trusted_proxies),
    )
    process.health_port = settings.health_port
    if settings.tls.cert:
        certificates = ServerCertificates(settings.tls)
        process.tls = certificates.context
        process.background(certificates.keep_fresh())
    clock = tell_clock(process.clock.now_ms, settings.clock_speed)
    middlewares = [clock, door.middleware(), refuse_as_problem, refuse_unknown_query, suggest_nearest(asker)]
    process.app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=middlewares)
    process.app.add_routes(api.routes())


def _tables(process: ServiceProcess) -> tuple[Service, ...]:
    """Services of their own: while the store is away, only what changes these tables waits for it, and the event stream goes on."""
    return (
        restrictions_service(process.bus, process.store, process.clock, metrics=process.metrics),
        policy_service(process.bus, process.store, process.clock, metrics=process.metrics),
    )


def _hear_refusals(process: ServiceProcess, settings: GatewaySettings, auditor: Auditor) -> None:
    """Have it written down when NATS and Redis refuse somebody."""
    refusals = ServerRefusals(auditor, process.metrics, process.clock.now_ms)
    process.background(refusals.tell())
    process.background(refusals.read_redis(RedisRefusals(process.redis)))
    if settings.nats_audit_nkey_file:
        own = nats_access_of(process.common)
        access = structs.replace(own, nkey_file=settings.nats_audit_nkey_file, creds_file="", user="", password_file="")
        process.background(refusals.hear_nats(access, f"colo-{process.name}-audit"))


def _counted(service: Service, metrics: Metrics) -> Callable[[Advisory], Awaitable[None]]:
    """Counts what the bus says by itself, for the metrics and for the status."""
    counter = metrics.counter(
        "colo_gateway_bus_advisories_total", "what NATS said about colo's streams and consumers", ("kind",)
    )

    async def note(advisory: Advisory) -> None:
        counter.labels(advisory.kind).inc()
        await service.inject(Advised(advisory=advisory))

    return note


def main() -> int:
    """Run until SIGTERM and return the exit code."""
    return run("gateway", GatewaySettings, build, is_sched_batch=True)


if __name__ == "__main__":
    sys.exit(main())
