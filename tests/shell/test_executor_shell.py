"""The executor as a service in virtual time over a simulated machine: orders in, facts out, and a reflex that nothing stops."""

import asyncio
from collections.abc import Collection
from functools import partial
from itertools import pairwise

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from colo_common.events.effects import Publish
from colo_common.events.enforcement import (
    DriftCorrected,
    EnforcementChanged,
    KnobValue,
    LikelyWriter,
    NodeRecovered,
    OwnCpusOpened,
    ReplicaEnded,
    ReplicaStarted,
    ZoneCeiling,
)
from colo_common.events.fact import Fact
from colo_common.events.job import ReplicaStop, StopReplicas
from colo_common.events.node import LeaseRenewed
from colo_common.events.placement import ApplyPlacements
from colo_common.events.restriction import RestrictionsChanged
from colo_common.events.wire import decode
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import Placement
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.restriction import Restriction, RestrictionKind, RestrictionScope
from colo_common.model.workload import RunSpec
from colo_common.runtime.metrics import Metrics
from colo_common.runtime.stamp import Stamp
from colo_executor.cgroup import CgroupError
from colo_executor.freeze import FreezePolicy
from colo_executor.local import (
    Attempt,
    CeilingRefused,
    CeilingWritten,
    Drift,
    FastReading,
    ReplicaExited,
)
from colo_executor.main import executor_service
from colo_executor.not_restored import NotRestored
from colo_executor.open_cpus import OpenCpus
from colo_executor.settings import ExecutorSettings
from colo_executor.simulated import SimulatedRuntime
from colo_executor.stall import OnlineStalls
from colo_executor.zone_ceilings import ZoneReading
from colo_sim.demand import OnlineDemand
from colo_sim.machine import SimMachine
from colo_sim.machine_spec import MachineSpec
from tests.support.builders import a_latency, a_placement, a_sample, an_online_workload
from tests.support.bus_memory import MemoryBus
from tests.support.vloop import VirtualClock, run_virtual

NODE = "n1"
TRACE = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


class Node:
    """A simulated node of 16 CPUs, its executor, and whoever gives it orders."""

    def __init__(self, settings: ExecutorSettings | None = None) -> None:
        self.clock = VirtualClock()
        self.bus = MemoryBus(keep_sent=True)
        self.online_mcpu = 2_000
        self.settings = settings or ExecutorSettings(period_ms=100)
        self.machine = SimMachine(
            MachineSpec(sockets=1, zones_per_socket=2, cpus_per_zone=8, sub_step_ms=100),
            node=NODE,
            seed=1,
            demand=lambda t_ms: OnlineDemand(self.online_mcpu, 0),
            start_ms=self.clock.now_ms(),
        )
        self.runtime = SimulatedRuntime(self.machine, capacity_mcpu=16_000)
        self.spans: list[str] = []
        self.metrics = Metrics()
        self.stop = asyncio.Event()
        self._stamp = Stamp("test", "boot", self.clock)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self.stop = asyncio.Event()
        service, self.shell = executor_service(
            NODE,
            self.runtime,
            self.bus,
            self.clock,
            self.settings,
            metrics=self.metrics,
            span=lambda name, **_: self.spans.append(name) or "",
            seed=1,
        )
        self._tasks = [
            asyncio.create_task(service.run(self.stop)),
            asyncio.create_task(self.run_reflex()),
            asyncio.create_task(self.shell.run_teller(service.inject)),
            asyncio.create_task(self.shell.run_reconcile(service.inject)),
        ]
        await asyncio.sleep(0.5)

    async def run_reflex(self) -> None:
        """Turn every period in virtual time, where a thread of its own has no place."""
        while True:
            self.shell.turn()
            await asyncio.sleep(self.settings.period_ms / 1000)

    async def leave(self) -> None:
        """As after SIGTERM."""
        self.stop.set()
        await self._tasks[0]
        await self.crash()

    async def crash(self) -> None:
        """As after SIGKILL."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def order(self, fact: Fact) -> None:
        await self.bus.publish([self._stamp.outgoing(Publish(fact=replace(fact, at_ms=self.clock.now_ms())))])
        await asyncio.sleep(0.3)

    async def apply(self, *placements: Placement) -> None:
        await self.order(ApplyPlacements(node=NODE, generation=1, placements=placements))

    def reported(self, kind: type[Fact]) -> list[Fact]:
        facts = [decode(message.subject, message.data) for message in self.bus.sent]
        return [fact for fact in facts if isinstance(fact, kind)]


def work(replica: str = "job/main/0", *, cpu_s: int = 600, attempt: int = 1) -> Placement:
    placement = a_placement(replica, attempt=attempt, mcpu=4_000)
    return replace(placement, run=RunSpec(work_mcpu_ms=cpu_s * 1_000_000), traceparent=TRACE)


def test_an_order_starts_the_replica_and_its_end_is_told_with_the_cpu_it_used() -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        await node.apply(work(cpu_s=8))
        (started,) = node.reported(ReplicaStarted)
        assert (started.replica, started.attempt, started.node) == ("job/main/0", 1, NODE)
        assert node.spans == ["command", "apply"]
        await asyncio.sleep(5)
        (ended,) = node.reported(ReplicaEnded)
        assert (ended.cause, ended.exit_code, ended.cpu_used_ms) == (EndCause.EXITED, 0, 8_000)
        await node.leave()

    run_virtual(story())


def test_a_machine_that_cannot_be_adopted_ends_the_start_with_the_setting_that_is_named() -> None:
    async def story() -> None:
        node = Node()

        async def refused(now_ms: int) -> None:
            raise CgroupError("cpu/colo/batch: the kernel refused it")

        node.runtime.adopt = refused
        await node.start()
        with pytest.raises(InvalidInput, match="^process_cgroup_root: cpu/colo/batch: the kernel refused it"):
            await node.leave()
        await node.crash()

    run_virtual(story())


def test_what_somebody_else_changed_is_put_back_at_every_look_and_told() -> None:
    async def story() -> None:
        node = Node(ExecutorSettings(period_ms=100, reconcile_ms=2_000))
        knobs = tuple(
            KnobValue(path=path, value="1", before="0") for path in ("colo/cpu.idle", "shop.service/cpu.weight")
        )
        systemd = LikelyWriter(
            path=knobs[1].path, writer="systemd", evidence="CPUWeight of shop.service is 0, as was found"
        )
        drifts = [Drift(knobs=knobs, writers=(systemd,)), None, Drift(failed=("busy",))]
        looks: list[float] = []

        async def reconcile(*, observes: bool, paused: Collection[Attempt]) -> Drift | None:
            assert not observes
            looks.append(node.clock.now_ms())
            return drifts.pop(0) if drifts else None

        node.runtime.reconcile = reconcile
        await node.start()
        await asyncio.sleep(11)
        assert [fact.count for fact in node.reported(DriftCorrected)] == [2, 1, 0]
        assert [fact.failed for fact in node.reported(DriftCorrected)] == [(), ("busy",), ()]
        assert [fact.writers for fact in node.reported(DriftCorrected)] == [(systemd,), (), ()]
        counted = {
            (sample.labels["outcome"], sample.labels["by"]): sample.value
            for family in node.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "colo_executor_drifts_total"
        }
        assert counted == {("corrected", "unknown"): 1, ("corrected", "systemd"): 1, ("failed", "unknown"): 1}
        assert [later - earlier for earlier, later in pairwise(looks)] == [2_000] * (len(looks) - 1)
        await node.leave()
        delivered = len(looks)
        await asyncio.sleep(10)
        assert len(looks) == delivered

    run_virtual(story())


def test_a_journal_that_cannot_be_written_is_told_once_and_when_it_is_over() -> None:
    async def story() -> None:
        node = Node(ExecutorSettings(period_ms=100, reconcile_ms=1_000))
        full = "the journal cannot be written: No space left on device (/j)"
        is_full = True

        async def reconcile(*, observes: bool, paused: Collection[Attempt]) -> Drift | None:
            return Drift(journal=full) if is_full else None

        node.runtime.reconcile = reconcile
        with capture_logs() as logs:
            await node.start()
            await asyncio.sleep(5)
            (fact,) = node.reported(DriftCorrected)
            assert (fact.count, fact.knobs, fact.failed, fact.observed) == (1, (), (full,), False)
            is_full = False
            await asyncio.sleep(5)
        assert [(fact.count, fact.failed) for fact in node.reported(DriftCorrected)] == [(1, (full,)), (0, ())]
        # The journal itself has said it in the log, and no other program changed a file.
        assert not [line for line in logs if line["event"] == "drift"]
        await node.leave()

    run_virtual(story())


def test_the_reflex_goes_on_while_the_bus_is_away_and_the_news_follow_when_it_is_back() -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        await node.apply(work())
        assert node.machine.batch_quota_mcpu == 16_000 * 80 // 100 - 2_000
        delivered = len(node.reported(EnforcementChanged))
        node.bus.go_away()
        node.online_mcpu = 9_000
        await asyncio.sleep(0.5)
        assert node.machine.batch_quota_mcpu == 16_000 * 80 // 100 - 9_000, "shrunk without a word from outside"
        await asyncio.sleep(3)
        assert len(node.reported(EnforcementChanged)) == delivered
        node.bus.come_back()
        await asyncio.sleep(60)
        news = node.reported(EnforcementChanged)[delivered:]
        assert news[0].ceiling_mcpu == 16_000 * 80 // 100 - 9_000
        assert news[0].reason is Reason.ONLINE_LOAD
        await node.leave()

    run_virtual(story())


def test_unheard_of_for_long_batch_steps_down_to_the_floor_and_comes_back_with_the_lease() -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        await node.apply(work())
        await node.order(LeaseRenewed(node=NODE, sample_seq=1, batch_cpu_mcpu=0, lease_ms=10_000))
        before = node.machine.batch_quota_mcpu
        expired = partial(node.metrics.registry.get_sample_value, "colo_executor_lease_expired_count")
        await asyncio.sleep(9)
        assert (node.machine.batch_quota_mcpu, expired()) == (before, 0)
        with capture_logs() as lines:
            await asyncio.sleep(15)
            assert (node.machine.batch_quota_mcpu, expired()) == (200, 1)
        assert [line["event"] for line in lines if "lease" in line["event"]] == ["lease-expired"]
        await node.order(LeaseRenewed(node=NODE, sample_seq=2, batch_cpu_mcpu=0, lease_ms=60_000))
        await asyncio.sleep(8)
        assert (node.machine.batch_quota_mcpu, expired()) == (before, 0)
        reasons = [fact.reason for fact in node.reported(EnforcementChanged)]
        assert Reason.LEASE_EXPIRED in reasons
        assert Reason.LEASE_RENEWED in reasons
        await node.leave()

    run_virtual(story())


def test_a_sample_in_which_online_work_breaks_its_slo_shrinks_batch_work_until_it_keeps_it() -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        await node.apply(work())
        await node.order(LeaseRenewed(node=NODE, sample_seq=1, batch_cpu_mcpu=0, lease_ms=600_000))
        await asyncio.sleep(5)
        before = node.machine.batch_quota_mcpu
        web = an_online_workload(business=a_latency(20, 60))
        await node.order(a_sample(NODE, seq=1, workloads=(web,)))
        await asyncio.sleep(3)
        assert node.machine.batch_quota_mcpu < before
        (fell,) = [fact for fact in node.reported(EnforcementChanged) if fact.reason is Reason.ONLINE_SLO]
        assert (fell.slo_workload, fell.violation_pct) == ("web", 33)
        kept = an_online_workload(business=a_latency(0, 60, breaks_slo=False))
        await node.order(a_sample(NODE, seq=2, workloads=(kept,)))
        await asyncio.sleep(15)
        assert node.machine.batch_quota_mcpu == before
        assert Reason.ONLINE_SLO_KEPT in [fact.reason for fact in node.reported(EnforcementChanged)]
        await node.leave()

    run_virtual(story())


def test_a_stopped_replica_ends_as_stopped_and_a_repeated_order_does_not_start_it_again() -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        await node.apply(work())
        stop = ReplicaStop(replica="job/main/0", attempt=1, grace_ms=5_000, reason=Reason.CANCELLED)
        await node.order(StopReplicas(node=NODE, generation=2, stops=(stop,)))
        await asyncio.sleep(6)
        (ended,) = node.reported(ReplicaEnded)
        assert (ended.cause, ended.reason) == (EndCause.STOPPED, Reason.CANCELLED)
        await node.apply(work())
        assert len(node.machine.counters().replicas) == 0
        await node.leave()

    run_virtual(story())


def test_an_executor_that_crashed_adopts_what_runs_and_tells_what_ended_meanwhile() -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        await node.apply(work("job/main/0"), work("job/main/1", cpu_s=8))
        await node.crash()
        await asyncio.sleep(10)
        node.bus.sent.clear()
        await node.start()
        (recovered,) = node.reported(NodeRecovered)
        assert recovered.running == (("job/main/0", 1),)
        (ended,) = node.reported(ReplicaEnded)
        assert (ended.replica, ended.exit_code) == ("job/main/1", 0)
        await node.leave()

    run_virtual(story())


def test_leaving_puts_batch_work_to_the_floor_and_restore_ends_it() -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        await node.apply(work())
        await node.leave()
        assert node.machine.batch_quota_mcpu == 200
        assert len(node.machine.counters().replicas) == 1
        assert node.reported(EnforcementChanged)[-1].reason is Reason.SHUTDOWN_RESTORE
        node.settings = replace(node.settings, on_exit="restore")
        await node.start()
        await node.leave()
        assert node.machine.batch_quota_mcpu is None
        assert len(node.machine.counters().replicas) == 0
        assert len(node.reported(ReplicaEnded)) == 1

    run_virtual(story())


def test_a_machine_that_is_not_put_back_at_the_end_tells_what_ended_and_leaves_the_rest_at_the_floor() -> None:
    async def story() -> None:
        node = Node(ExecutorSettings(period_ms=100, on_exit="restore"))
        await node.start()
        await node.apply(work(), work("job/main/1"))

        async def refused() -> None:
            exited = ReplicaExited(replica="job/main/0", attempt=1, exit_code=None)
            raise NotRestored("batch/job.main.1@1 could not be removed", (exited,))

        node.runtime.restore = refused
        await node.leave()
        assert [ended.replica for ended in node.reported(ReplicaEnded)] == ["job/main/0"]
        assert node.machine.batch_quota_mcpu == 200
        assert node.shell.not_restored == (
            "batch/job.main.1@1 could not be removed; batch work that is left has the floor"
        )

    run_virtual(story())


def test_batch_work_at_the_floor_is_frozen_hears_its_end_and_is_left_frozen_by_no_crash_and_no_exit() -> None:
    async def story() -> None:
        freeze = FreezePolicy(by="any", dwell_ms=1_000, least_ms=1_000, most_ms=3_000)
        node = Node(ExecutorSettings(period_ms=100, freeze=freeze))
        await node.start()
        await node.apply(work())
        node.online_mcpu = 14_000
        await asyncio.sleep(3)
        assert node.machine.is_batch_frozen
        node.machine.advance(node.clock.now_ms())
        used_ns = node.machine.usage().batch_usage_ns
        await asyncio.sleep(0.5)
        assert node.machine.usage().batch_usage_ns == used_ns, "not even the floor"
        await node.crash()
        assert node.machine.is_batch_frozen
        await node.start()
        assert not node.machine.is_batch_frozen, "a new executor finds it frozen and lets it run"
        await asyncio.sleep(2)
        assert node.machine.is_batch_frozen
        stop = ReplicaStop(replica="job/main/0", attempt=1, grace_ms=60_000, reason=Reason.CANCELLED)
        await node.order(StopReplicas(node=NODE, generation=1, stops=(stop,)))
        assert not node.machine.is_batch_frozen
        await asyncio.sleep(5)
        assert node.reported(ReplicaEnded), "it heard its end"
        await node.apply(work("job/main/1"))
        await asyncio.sleep(3)
        node.machine.set_batch_frozen(is_frozen=not node.machine.is_batch_frozen)
        await asyncio.sleep(1.5)
        assert not node.machine.is_batch_frozen, "whoever flipped it, it runs"
        await asyncio.sleep(60)
        await node.leave()
        assert not node.machine.is_batch_frozen
        flips = [fact for fact in node.reported(EnforcementChanged) if fact.ceiling_before_mcpu == fact.ceiling_mcpu]
        assert [fact.frozen for fact in flips[:2]] == [True, True], "the crash told nobody"
        assert {fact.reason for fact in flips} >= {
            Reason.BATCH_FROZEN,
            Reason.BATCH_THAWED_STOP,
            Reason.BATCH_THAWED_LIMIT,
        }
        began = [fact.at_ms for fact in flips if fact.frozen]
        ended = [fact.at_ms for fact in flips if not fact.frozen]
        last_s = (ended[-1] - began[-1]) / 1_000
        figures = node.metrics.registry.get_sample_value
        assert figures("colo_executor_batch_frozen_seconds_total") >= len(ended) * last_s > 0
        frozen = figures("colo_executor_reflex_moves_total", {"reason": "batch-frozen"})
        assert frozen == figures("colo_executor_freezes_total", {"outcome": "frozen"}) == len(began)
        assert all(later - earlier >= 60_000 for earlier, later in zip(began[1:], began[4:], strict=False))

    run_virtual(story())


def test_a_rule_that_only_observes_says_what_it_would_do_and_writes_nothing() -> None:
    async def story() -> None:
        node = Node(ExecutorSettings(period_ms=100, observe=("ceiling",)))
        await node.start()
        await node.apply(work())
        node.online_mcpu = 9_000
        await asyncio.sleep(3)
        facts = node.reported(EnforcementChanged)
        assert [fact.ceiling_mcpu for fact in facts] == [16_000 * 80 // 100 - 2_000, 16_000 * 80 // 100 - 9_000]
        assert all(fact.observed for fact in facts)
        assert node.machine.batch_quota_mcpu is None
        await node.leave()
        assert node.machine.batch_quota_mcpu is None

    run_virtual(story())


@pytest.mark.parametrize("observe", [(), ("drift",)], ids=["nothing", "drift"])
def test_a_ceiling_that_somebody_lowered_grows_again_by_steps_and_one_that_he_raised_is_written_over(observe) -> None:
    async def story() -> None:
        node = Node(ExecutorSettings(period_ms=100, observe=observe))
        await node.start()
        await node.apply(work())
        full = 16_000 * 80 // 100 - 2_000
        node.machine.set_batch_quota_mcpu(200)
        await asyncio.sleep(1.5)
        assert node.machine.batch_quota_mcpu == 200, "as after a shrink, growth waits"
        await asyncio.sleep(12)
        assert node.machine.batch_quota_mcpu == full
        node.machine.set_batch_quota_mcpu(16_000)
        await asyncio.sleep(1.5)
        assert node.machine.batch_quota_mcpu == full
        node.machine.set_batch_quota_mcpu(None)
        await asyncio.sleep(1.5)
        assert node.machine.batch_quota_mcpu == full
        await node.leave()

    run_virtual(story())


def test_what_an_operator_changes_of_a_paused_job_is_named_once_and_put_back_when_the_pause_is_over() -> None:
    async def story() -> None:
        node = Node(ExecutorSettings(period_ms=100, reconcile_ms=1_000))
        changed = KnobValue(path="colo/batch/job.main.0@1/memory.max", value="max", before="1")
        looks: list[Collection[Attempt]] = []

        async def reconcile(*, observes: bool, paused: Collection[Attempt]) -> Drift | None:
            assert not observes
            looks.append(paused)
            return Drift(yielded=(changed,)) if paused else Drift(knobs=(changed,)) if len(looks) < 9 else None

        await node.start()
        await node.apply(replace(a_placement(), run=RunSpec(work_mcpu_ms=60_000_000)))
        job, other = "job", "other"
        pauses = tuple(
            Restriction(
                kind=RestrictionKind.PAUSE, scope=RestrictionScope.JOB, target=target, by="ops", reason="by hand", since_ms=0,
                until_ms=node.clock.now_ms() + 5_000,
            )
            for target in (job, other)
        )  # fmt: skip
        await node.order(RestrictionsChanged(revision=1, restrictions=pauses))
        node.runtime.reconcile = reconcile
        node.bus.sent.clear()
        await asyncio.sleep(4)
        assert {tuple(each) for each in looks} == {(("job/main/0", 1),)}
        assert [(fact.observed, fact.knobs) for fact in node.reported(DriftCorrected)] == [(True, (changed,))]
        await asyncio.sleep(2)
        assert not looks[-1]
        assert not node.reported(DriftCorrected)[-1].observed
        await node.leave()

    run_virtual(story())


def test_on_a_node_that_an_operator_paused_what_he_changes_is_named_once_and_stays() -> None:
    async def story() -> None:
        node = Node(ExecutorSettings(period_ms=100, reconcile_ms=1_000))
        changed = KnobValue(path="colo/cpu.idle", value="1", before="0")
        looks: list[bool] = []

        async def reconcile(*, observes: bool, paused: Collection[Attempt]) -> Drift | None:
            looks.append(observes)
            return Drift(knobs=(changed,), observed=observes)

        node.runtime.reconcile = reconcile
        pause = Restriction(
            kind=RestrictionKind.PAUSE, scope=RestrictionScope.NODE, target=NODE, by="ops", reason="by hand", since_ms=0,
            until_ms=node.clock.now_ms() + 5_000,
        )  # fmt: skip
        await node.start()
        await node.order(RestrictionsChanged(revision=1, restrictions=(pause,)))
        looks.clear()
        node.bus.sent.clear()
        await asyncio.sleep(4)
        assert set(looks) == {True}
        assert [fact.observed for fact in node.reported(DriftCorrected)] == [True]
        await asyncio.sleep(3)
        assert not looks[-1]
        assert not node.reported(DriftCorrected)[-1].observed
        await node.leave()

    run_virtual(story())


class OpenCpusRuntime(SimulatedRuntime):
    """A machine on whose own CPUs processes of others may run."""

    found = OpenCpus()

    @property
    def open_cpus(self) -> OpenCpus:
        return self.found


def test_own_cpus_that_others_may_use_are_counted_and_told_until_it_is_over() -> None:
    async def story() -> None:
        node = Node(ExecutorSettings(period_ms=100, reconcile_ms=2_000))
        node.runtime = OpenCpusRuntime(node.machine, capacity_mcpu=16_000)
        await node.start()
        node.runtime.found = OpenCpus(cpus=CpuSet.parse("2-3"), groups=("user.slice",))
        await asyncio.sleep(7)
        assert [(fact.cpus, fact.groups) for fact in node.reported(OwnCpusOpened)] == [("2-3", ("user.slice",))]
        assert node.metrics.registry.get_sample_value("colo_executor_open_own_cpus_count") == 2
        node.runtime.found = OpenCpus()
        await asyncio.sleep(7)
        assert [fact.cpus for fact in node.reported(OwnCpusOpened)] == ["2-3", ""]
        assert node.metrics.registry.get_sample_value("colo_executor_open_own_cpus_count") == 0
        await node.leave()

    run_virtual(story())


class ZonesRuntime(SimulatedRuntime):
    """A machine whose kernel tells what waits in which of its two zones, and takes CPU sets unless `refusal` says why not."""

    waited_ms = 0
    refusal = ""
    zones: tuple[ZoneCeiling, ...] = ()

    @property
    def zone_ceilings(self) -> tuple[ZoneCeiling, ...]:
        return self.zones

    def read_fast(self, now_ms: int) -> FastReading | None:
        reading = super().read_fast(now_ms)
        if reading is None:
            return None
        stalls = OnlineStalls(at_ms=now_ms, total_us=(("web", self.waited_ms * 1_000),), zones=(("web", 0),))
        zones = tuple(ZoneReading(zone=zone, capacity_mcpu=8_000, batch_used_mcpu=4_000) for zone in (0, 1))
        return replace(reading, low_priority="idle", stalls=stalls, zones=zones)

    def set_ceiling(
        self, ceiling_mcpu: int, zones: tuple[ZoneCeiling, ...] | None = None, *, has_whole_cores: bool = False
    ) -> CeilingWritten | CeilingRefused:
        written = super().set_ceiling(ceiling_mcpu)
        if zones is not None and not self.refusal:
            self.zones = zones
        assert isinstance(written, CeilingWritten)
        return replace(written, zones=self.zones, sets_refused="" if zones is None else self.refusal)


def test_what_waits_in_a_zone_is_told_with_its_ceiling_which_neither_an_exit_nor_a_refusal_changes() -> None:
    async def story() -> None:
        node = Node()
        node.runtime = ZonesRuntime(node.machine, capacity_mcpu=16_000)

        def value(name: str, **labels: str) -> float | None:
            return node.metrics.registry.get_sample_value(name, labels)

        async def wait_for_a_cpu(seconds: int) -> None:
            for _ in range(10 * seconds):
                node.runtime.waited_ms += 50
                await asyncio.sleep(0.1)

        await node.start()
        await node.apply(work())
        await wait_for_a_cpu(1)
        held = (ZoneCeiling(zone=0, ceiling_mcpu=2_000, capacity_mcpu=8_000),)
        assert node.runtime.zones == held
        assert node.runtime.ceiling_mcpu == 10_000
        shrunk = node.reported(EnforcementChanged)[-1]
        assert isinstance(shrunk, EnforcementChanged)
        assert (shrunk.zone, shrunk.zones, shrunk.ceiling_mcpu, shrunk.stall_group) == (0, held, 10_000, "web")
        assert value("colo_executor_batch_zone_ceiling_mcpu", zone="0") == 2_000
        assert value("colo_executor_batch_zone_ceiling_mcpu", zone="1") == 8_000
        await node.leave()
        assert node.runtime.zones == held
        left = node.reported(EnforcementChanged)[-1]
        assert isinstance(left, EnforcementChanged)
        assert (left.reason, left.zone, left.zones) == (Reason.SHUTDOWN_RESTORE, None, held)
        # The next one gives it back in calm, as soon as the kernel takes it.
        refused = value("colo_executor_ceiling_refusals_total")
        node.runtime.refusal = "EBUSY"
        await node.start()
        await node.order(LeaseRenewed(node=NODE, sample_seq=1, batch_cpu_mcpu=0, lease_ms=600_000))
        await asyncio.sleep(30)
        assert node.runtime.zones == held
        assert refused is not None
        assert (value("colo_executor_ceiling_refusals_total") or 0) > refused
        node.runtime.refusal = ""
        await asyncio.sleep(60)
        assert node.runtime.zones == ()
        await node.leave()

    run_virtual(story())
