"""The policy document between gateways: one row with compare-and-set, a history, one message that the bus keeps."""

from __future__ import annotations

import asyncio

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Conflict, RequestReceived, StreamLost
from colo_common.events.policy import ApplyPolicy, GetPolicy, PolicyChanged, PolicyReply, RollbackPolicy
from colo_common.events.requests import Refusal
from colo_common.model.colocation_policy import ColocationPolicy, PolicyValues
from colo_gateway.policy.core import ROW_ID, ROW_KIND, PolicyCore, ReadPolicy
from colo_gateway.policy.shell import read_policy
from colo_overcommit.followed_policy import FollowedPolicy
from colo_overcommit.policy import OvercommitPolicy
from tests.support.row_gateways import RowGateway


class Gateway(RowGateway[PolicyCore, PolicyChanged, PolicyReply]):
    """One gateway's core of the policy on a store that others share."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(PolicyCore(), store, fact=PolicyChanged, reply=PolicyReply, reads=ReadPolicy)

    def load(self) -> None:
        self.tell(asyncio.run(read_policy(self.store)))


def pct(value: int, **more: object) -> ApplyPolicy:
    policy = ColocationPolicy(defaults=PolicyValues(cpu_reclaim_pct=value))
    return ApplyPolicy(policy=policy, by="ana", **more)  # type: ignore[arg-type]


def in_force(reply: PolicyReply | Refusal) -> tuple[int, int | None, bool]:
    assert isinstance(reply, PolicyReply), reply
    return reply.current.revision, reply.current.policy.defaults.cpu_reclaim_pct, reply.changed


def test_a_policy_is_applied_once_and_rolled_back_as_a_new_revision() -> None:
    gateway = Gateway(MemoryStore())
    assert in_force(gateway.ask(GetPolicy())) == (0, None, False)
    assert in_force(gateway.ask(pct(70))) == (1, 70, True)
    assert in_force(gateway.ask(pct(70))) == (1, 70, False)
    assert in_force(gateway.ask(pct(60))) == (2, 60, True)
    assert in_force(gateway.ask(RollbackPolicy())) == (3, 70, True)
    assert in_force(gateway.ask(RollbackPolicy(revision=0))) == (4, None, True)
    assert [(fact.revision, fact.rolled_back_to) for fact in gateway.sent] == [(1, 0), (2, 0), (3, 1), (4, 0)]
    # A gateway that starts later knows all of it.
    later = Gateway(gateway.store).ask(GetPolicy())
    assert isinstance(later, PolicyReply)
    assert [each.revision for each in later.history] == [4, 3, 2, 1]


def test_what_was_made_from_another_revision_is_refused() -> None:
    gateway = Gateway(MemoryStore())
    gateway.ask(pct(70))
    assert in_force(gateway.ask(pct(60, expected=1))) == (2, 60, True)
    refused = gateway.ask(pct(50, expected=1))
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.field) == (409, "expected")
    assert "revision 2 is, by ana" in refused.rule
    unknown = gateway.ask(RollbackPolicy(revision=9))
    assert isinstance(unknown, Refusal)
    assert (unknown.code, unknown.rule) == (400, "is not kept; kept are 0, 1, 2")
    nonsense = gateway.ask(pct(101))
    assert isinstance(nonsense, Refusal)
    assert (nonsense.code, nonsense.field) == (400, "defaults.cpu_reclaim_pct")


def test_a_change_that_meets_another_one_is_decided_again_on_top_of_it() -> None:
    store = MemoryStore()
    one, two = Gateway(store), Gateway(store)
    one.ask(pct(70))
    # The second gateway has not received the first one's change yet.
    assert in_force(two.ask(pct(60))) == (2, 60, True)
    one.tell(two.sent[-1])
    assert in_force(one.ask(GetPolicy())) == (2, 60, False)
    # The bus keeps what came last: an older message behind the newest is put right.
    two.tell(two.sent[-1])
    two.tell(one.sent[0])
    assert [fact.revision for fact in two.sent] == [2, 2]


def test_a_document_that_the_store_may_refuse_is_not_published_behind_an_older_one() -> None:
    store = MemoryStore()
    one, two = Gateway(store), Gateway(store)
    one.ask(pct(70))
    # The second gateway has two changes under way to the store, which has the first one's row by now and will refuse them.
    for value in (60, 50):
        assert two.core.handle(RequestReceived(request="r", body=pct(value)), 1)
    assert two.core.row.current.revision == 2
    two.tell(one.sent[0])
    assert two.sent == []
    # Both are decided again on top of it, and every revision that a reader gets is of one document.
    for expected in (0, 1):
        two.core.handle(Conflict(kind=ROW_KIND, id=ROW_ID, expected=expected, found=1), 1)
    two.load()
    assert [(fact.revision, fact.policy.defaults.cpu_reclaim_pct) for fact in two.sent] == [(2, 60), (3, 50)]
    assert in_force(two.ask(GetPolicy())) == (3, 50, False)


def test_a_store_that_lost_the_document_gets_it_back_from_the_bus() -> None:
    before = Gateway(MemoryStore())
    before.ask(pct(70))
    empty = MemoryStore()
    after = Gateway(empty)
    after.tell(before.sent[0])
    assert in_force(after.ask(GetPolicy())) == (1, 70, False)
    assert in_force(Gateway(empty).ask(GetPolicy())) == (1, 70, False)


def test_who_follows_the_document_of_an_installation_that_is_gone_follows_the_first_one_of_the_new() -> None:
    followed = FollowedPolicy(OvercommitPolicy())
    assert followed.take(PolicyChanged(revision=57, policy=ColocationPolicy()))
    gateway = Gateway(MemoryStore())
    gateway.now_ms = 1_000
    gateway.ask(pct(70))
    assert followed.take(gateway.sent[-1])
    # The one before is taken back by default, whatever its number was.
    gateway.now_ms = 2_000
    gateway.ask(pct(60))
    assert in_force(gateway.ask(RollbackPolicy())) == (2_001, 70, True)
    assert [(fact.revision, fact.rolled_back_to) for fact in gateway.sent] == [(1_000, 0), (2_000, 0), (2_001, 1_000)]


def test_a_bus_that_lost_the_document_gets_the_stored_one_again() -> None:
    gateway = Gateway(MemoryStore())
    gateway.tell(StreamLost(stream="COLO_POLICY"))
    assert gateway.sent == []
    gateway.ask(pct(70))
    gateway.tell(gateway.sent[0])
    gateway.tell(StreamLost(stream="COLO_POLICY"))
    assert [(fact.revision, fact.policy.defaults.cpu_reclaim_pct) for fact in gateway.sent] == [(1, 70), (1, 70)]
