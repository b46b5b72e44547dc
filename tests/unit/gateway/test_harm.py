"""What the gateway says that online work felt."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from colo_common.events.enforcement import EnforcementChanged, ZoneCeiling
from colo_common.events.node import NodeUsageSampled
from colo_common.model.reasons import Reason
from colo_gateway.core import GatewayCore
from colo_gateway.harm import Harm, Spell, ZoneFall
from colo_gateway.harm_reply import HarmReply, HarmSpell, harm_reply
from tests.support.builders import a_sample


def felt(seq: int, stall_us: int | None, *, node: str = "n1", boot: str = "b1") -> NodeUsageSampled:
    """The sample of the second that ends at `seq` seconds."""
    return replace(a_sample(node, seq=seq, at_ms=seq * 1_000, boot_id=boot), online_stall_us=stall_us)


def shrunk(at_ms: int, before: int, after: int, node: str = "n1") -> EnforcementChanged:
    return EnforcementChanged(
        at_ms=at_ms,
        node=node,
        reason=Reason.ONLINE_LOAD,
        ceiling_mcpu=after,
        ceiling_before_mcpu=before,
        online_cpu_used_mcpu=0,
        target_mcpu=after,
    )


def of_zones(at_ms: int, *ceilings_mcpu: int, node_mcpu: int = 4_000, before_mcpu: int = 4_000) -> EnforcementChanged:
    """The fact by which each zone of four CPUs has the ceiling; one that has all of them is not named."""
    zones = tuple(
        ZoneCeiling(zone=zone, ceiling_mcpu=ceiling_mcpu, capacity_mcpu=4_000)
        for zone, ceiling_mcpu in enumerate(ceilings_mcpu)
        if ceiling_mcpu
    )
    return replace(shrunk(at_ms, before_mcpu, node_mcpu), zones=zones, zone=zones[0].zone)


def spell_of(*facts: EnforcementChanged) -> HarmSpell:
    """The spell of the second that ends at two seconds, with these facts in it."""
    core = GatewayCore(event_log_size=100, trace_size=10)
    core.handle(felt(2, 90_000), 2_000)
    for fact in facts:
        core.handle(fact, 2_000)
    (spell,) = reply(core.harm).spells
    return spell


def reply(harm: Harm, now_s: int = 100, node: str = "") -> HarmReply:
    return harm_reply(harm, node=node, limit=10, now_ms=now_s * 1_000, speed=1.0)


def test_harm_is_the_share_of_measured_time_above_the_bound_and_a_spell_tells_what_batch_did() -> None:
    harm = Harm()
    # Exactly 5 % is not above the bound; the second sample twice counts once.
    for sample in (felt(1, 50_000), felt(2, 50_001), felt(2, 50_001), felt(3, 200_000), felt(4, 0), felt(5, None)):
        harm.sampled(sample)
        if sample.sample_seq == 3:
            harm.shrunk(shrunk(1_080, 8_000, 2_000), None)
            harm.shrunk(shrunk(2_500, 2_000, 1_000), None)
            harm.shrunk(shrunk(2_900, 1_000, 3_000), None)
    for seq in range(1, 6):
        harm.sampled(felt(seq, 0, node="n2"))
    answer = reply(harm)
    # Two of nine measured seconds, rounded up.
    assert (answer.fleet.harm_ratio, answer.fleet.harmed_ms, answer.fleet.unmeasured_ms) == (0.222223, 2_000, 1_000)
    assert answer.fleet.unmeasured_sentence.startswith("1.0s of node time on 1 of ")
    assert answer.fleet.known_since_ms is not None
    assert answer.fleet.sentence == (
        "22.222% of machine time in the last 10m00s, on 1 of 2 nodes; worst n1 (50.00%), for at most 2.0s at a time"
    )
    assert [(each.node, each.harm_ratio, each.longest_ms) for each in answer.nodes] == [
        ("n1", 0.5, 2_000),
        ("n2", 0.0, 0),
    ]
    (spell,) = answer.spells
    assert (spell.from_ms, spell.to_ms, spell.worst_stall_pct, spell.shrunk_in_ms) == (1_000, 3_000, 20, 80)
    assert spell.sentence == (
        "n1: online work waited for up to 20% of the time, for 2.0s; batch work was shrunk from 8 to 1 CPU 80 ms after its begin"
    )
    assert reply(harm, node="n2").fleet.sentence == "none in the last 10m00s on 1 node"


def test_the_reflex_that_acted_before_the_sample_showed_it_belongs_to_the_spell() -> None:
    harm = Harm()
    harm.sampled(felt(1, 0))
    harm.shrunk(shrunk(1_900, 8_000, 2_000), None)
    harm.sampled(felt(3, 90_000))
    assert reply(harm).spells[0].shrunk_in_ms == -100
    other = Harm()
    other.sampled(felt(1, 90_000))
    assert reply(other).spells[0].sentence.endswith("; batch work was not shrunk")


@pytest.mark.parametrize(
    ("facts", "shrunk_in_ms", "batch"),
    [
        ([of_zones(1_500, 1_000)], 500, "shrunk in zone 0 from 4 to 1 CPU 500 ms after its begin"),
        ([of_zones(1_500, 0, 3_000)], 500, "shrunk in zone 1 from 4 to 3 CPU 500 ms after its begin"),
        (
            [of_zones(1_500, 1_000, before_mcpu=8_000, node_mcpu=5_000)],
            500,
            "shrunk from 8 to 5 CPU, in zone 0 from 4 to 1 CPU 500 ms after its begin",
        ),
        (
            [of_zones(1_500, 2_000), of_zones(1_700, 1_000, 3_000), shrunk(1_900, 4_000, 2_000)],
            500,
            "shrunk from 4 to 2 CPU, in zone 0 from 4 to 1 CPU, in zone 1 from 4 to 3 CPU 500 ms after its begin",
        ),
        (
            [of_zones(1_500, 1_000), of_zones(1_600, 2_000)],
            500,
            "shrunk in zone 0 from 4 to 1 CPU 500 ms after its begin",
        ),
        ([replace(of_zones(1_500, 1_000), observed=True)], None, "not shrunk"),
        ([of_zones(1_500, 4_000)], None, "not shrunk"),
    ],
    ids=["a zone", "another one", "with the node", "again and again", "and given back", "not written", "all of it"],
)
def test_batch_work_that_lost_cpus_of_a_zone_alone_was_shrunk_there(
    facts: list[EnforcementChanged], shrunk_in_ms: int | None, batch: str
) -> None:
    spell = spell_of(*facts)
    assert spell.shrunk_in_ms == shrunk_in_ms
    assert spell.sentence.endswith(f"; batch work was {batch}")


def test_a_zone_that_has_more_than_the_fact_before_said_was_not_shrunk() -> None:
    core = GatewayCore(event_log_size=100, trace_size=10)
    # The gateway was started again: it reads what happened before the first sample.
    core.handle(of_zones(500, 1_000), 1_000)
    core.handle(felt(2, 90_000), 2_000)
    core.handle(of_zones(1_600, 2_000), 2_000)
    assert reply(core.harm).spells[0].zones == ()
    core.handle(of_zones(1_800, 1_000), 2_000)
    assert reply(core.harm).spells[0].zones == (ZoneFall(zone=0, ceiling_before_mcpu=2_000, ceiling_mcpu=1_000),)


def test_ten_minutes_later_it_is_forgotten_and_without_samples_nothing_is_claimed() -> None:
    harm = Harm()
    assert reply(harm).fleet.sentence.startswith("not known: no sample")
    harm.sampled(felt(1, 900_000))
    assert reply(harm, now_s=500).fleet.harm_ratio == 1.0
    assert (reply(harm, now_s=700).fleet.harm_ratio, reply(harm, now_s=700).spells) == (None, ())
    # A restarted collector counts from 1 again.
    harm.sampled(felt(1, 0, boot="b2"))
    assert reply(harm, now_s=10).fleet.lived_ms == 2_000


def test_the_spells_are_gone_through_once_however_many_nodes_there_are() -> None:
    class Counted(Harm):
        walks = 0

        def spells(self, now_ms: int, node: str = "") -> list[Spell]:
            self.walks += 1
            return super().spells(now_ms, node)

    harm = Counted()
    for number in range(200):
        harm.sampled(felt(1, 900_000, node=f"n{number}"))
    assert [each.longest_ms for each in harm.of_nodes(2_000)] == [1_000] * 200
    assert [each.node for each in harm.of_nodes(2_000, "n7")] == ["n7"]
    assert harm.of_nodes(2_000, "n200") == []
    assert harm.walks == 3
