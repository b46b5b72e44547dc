"""Sends requests to the other services over the bus; an unreachable service becomes a Refusal with code 503."""

from msgspec import Struct, structs

from colo_common.events.registry import request_spec_of
from colo_common.events.requests import Refusal
from colo_common.ports import AnswerTooLarge, Bus, PoisonMessage, Refused, Unavailable
from colo_common.runtime.ask import NotNow, ask
from colo_gateway.whole import whole

__all__ = ["Asker"]


class Asker:
    """Sends requests with one timeout for all of them; a request may have a shorter one."""

    def __init__(self, bus: Bus, timeout_s: float) -> None:
        self._bus = bus
        self._timeout_s = timeout_s

    async def ask(self, body: Struct, traceparent: str = "", *, timeout_s: float | None = None) -> Struct:
        """The reply, or a Refusal: the service's own, 503 without an answer in time, 413 for one that is larger than
        the bus carries, 502 for a reply that does not decode. Where instances of jobs serve a part each, it is that of all.
        """

        async def part(question: Struct) -> Struct:
            return await self.ask_part(question, timeout_s=timeout_s)

        return await whole(part, body, await self.ask_part(body, traceparent, timeout_s=timeout_s))

    async def ask_part(self, body: Struct, traceparent: str = "", *, timeout_s: float | None = None) -> Struct:
        """The reply of the one partition that the request names, or a Refusal as by `ask`."""
        owner = request_spec_of(type(body)).owner
        try:
            return await ask(self._bus, body, timeout_s or self._timeout_s, traceparent=traceparent)
        except NotNow as error:
            # The service names itself "service"; whoever asks through the gateway is told which one.
            return structs.replace(error.refusal, field=owner)
        except Unavailable:
            return Refusal(code=503, field=owner, rule="does not answer now")
        except AnswerTooLarge as error:
            return Refusal(code=413, field="limit", rule=str(error).partition(": ")[2])
        except PoisonMessage as error:
            return Refusal(code=413, field="body", rule=f"is larger than NATS carries ({error})")
        except Refused as error:
            return Refusal(code=502, field=owner, rule="gave an answer that makes no sense", got=str(error))
