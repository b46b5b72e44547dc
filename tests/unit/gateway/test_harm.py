"""What the gateway says that online work felt."""

from __future__ import annotations

from msgspec.structs import replace

from colo_common.events.enforcement import EnforcementChanged
from colo_common.events.node import NodeUsageSampled
from colo_common.model.reasons import Reason
from colo_gateway.harm import Harm, Spell
from colo_gateway.harm_reply import HarmReply, harm_reply
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


def reply(harm: Harm, now_s: int = 100, node: str = "") -> HarmReply:
    return harm_reply(harm, node=node, limit=10, now_ms=now_s * 1_000, speed=1.0)


def test_harm_is_the_share_of_measured_time_above_the_bound_and_a_spell_tells_what_batch_did() -> None:
    harm = Harm()
    # Exactly 5 % is not above the bound; the second sample twice counts once.
    for sample in (felt(1, 50_000), felt(2, 50_001), felt(2, 50_001), felt(3, 200_000), felt(4, 0), felt(5, None)):
        harm.sampled(sample)
        if sample.sample_seq == 3:
            harm.shrunk(shrunk(1_080, 8_000, 2_000))
            harm.shrunk(shrunk(2_500, 2_000, 1_000))
            harm.shrunk(shrunk(2_900, 1_000, 3_000))
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
    harm.shrunk(shrunk(1_900, 8_000, 2_000))
    harm.sampled(felt(3, 90_000))
    assert reply(harm).spells[0].shrunk_in_ms == -100
    other = Harm()
    other.sampled(felt(1, 90_000))
    assert reply(other).spells[0].sentence.endswith("; batch work was not shrunk")


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
