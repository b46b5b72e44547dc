"""The gateway as a process."""

import sys
from typing import Final

from aiohttp import web

from colo_common.runtime.build import build_version
from colo_common.runtime.process import ServiceProcess, run
from colo_common.runtime.service import Service
from colo_gateway.api import Api, refuse_as_problem
from colo_gateway.ask import Asker
from colo_gateway.body import BODY_BYTES_MAX
from colo_gateway.core import GatewayCore
from colo_gateway.dead_letters import DeadLetterRoutes
from colo_gateway.known_query import refuse_unknown_query
from colo_gateway.restrictions.shell import restrictions_service
from colo_gateway.settings import GatewaySettings
from colo_gateway.shell import HEARS, performer
from colo_gateway.state import StateRoutes
from colo_gateway.streams import Streams
from colo_gateway.suggestions import suggest_nearest
from colo_gateway.survey import ServiceSurvey

__all__ = ["main"]


# A question to every instance of a service; an instance that answers later counts as stuck.
_SURVEY_S: Final = 0.6


async def build(process: ServiceProcess, settings: GatewaySettings) -> None:
    """Add the service to the process, and the API to the HTTP server of its health pages."""
    core = GatewayCore(event_log_size=settings.event_log_size, trace_size=settings.trace_size)
    streams = Streams(limit=settings.streams_max, queue_size=settings.stream_queue)
    asker = Asker(process.bus, settings.ask_timeout_s)
    survey = ServiceSurvey(process.survey, _SURVEY_S)
    process.background(survey.watch())
    process.add(
        Service(
            name="gateway",
            core=core,
            bus=process.bus,
            clock=process.clock,
            subscriptions=HEARS,
            perform=performer(streams),
            metrics=process.metrics,
            more_problems=survey.needed,
        )
    )
    # A service of its own: while the store is away, only changes of restrictions wait for it, and the event stream goes on.
    process.add(restrictions_service(process.bus, process.store, process.clock, metrics=process.metrics))
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
        telemetry=process.telemetry,
        clock=process.clock,
        clock_speed=settings.clock_speed,
        version=build_version(),
        trace_ratio=settings.trace_ratio,
    )
    middlewares = [refuse_as_problem, refuse_unknown_query, suggest_nearest(asker)]
    process.app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=middlewares)
    process.app.add_routes(api.routes())


def main() -> int:
    """Run until SIGTERM and return the exit code."""
    return run("gateway", GatewaySettings, build, is_sched_batch=True)


if __name__ == "__main__":
    sys.exit(main())
