"""Rules of the executor that only observe: what they would do is decided, told and counted, and not done."""

import asyncio
from collections.abc import Collection
from typing import Literal

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from colo_common.events.enforcement import DriftCorrected, EnforcementChanged, KnobValue, ReplicaEnded
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.workload import RunSpec
from colo_executor.freeze import FreezePolicy
from colo_executor.local import Attempt, DiskOverused, Drift
from colo_executor.settings import ExecutorSettings
from tests.shell.test_executor_shell import Node, work
from tests.support.builders import a_placement
from tests.support.vloop import run_virtual


def test_a_freeze_that_is_only_observed_is_told_and_counted_and_the_ceiling_is_written() -> None:
    async def story() -> None:
        freeze = FreezePolicy(by="any", dwell_ms=1_000, least_ms=1_000, most_ms=3_000)
        node = Node(ExecutorSettings(period_ms=100, freeze=freeze, observe=("freeze",)))
        await node.start()
        await node.apply(work())
        node.online_mcpu = 14_000
        frozen = set()
        for _ in range(100):
            await asyncio.sleep(0.1)
            frozen.add(node.machine.is_batch_frozen)
        assert frozen == {False}
        facts = node.reported(EnforcementChanged)
        freezes = [fact for fact in facts if fact.ceiling_before_mcpu == fact.ceiling_mcpu]
        assert {fact.reason for fact in freezes} >= {Reason.BATCH_FROZEN, Reason.BATCH_THAWED_LIMIT}
        assert all(fact.observed for fact in freezes)
        assert not any(fact.observed for fact in facts if fact not in freezes)
        assert node.machine.batch_quota_mcpu == 200, "the floor is written"
        figures = node.metrics.registry.get_sample_value
        assert figures("colo_executor_freezes_total", {"outcome": "observed"}) == len(freezes)
        assert figures("colo_executor_freezes_total", {"outcome": "frozen"}) is None
        assert figures("colo_executor_batch_frozen_count") == figures("colo_executor_batch_frozen_seconds_total") == 0
        await node.leave()

    run_virtual(story())


@pytest.mark.parametrize("observe", [(), ("disk",)], ids=["nothing", "disk"])
def test_what_takes_too_much_of_the_disk_is_ended_or_by_a_rule_that_only_observes_named_once(
    observe: tuple[Literal["disk"], ...],
) -> None:
    async def story() -> None:
        node = Node(ExecutorSettings(period_ms=100, observe=observe))
        await node.start()
        await node.apply(replace(a_placement(), run=RunSpec(work_mcpu_ms=60_000_000)))
        looks = [(DiskOverused(replica="job/main/0", attempt=1, detail=f"take {taken}Gi"),) for taken in (3, 4, 5)]
        node.runtime.poll_overused = lambda: looks.pop(0) if looks else ()
        with capture_logs() as logs:
            await asyncio.sleep(5)
        named = [line for line in logs if line["event"] == "disk-end-observed"]
        counted = node.metrics.registry.get_sample_value
        if observe:
            assert [(line["replica"], line["detail"]) for line in named] == [("job/main/0", "take 3Gi")]
            assert counted("colo_executor_disk_ends_total", {"outcome": "observed"}) == 1
            assert not node.reported(ReplicaEnded)
        else:
            assert not named
            assert counted("colo_executor_disk_ends_total", {"outcome": "ended"}) == 1
            assert [fact.cause for fact in node.reported(ReplicaEnded)] == [EndCause.DISK]
        await node.leave()

    run_virtual(story())


def test_what_the_policy_of_others_groups_would_write_is_told_each_hour_and_until_it_is_over() -> None:
    async def story() -> None:
        node = Node(ExecutorSettings(period_ms=1_000, reconcile_ms=60_000))
        would = KnobValue(path="user.slice/cpu.weight", value="100", before="20")
        back = KnobValue(path="colo/cpu.idle", value="1", before="0")
        drifts = [Drift(withheld=(would,))] * 65 + [Drift(withheld=(would,), knobs=(back,)), None, None]

        async def reconcile(*, observes: bool, paused: Collection[Attempt]) -> Drift | None:
            return drifts.pop(0) if drifts else None

        node.runtime.reconcile = reconcile
        await node.start()
        await asyncio.sleep(70 * 60)
        found = [(fact.observed, fact.knobs) for fact in node.reported(DriftCorrected)]
        assert found == [(True, (would,)), (True, (would,)), (False, (back,)), (True, (would,)), (True, ())]
        drifted = {"outcome": "observed", "by": "unknown"}
        assert node.metrics.registry.get_sample_value("colo_executor_drifts_total", drifted) == 1
        await node.leave()

    run_virtual(story())
