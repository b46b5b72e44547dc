"""What a service gives the generic shell: its core, what it hears, and how its own effects are done."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct, field

from colo_common.events.effects import Effect
from colo_common.events.fact import Fact
from colo_common.events.registry import event_of
from colo_common.events.subjects import encode_node
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Source

__all__ = ["Core", "Subscription", "Loader", "ManyPerformer", "Performer", "given_of", "source_of"]

_PREFIX_TOKENS: Final = 2
_FactType = type[Fact]


class Core(Protocol):
    """The pure half of a service."""

    def handle(self, event: Any, now_ms: int) -> Sequence[Effect]:
        """Take one event in and say what must be done. Raises InvalidInput, having changed nothing, for one that breaks a rule.

        A core names the union of the events it hears, so that its `match` is checked; the shell brings it no others.
        """
        ...

    def deadline_ms(self) -> int | None:
        """When the core wants a Wake. A time that has come is allowed after any event but Wake: wake me after this batch."""
        ...

    def check(self) -> None:
        """Raise InvariantBroken when the state breaks a promise. May be called after any event, and is called again and again.

        A call takes a few milliseconds at most, whatever the size of the state: a small state is checked whole, of a large one each
        call checks a part, all parts in turn (`colo_common.model.audit`).
        """
        ...


#: Does one effect of the service's own and returns what came of it, as events for the core. Failures are events too.
Performer = Callable[[Effect], Awaitable[Sequence[Struct]]]
#: Does all own effects of one round, in whatever order is safe and as many at once as is, and returns what came of each, in order.
ManyPerformer = Callable[[Sequence[Effect]], Awaitable[Sequence[Struct]]]
#: Reads what the core must know before anything else.
Loader = Callable[[], Awaitable[Sequence[Struct]]]


class Subscription(Struct, frozen=True, kw_only=True):
    """One event type that a service hears.

    `parameters` narrow the subject (node="n1"). Telemetry is heard live and may be lost. Of a stream's events a `durable`
    hearing goes on where the service stopped, from the first message at its first start; otherwise it begins now, and with
    `replay` it first gets the last message of each subject.

    `may_wait_ms`, of the service's clock: what nobody waits for lies in the inbox so long (at most a real second), behind
    everything else, so that many messages are handled, stored and answered at once. A report costs a fraction of what it does
    alone. What had better not overtake one another may wait equally long.
    """

    type: _FactType
    parameters: dict[str, str] = field(default_factory=dict)
    durable: bool = True
    replay: bool = False
    may_wait_ms: int = 0


def source_of(service: str, subscription: Subscription) -> Source:
    """Where one hearing's messages come from by themselves. A durable consumer is named colo-<service>[-<node>]-<subject words>.

    Raises InvalidInput for a parameter that the subject lacks.
    """
    row = event_of(subscription.type)
    unknown = set(subscription.parameters) - set(row.subject.parameters)
    if unknown:
        raise InvalidInput(
            "hearing.parameters", f"{row.subject.template} has only {list(row.subject.parameters)}", sorted(unknown)
        )
    subject = row.subject.wildcard(**subscription.parameters)
    may_wait_ms = subscription.may_wait_ms
    if row.stream is None:
        return Source(subject=subject, may_wait_ms=may_wait_ms)
    stream = row.stream.value
    if subscription.replay or not subscription.durable:
        return Source(subject=subject, stream=stream, last_per_subject=subscription.replay, may_wait_ms=may_wait_ms)
    words = [token for token in row.subject.template.split(".")[_PREFIX_TOKENS:] if not token.startswith("{")]
    durable = "-".join(["colo", service, *given_of(subscription), *words])
    return Source(subject=subject, stream=stream, durable=durable, may_wait_ms=may_wait_ms)


def given_of(subscription: Subscription) -> list[str]:
    """The parameters of a hearing as tokens of names, in order of the parameters' names."""
    return [encode_node(value) if name == "node" else value for name, value in sorted(subscription.parameters.items())]
