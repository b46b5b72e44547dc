"""The interface between a service and the generic shell: the core, its subscriptions, and the performers of its own effects."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct, field

from colo_common.events.effects import Effect
from colo_common.events.fact import Fact
from colo_common.events.registry import STREAMS, event_of
from colo_common.events.subjects import encode_node
from colo_common.model.invalid import InvalidInput
from colo_common.ports import Source

__all__ = ["Core", "Subscription", "Loader", "ManyPerformer", "Performer", "parameter_tokens", "source_of"]

_PREFIX_TOKENS: Final = 2
# The consumers of a node that left for good go after this time, which is longer than its orders are kept (CMD: a day).
_NODE_CONSUMER_KEPT_S: Final = 3 * 86_400
_FactType = type[Fact]


class Core(Protocol):
    """The pure half of a service."""

    def handle(self, event: Any, now_ms: int) -> Sequence[Effect]:
        """Handle one event; returns its effects. Raises InvalidInput, with the state unchanged, for an event that breaks a rule.

        A core names the union of the events it receives, so that its `match` is checked; the shell brings it no others.
        """
        ...

    def deadline_ms(self) -> int | None:
        """When the core needs a Wake, in ms of its clock, or None. A past time (not after a Wake) means after this batch."""
        ...

    def check(self) -> None:
        """Raise InvariantBroken when the state breaks an invariant. The shell may call it after any event, and calls it repeatedly.

        A call takes a few milliseconds at most, whatever the size of the state: a small state is checked whole, of a large one each
        call checks the next part (`colo_common.model.audit`).
        """
        ...


#: Performs one effect of the service's own and returns its results as events for the core. A failure is an event too.
Performer = Callable[[Effect], Awaitable[Sequence[Struct]]]
#: Performs all own effects of one round, concurrently where safe, and returns their results as events, in order of the effects.
ManyPerformer = Callable[[Sequence[Effect]], Awaitable[Sequence[Struct]]]
#: Returns events for the core: at the start the state that it needs first, or at the end its last events.
Loader = Callable[[], Awaitable[Sequence[Struct]]]


class Subscription(Struct, frozen=True, kw_only=True):
    """One event type that a service receives.

    `parameters` narrow the subject (node="n1"). Telemetry is received live and may be lost. On a stream, a `durable` subscription
    continues where the service stopped, and starts with the stream's first message, or with `since_s` with what the stream stored
    in so many seconds; another one starts with new messages, with `replay` first gets the last message of each subject, and with
    `since_s` first what the stream stored in so many seconds, or the newest `since_most` messages where that is more.

    `may_wait_ms`, on the service's clock, is how long the inbox may hold a message back (at most a real second), behind all others,
    so that many messages are handled, stored and acknowledged together. A report then costs a fraction of what it costs alone.
    Types whose messages should stay in order relative to each other need the same value.

    `aged`: of what a replay brings the core gets each message that was stored before as Replayed, with its age.

    `undecoded`: the core gets what is said of a node as Undecoded, and decodes what it needs.
    """

    type: _FactType
    parameters: dict[str, str] = field(default_factory=dict)
    durable: bool = True
    replay: bool = False
    since_s: int = 0
    since_most: int = 0
    may_wait_ms: int = 0
    undecoded: bool = False
    aged: bool = False


def source_of(service: str, subscription: Subscription) -> Source:
    """The source of one subscription alone. A durable consumer is named colo-<service>[-<node>]-<subject words>.

    Raises InvalidInput for a parameter that the subject lacks.
    """
    row = event_of(subscription.type)
    unknown = set(subscription.parameters) - set(row.subject.parameters)
    if unknown:
        raise InvalidInput(
            "subscription.parameters",
            f"{row.subject.template} has only {list(row.subject.parameters)}",
            sorted(unknown),
        )
    subject = row.subject.wildcard(**subscription.parameters)
    may_wait_ms = subscription.may_wait_ms
    if row.stream is None:
        return Source(subject=subject, may_wait_ms=may_wait_ms)
    stream = row.stream.value
    if subscription.replay or not subscription.durable:
        return Source(
            subject=subject,
            stream=stream,
            last_per_subject=subscription.replay,
            since_s=subscription.since_s,
            since_most=subscription.since_most,
            may_wait_ms=may_wait_ms,
        )
    words = [token for token in row.subject.template.split(".")[_PREFIX_TOKENS:] if not token.startswith("{")]
    durable = "-".join(["colo", service, *parameter_tokens(subscription), *words])
    # Made again, a consumer finds everything that the stream still keeps: all that one has missed which was away for longer.
    forget_s = _NODE_CONSUMER_KEPT_S if "node" in subscription.parameters else STREAMS[row.stream].max_age_s
    return Source(
        subject=subject,
        stream=stream,
        durable=durable,
        since_s=subscription.since_s,
        may_wait_ms=may_wait_ms,
        forget_s=forget_s,
    )


def parameter_tokens(subscription: Subscription) -> list[str]:
    """The parameter values of a subscription as tokens of a consumer name, in order of the parameters' names."""
    return [encode_node(value) if name == "node" else value for name, value in sorted(subscription.parameters.items())]
