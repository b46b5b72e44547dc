"""The table of restrictions between gateways: one row with compare-and-set, one message that the bus keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import permutations

import msgspec
import pytest
from msgspec import structs

from colo_common.adapters.store_memory import MemoryStore
from colo_common.events.effects import Conflict, Reply, RequestReceived, StreamLost, Wake, Write
from colo_common.events.node import FreshnessChanged
from colo_common.events.requests import Refusal
from colo_common.events.restriction import (
    LiftRestrictions,
    ListRestrictions,
    RestrictionList,
    RestrictionsApplied,
    RestrictionsChanged,
    SetRestriction,
)
from colo_common.events.wire import encode, encode_reply
from colo_common.model.freshness import Freshness
from colo_common.model.restriction import (
    RESTRICTIONS_MOST,
    Restriction,
    RestrictionKind,
    Restrictions,
    RestrictionScope,
)
from colo_gateway.restrictions.core import ROW_ID, ROW_KIND, LoadRestrictions, RestrictionCore, RestrictionRow
from colo_gateway.restrictions.shell import read_restrictions
from tests.support.builders import a_node
from tests.support.row_gateways import RowGateway

NODES = ("n1", "n2", "n3")
QUIESCE = Restriction(kind=RestrictionKind.QUIESCE, scope=RestrictionScope.FLEET, by="ana")


class Gateway(RowGateway[RestrictionCore, RestrictionsChanged, RestrictionList]):
    """One gateway's core of the restrictions on a store that others share; it knows these nodes."""

    def __init__(self, store: MemoryStore, nodes: Sequence[str] = NODES) -> None:
        known = [a_node(name) for name in nodes]
        super().__init__(
            RestrictionCore(),
            store,
            fact=RestrictionsChanged,
            reply=RestrictionList,
            reads=LoadRestrictions,
            known=known,
        )

    def load(self) -> None:
        self.tell(asyncio.run(read_restrictions(self.store)))


def a_cordon(node: str, by: str = "ana", for_ms: int | None = None) -> SetRestriction:
    restriction = Restriction(kind=RestrictionKind.CORDON, scope=RestrictionScope.NODE, target=node, by=by)
    return SetRestriction(restriction=restriction, for_ms=for_ms)


def lift_of(kind: RestrictionKind, node: str = "") -> LiftRestrictions:
    scope = RestrictionScope.NODE if node else RestrictionScope.FLEET
    return LiftRestrictions(kinds=(kind,), scope=scope, target=node)


def targets(reply: RestrictionList | Refusal) -> list[str]:
    assert isinstance(reply, RestrictionList), reply
    return [each.target for each in reply.restrictions]


def test_a_change_that_meets_another_one_is_decided_again_on_top_of_it() -> None:
    store = MemoryStore()
    one, two = Gateway(store), Gateway(store)
    assert targets(one.ask(a_cordon("n1"))) == ["n1"]
    # The second gateway has not received the first one's change yet.
    second = two.ask(a_cordon("n2", by="bo"))
    assert targets(second) == ["n1", "n2"]
    assert isinstance(second, RestrictionList)
    assert [change.restriction.target for change in second.changes] == ["n2"]
    assert [fact.revision for fact in (*one.sent, *two.sent)] == [1, 2]
    # The first one learns it from the bus, and nothing of either is lost after a restart.
    one.tell(two.sent[-1])
    assert targets(one.ask(ListRestrictions())) == ["n1", "n2"]
    assert targets(Gateway(store).ask(ListRestrictions())) == ["n1", "n2"]


def test_the_same_again_changes_nothing() -> None:
    gateway = Gateway(MemoryStore())
    gateway.ask(a_cordon("n1"))
    gateway.now_ms = 5_000
    again = gateway.ask(a_cordon("n1"))
    assert isinstance(again, RestrictionList)
    assert (again.revision, again.changes, again.restrictions[0].since_ms) == (1, (), 1)
    assert gateway.ask(lift_of(RestrictionKind.CORDON, "n2")).changes == ()  # type: ignore[union-attr]
    assert len(gateway.sent) == 1


def test_an_older_table_on_the_bus_is_replaced_by_the_newest() -> None:
    store = MemoryStore()
    one, two = Gateway(store), Gateway(store)
    one.ask(a_cordon("n1"))
    two.ask(a_cordon("n2"))
    older = one.sent[0]
    two.tell(two.sent[-1])
    # It was published behind the newer one, so a service that starts now would get it.
    two.tell(older)
    assert [fact.revision for fact in two.sent] == [2, 2]


def test_a_table_that_the_store_may_refuse_is_not_published_behind_an_older_one() -> None:
    store = MemoryStore()
    one, two = Gateway(store), Gateway(store)
    one.ask(a_cordon("n1"))
    # The second gateway has two changes under way to the store, which has the first one's row by now and will refuse them.
    for node in ("n2", "n3"):
        assert two.core.handle(RequestReceived(request="r", body=a_cordon(node)), 1)
    assert two.core.row.revision == 2
    two.tell(one.sent[0])
    assert two.sent == []
    # Both are decided again on top of it, and every revision that a reader gets is of one table.
    for expected in (0, 1):
        two.core.handle(Conflict(kind=ROW_KIND, id=ROW_ID, expected=expected, found=1), 1)
    two.load()
    assert [(fact.revision, len(fact.restrictions)) for fact in two.sent] == [(2, 2), (3, 3)]
    assert targets(two.ask(ListRestrictions())) == ["n1", "n2", "n3"]


def test_after_any_order_of_arrival_the_last_table_on_the_bus_is_the_newest() -> None:
    for order in permutations(range(4)):
        store = MemoryStore()
        gateways = [Gateway(store), Gateway(store)]
        for number, node in enumerate(("n1", "n2", "n3")):
            gateways[number % 2].ask(a_cordon(node))
        gateways[0].ask(lift_of(RestrictionKind.CORDON, "n1"))
        by_revision = {fact.revision: fact for gateway in gateways for fact in gateway.sent}
        assert sorted(by_revision) == [1, 2, 3, 4]
        bus = [by_revision[number + 1] for number in order]
        reader = Restrictions()
        for position in range(100):
            if position == len(bus):
                break
            shown = reader.revision
            reader.take(bus[position].revision, bus[position].restrictions, 1_000)
            assert reader.revision >= shown
            for gateway in gateways:
                gateway.sent.clear()
                gateway.tell(structs.replace(bus[position], boot_id="b", seq=position))
                bus += [fact for fact in gateway.sent if fact not in bus[position:]]
        assert bus[-1].revision == reader.revision == 4
        assert [each.target for each in reader] == [each.target for each in bus[-1].restrictions] == ["n2", "n3"]


def test_a_store_that_lost_the_table_gets_it_back_from_the_bus() -> None:
    before = Gateway(MemoryStore())
    before.ask(a_cordon("n1"))
    before.ask(a_cordon("n2"))
    after = Gateway(MemoryStore())
    after.tell(before.sent[-1])
    assert targets(after.ask(ListRestrictions())) == ["n1", "n2"]
    assert targets(Gateway(after.store).ask(a_cordon("n3"))) == ["n1", "n2", "n3"]


@pytest.mark.parametrize("asked", [SetRestriction(restriction=QUIESCE), lift_of(RestrictionKind.QUIESCE)])
@pytest.mark.parametrize("kept", [(), (QUIESCE,)], ids=["nothing", "quiesced"])
def test_a_node_that_has_the_table_of_an_installation_that_is_gone_follows_the_new_one(
    kept: tuple[Restriction, ...], asked: SetRestriction | LiftRestrictions
) -> None:
    node = Restrictions()
    node.take(57, kept, 0)
    gateway = Gateway(MemoryStore())
    gateway.now_ms = 1_000
    gateway.ask(asked)
    (table,) = gateway.sent
    assert node.take(table.revision, table.restrictions, 1_000)
    assert (node.quiesce is not None) == isinstance(asked, SetRestriction)
    # The clock of a gateway that was set back does not bring the numbers down.
    gateway.now_ms = 500
    gateway.ask(a_cordon("n1"))
    assert gateway.sent[-1].revision == table.revision + 1


def test_a_restriction_with_an_end_is_over_by_itself_and_leaves_a_line() -> None:
    gateway = Gateway(MemoryStore())
    gateway.ask(a_cordon("n1", for_ms=500))
    assert gateway.core.deadline_ms() == 501
    gateway.now_ms = 501
    gateway.tell(Wake())
    listed = gateway.ask(ListRestrictions())
    assert isinstance(listed, RestrictionList)
    assert [(line.action, line.restriction.target) for line in listed.audit] == [("expired", "n1"), ("set", "n1")]
    assert gateway.sent[-1].restrictions == ()
    assert gateway.core.deadline_ms() is None


def test_there_is_a_limit() -> None:
    names = [f"n{number}" for number in range(RESTRICTIONS_MOST + 1)]
    row = RestrictionRow(revision=1, restrictions=tuple(a_cordon(name).restriction for name in names[:-1]))
    store = MemoryStore()
    asyncio.run(store.write([Write(kind=ROW_KIND, id=ROW_ID, value=msgspec.json.encode(row), expect=0)]))
    gateway = Gateway(store, names)
    refused = gateway.ask(a_cordon(names[-1]))
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.field) == (429, "restrictions")
    # Those in force can be changed all the same.
    assert isinstance(gateway.ask(a_cordon(names[0], by="bo")), RestrictionList)


def test_a_table_never_becomes_too_long_for_a_message() -> None:
    names = [f"n{number}" for number in range(900)]
    long = tuple(structs.replace(a_cordon(name).restriction, reason="\u4e2d" * 200) for name in names)
    row = RestrictionRow(revision=1, restrictions=long[:600])
    store = MemoryStore()
    asyncio.run(store.write([Write(kind=ROW_KIND, id=ROW_ID, value=msgspec.json.encode(row), expect=0)]))
    gateway = Gateway(store, names)
    taken = 600
    while not isinstance(answer := gateway.ask(SetRestriction(restriction=long[taken])), Refusal):
        taken += 1
    assert (answer.code, answer.field) == (429, "restrictions")
    assert "at most 512 KiB together" in answer.rule
    assert taken > 600
    assert len(encode(gateway.sent[-1])) < 1 << 20
    listed = gateway.ask(ListRestrictions())
    assert len(encode_reply(listed)) < 1 << 20
    # One in force may be made shorter.
    assert isinstance(gateway.ask(a_cordon(names[0], by="bo")), RestrictionList)


def test_a_quiesce_counts_who_has_followed_it() -> None:
    gateway = Gateway(MemoryStore())
    answer = gateway.ask(SetRestriction(restriction=QUIESCE))
    assert isinstance(answer, RestrictionList)
    assert answer.quiesce is not None
    assert (answer.quiesce.nodes, answer.quiesce.confirmed, answer.quiesce.missing) == (3, 0, NODES)
    gateway.tell(RestrictionsChanged(revision=1, restrictions=(QUIESCE,), sent_us=10_000))
    for name, sent_us in (("n1", 15_000), ("n2", 52_000)):
        gateway.tell(RestrictionsApplied(node=name, revision=1, suspended=2, sent_us=sent_us))
    listed = gateway.ask(ListRestrictions())
    assert isinstance(listed, RestrictionList)
    assert listed.quiesce is not None
    assert (listed.quiesce.confirmed, listed.quiesce.suspended, listed.quiesce.slowest_ms) == (2, 4, 42)
    assert listed.quiesce.missing == ("n3",)
    # A gateway that starts again learns the confirmations from the bus, which keeps the last one of each node.
    again = Gateway(gateway.store)
    for name in NODES:
        again.tell(RestrictionsApplied(node=name, revision=1 if name != "n3" else 0, suspended=2))
    listed = again.ask(ListRestrictions())
    assert isinstance(listed, RestrictionList)
    assert listed.quiesce is not None
    assert (listed.quiesce.confirmed, listed.quiesce.missing) == (2, ("n3",))


@pytest.mark.parametrize("node", ["n4", "n"])
def test_an_unknown_node_is_refused_with_the_nearest_name(node: str) -> None:
    refused = Gateway(MemoryStore()).ask(a_cordon(node))
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.field) == (404, "node")
    assert "did you mean n" in refused.rule


def test_nothing_is_known_before_the_row_is_read() -> None:
    core = RestrictionCore()
    (reply,) = core.handle(RequestReceived(request="r", body=ListRestrictions()), 0)
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, Refusal)
    assert reply.body.code == 503


def test_who_is_asked_to_follow_a_quiesce_is_said_by_the_newest_holder_of_the_node() -> None:
    gateway = Gateway(MemoryStore())

    def freshness_published(freshness: Freshness, fence: int) -> FreshnessChanged:
        previous = Freshness.LOST if freshness is Freshness.FRESH else Freshness.FRESH
        return FreshnessChanged(
            node="n1", freshness=freshness, previous=previous, sample_seq=1, age_ms=0, fence=fence, boot_id="x", at_ms=1
        )

    gateway.ask(SetRestriction(restriction=QUIESCE))
    asked = []
    for published in (
        freshness_published(Freshness.FRESH, 7),
        freshness_published(Freshness.LOST, 6),
        freshness_published(Freshness.LOST, 7),
        freshness_published(Freshness.FRESH, 6),
        freshness_published(Freshness.FRESH, 8),
    ):
        gateway.tell(published)
        listed = gateway.ask(ListRestrictions())
        assert isinstance(listed, RestrictionList)
        assert listed.quiesce is not None
        asked.append("n1" in listed.quiesce.missing)
    assert asked == [True, True, False, False, True]


def test_a_bus_that_lost_the_table_gets_the_stored_one_again() -> None:
    gateway = Gateway(MemoryStore())
    gateway.tell(StreamLost(stream="COLO_POLICY"))
    assert gateway.sent == []
    gateway.ask(a_cordon("n1"))
    gateway.tell(gateway.sent[0])
    gateway.tell(StreamLost(stream="COLO_NODE"))
    assert len(gateway.sent) == 1
    gateway.tell(StreamLost(stream="COLO_POLICY"))
    assert [(fact.revision, len(fact.restrictions)) for fact in gateway.sent] == [(1, 1), (1, 1)]
