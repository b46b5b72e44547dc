"""What one of several schedulers says of the whole ledger, and what it hears of evictions that another one released."""

from colo_common.events.effects import Effect, Reply, RequestReceived
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.eviction import EvictionRequested
from colo_common.events.requests import HoldsReply, ListHolds, Refusal
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause
from colo_scheduler.cluster.signals import kind_of
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.memory import MemoryLedger
from colo_scheduler.ledger.port import (
    Hold,
    LedgerChanges,
    LedgerLoaded,
    LedgerRefused,
    LedgerRows,
    LoadLedgerRows,
    NodeCommit,
    RefreshLedger,
)
from colo_scheduler.shell import HEARS, HEARS_SHARED
from tests.support.builders import GIB, a_node, a_placement, an_eviction
from tests.support.scheduler_story import an_allocatable, now

ZONES = ((8_000, 32 * GIB), (8_000, 32 * GIB))
KIND = kind_of(PriorityBand.BATCH, QosClass.BE, 1_000, GIB)


class Shared:
    """One of two schedulers: the other one writes to the ledger behind its back."""

    def __init__(self, shards: int = 2) -> None:
        self.core = SchedulerCore(shards=shards)
        self.ledger = MemoryLedger()
        for name in ("n1", "n2"):
            self.core.handle(a_node(name), 0)
            self.core.handle(an_allocatable(name, ZONES), 0)
        self.core.handle(LedgerLoaded(), 0)

    def other_places(self, replica: str, node: str) -> None:
        (row,) = now(self.ledger.rows([node]))
        placement = a_placement(replica, node=node, mcpu=1_000, gib=1)
        reservation = Hold(placement=placement, generation=row.revision + 1)
        now(self.ledger.commit([NodeCommit(node=node, expect=row.revision, holds=(reservation,))]))

    def do(self, effects: list[Effect], now_ms: int = 1) -> list[Effect]:
        """Perform what is read of the ledger; what else was said."""
        reported: list[Effect] = []
        for effect in effects:
            match effect:
                case RefreshLedger():
                    changes = tuple(now(self.ledger.changes()).items())
                    reported += self.do(self.core.handle(LedgerChanges(changes=changes), now_ms))
                case LoadLedgerRows(nodes=nodes):
                    reported += self.do(self.core.handle(LedgerRows(rows=now(self.ledger.rows(nodes))), now_ms))
                case _:
                    reported.append(effect)
        self.core.check()
        return reported

    def penalties(self) -> list[int]:
        view = self.core.cluster.view(1)
        scores = view.signals.evictions.scores(KIND, view.count, 1)
        return [int(scores[view.rows[name]]) for name in ("n1", "n2")]


def asked(name: str = "q", **fields: int) -> RequestReceived:
    return RequestReceived(request=name, body=ListHolds(**fields))


def requested(replica: str, node: str) -> EvictionRequested:
    return an_eviction(replica, node=node)


def ended(replica: str, node: str) -> ReplicaEnded:
    return ReplicaEnded(node=node, replica=replica, job="j", attempt=1, cause=EndCause.EVICTED, exit_code=137)


def test_holds_are_answered_for_the_whole_ledger() -> None:
    shared = Shared()
    shared.other_places("j/t/0", "n1")
    shared.other_places("j/t/1", "n2")
    (reply,) = shared.do(shared.core.handle(asked(), 1))
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, HoldsReply)
    assert [(hold.node, hold.replica) for hold in reply.body.holds] == [("n1", "j/t/0"), ("n2", "j/t/1")]


def test_no_answer_is_given_before_every_changed_row_was_read() -> None:
    shared = Shared()
    shared.other_places("j/t/0", "n1")
    assert shared.core.handle(asked("a"), 1) == [RefreshLedger()]
    # Rows that somebody else asked for are no answer.
    assert shared.core.handle(LedgerRows(rows=now(shared.ledger.rows(["n2"]))), 1) == []
    changes = tuple(now(shared.ledger.changes()).items())
    assert shared.core.handle(LedgerChanges(changes=changes), 1) == [LoadLedgerRows(nodes=("n1",))]
    assert shared.core.handle(asked("b"), 1) == [RefreshLedger()]
    replies = shared.core.handle(LedgerRows(rows=now(shared.ledger.rows(["n1"]))), 1)
    assert [reply.request for reply in replies if isinstance(reply, Reply)] == ["a"]
    again = shared.core.handle(LedgerChanges(changes=changes), 1)
    assert [reply.request for reply in again if isinstance(reply, Reply)] == ["b"]


def test_further_pages_are_answered_at_once_and_so_is_a_scheduler_that_is_alone() -> None:
    shared, alone = Shared(), Shared(shards=0)
    for core, request_spec in ((shared.core, asked(offset=1)), (alone.core, asked())):
        (reply,) = core.handle(request_spec, 1)
        assert isinstance(reply, Reply)
        assert isinstance(reply.body, HoldsReply)


def test_a_ledger_that_refuses_to_be_read_is_said_to_who_asked() -> None:
    shared = Shared()
    shared.core.handle(asked(), 1)
    (reply,) = shared.core.handle(LedgerRefused(effect=RefreshLedger()), 1)
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, Refusal)
    assert reply.body.code == 503


def test_so_many_questions_wait_and_no_more() -> None:
    shared = Shared()
    for number in range(64):
        assert shared.core.handle(asked(f"q{number}"), 1) == [RefreshLedger()]
    (reply,) = shared.core.handle(asked("one more"), 1)
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, Refusal)


def test_an_eviction_of_what_another_scheduler_placed_counts_here_too() -> None:
    shared = Shared()
    shared.other_places("j/t/0", "n1")
    assert shared.do(shared.core.handle(requested("j/t/0", "n1"), 1)) == []
    assert shared.penalties() == [50, 100]


def test_an_eviction_counts_once_whatever_is_heard_of_it() -> None:
    shared = Shared()
    shared.other_places("j/t/0", "n1")
    shared.do([RefreshLedger()])
    for _ in range(2):
        assert shared.core.handle(requested("j/t/0", "n1"), 1) == []
    shared.core.handle(ended("j/t/0", "n1"), 1)
    assert shared.penalties() == [50, 100]
    # It is over: hearing of it again changes nothing.
    assert shared.core.handle(requested("j/t/0", "n1"), 1) == []
    assert shared.penalties() == [50, 100]


def test_what_was_gone_before_its_row_was_read_is_not_waited_for() -> None:
    shared = Shared()
    assert shared.do(shared.core.handle(requested("j/t/9", "n1"), 1)) == []
    assert shared.penalties() == [100, 100]
    assert shared.core._evictions._unknown == {}
    assert shared.core.handle(requested("j/t/9", "nowhere"), 1) == []


def test_only_schedulers_that_share_the_work_listen_to_requests_of_evictions() -> None:
    assert EvictionRequested in {subscription.type for subscription in HEARS_SHARED if not subscription.durable}
    assert EvictionRequested not in {subscription.type for subscription in HEARS}
