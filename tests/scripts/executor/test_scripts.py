"""Conversations with a node's executor: commands and local results in, effects out."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec import convert
from msgspec.structs import replace

from colo_common.events.effects import Publish, Wake
from colo_common.events.enforcement import (
    AttachedGroupsChanged,
    DriftCorrected,
    EnforcementChanged,
    KnobValue,
    NodeRecovered,
    OwnCpusOpened,
    PlacementRefused,
    ReplicaEnded,
    ReplicaStarted,
    ZoneCeiling,
)
from colo_common.events.eviction import EvictReplica
from colo_common.events.fact_text import tells_of_freeze
from colo_common.events.job import ReplicaStop, StopReplicas
from colo_common.events.node import LeaseRenewed, NodeTopologyReported, NodeUsageSampled
from colo_common.events.placement import ApplyPlacements
from colo_common.events.restriction import RestrictionsApplied
from colo_common.model.constraints import CpuPolicy
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.topology import Device
from colo_common.model.workload import AttachSpec, RunSpec
from colo_executor.bandwidth import BandwidthPolicy, MemoryTraffic, ZoneTraffic
from colo_executor.core import ExecutorPolicy
from colo_executor.freeze import FreezePolicy
from colo_executor.local import (
    Adopted,
    AdoptedReplica,
    CeilingRefused,
    CeilingWritten,
    DiskOverused,
    Drift,
    FastReading,
    FreezeRefused,
    FreezeWritten,
    FrozenFound,
    KeepCpus,
    LaunchFailed,
    LaunchReplica,
    LocateDevices,
    LowPriority,
    RememberEnd,
    RememberPlacement,
    RememberRestrictions,
    RememberTerm,
    ReplicaExited,
    ReplicaLaunched,
    ReplicasSuspended,
    SetCeiling,
    SetFrozen,
    SignalReplica,
    StopIntent,
    SuspendReplicas,
)
from colo_executor.open_cpus import OpenCpus
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.stall import OnlineStalls
from colo_executor.suppress import SuppressPolicy
from colo_executor.zone_ceilings import ZoneReading
from tests.support.builders import a_latency, a_node, a_placement, a_sample, an_online_workload
from tests.support.executor_node import NodeExecutor
from tests.support.restriction_words import restrictions_changed
from tests.support.scripts import Args, Play, ScriptFailed, script_files

NODE = "n1"
GB = 1_000_000_000
FOLDER = Path(__file__).parent


class Conversation:
    """One node of ten CPUs. `at` moves time, `restart` forgets everything; every other command is an event.

    `blind` is how long the node may go without a reading: for ever, unless the conversation is about that.
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self.generation = 0
        self.has_freezer, self.freeze = False, FreezePolicy()
        self.node = self._new(blind_ms=600_000)

    def _new(
        self,
        blind_ms: int,
        *,
        only_observes: bool = False,
        ceiling_mcpu: int | None = None,
        zones: tuple[ZoneCeiling, ...] = (),
        has_whole_cores: bool = False,
    ) -> NodeExecutor:
        return NodeExecutor(
            NODE,
            capacity_mcpu=10_000,
            now_ms=self.now_ms,
            policy=ExecutorPolicy(replicas_most=3),
            reflex=ReflexPolicy(
                suppress=SuppressPolicy(threshold_pct=65),
                bandwidth=BandwidthPolicy(zone_bytes_per_s=100 * GB, excuse_ms=60_000),
                freeze=self.freeze,
                blind_ms=blind_ms,
            ),
            only_observes=only_observes,
            ceiling_mcpu=ceiling_mcpu,
            zones=zones,
            has_whole_cores=has_whole_cores,
        )

    def __call__(self, command: str, args: Args) -> str:
        if command == "at":
            return self._at(int(args.word(0)))
        if command == "restart":
            args.only("blind", "observe", "freeze", "ceiling", "zones", "cores")
            self.has_freezer = "freeze" in args.named
            self.freeze = FreezePolicy(by=args.text("freeze", "stall"))
            # What an earlier executor left in the kernel.
            self.node = self._new(
                args.number("blind", 600_000),
                only_observes=args.number("observe", 0) == 1,
                ceiling_mcpu=args.number("ceiling", 0) or None,
                zones=_zones(args.text("zones", "")),
                has_whole_cores=args.number("cores", 0) == 1,
            )
            return ""
        events = {
            "apply": self._apply,
            "stop": self._stop,
            "evict": self._evict,
            "lease": self._lease,
            "sample": self._sample,
            "launched": self._launched,
            "failed": self._failed,
            "exited": self._exited,
            "adopted": self._adopted,
            "read": self._read,
            "written": self._written,
            "refused": self._refused,
            "frozen": lambda args: FreezeWritten(is_frozen=True),
            "thawed": lambda args: FreezeWritten(is_frozen=False),
            "freeze-refused": lambda args: FreezeRefused(is_frozen=True, detail="EBUSY"),
            "thaw-refused": lambda args: FreezeRefused(is_frozen=False, detail="EBUSY"),
            "found": lambda args: FrozenFound(is_frozen=args.word(0) == "frozen"),
            "overused": lambda args: DiskOverused(replica=args.word(0), attempt=int(args.word(1)), detail="takes 3Gi"),
            "drift": self._drift,
            "open": self._open,
            "report": self._report,
            "restrict": lambda args: restrictions_changed(args, self.now_ms),
            "suspended": lambda args: self._suspended(args, is_suspended=True),
            "resumed": lambda args: self._suspended(args, is_suspended=False),
        }
        if command not in events:
            raise ScriptFailed(f"is no command; there are {', '.join(sorted(events))}")
        try:
            effects = self.node.handle(events[command](args), self.now_ms)
        except InvalidInput as error:
            return f"invalid {error}"
        return self._shown(effects)

    def _at(self, at_ms: int) -> str:
        """Move to a time, waking the node whenever it asked for it."""
        lines = []
        while (due_ms := self.node.deadline_ms()) is not None and due_ms <= at_ms:
            self.now_ms = max(self.now_ms, due_ms)
            effects = self.node.handle(Wake(), self.now_ms)
            later_ms = self.node.deadline_ms()
            assert later_ms is None or later_ms > self.now_ms, "the deadline after Wake is not later"
            if effects:
                lines.append(f"{self.now_ms}: " + self._shown(effects).replace("\n", f"\n{self.now_ms}: "))
        self.now_ms = at_ms
        return "\n".join(lines)

    def _shown(self, effects) -> str:
        self.node.check()
        return "\n".join(_line(effect) for effect in effects)

    def _drift(self, args: Args) -> Drift:
        """Files that were put back, and sentences about those that could not be; `many` counts equal ones.

        would= names files that are left as they are, with their values.
        """
        args.only("back", "failed", "many", "would")
        if "would" in args.named:
            pairs = (part.split(":") for part in args.text("would").split(",") if part)
            return Drift(
                knobs=tuple(KnobValue(path=path, value=value, before="") for path, value in pairs),
                failed=tuple(part for part in args.text("failed", "").split(",") if part),
                observed=True,
            )
        many = args.number("many", 1)
        back = [path for path in args.text("back", "").split(",") if path] * many
        return Drift(
            knobs=tuple(KnobValue(path=path, value="1", before="0") for path in back),
            failed=tuple(part for part in args.text("failed", "").split(",") if part),
        )

    def _open(self, args: Args) -> OpenCpus:
        """The own CPUs on which others may run, and the groups that these are in."""
        return OpenCpus(cpus=CpuSet.parse(args.words[0] if args.words else ""), groups=args.words[1:])

    def _apply(self, args: Args) -> ApplyPlacements:
        args.only("attempt", "node", "mcpu", "qos", "band", "cpus", "queue", "policy", "decided")
        placements = tuple(
            replace(
                a_placement(replica, attempt=args.number("attempt", 1), node=NODE, mcpu=args.number("mcpu", 1000)),
                queue=args.text("queue", ""),
                qos=QosClass(args.text("qos", "BE")),
                band=PriorityBand(args.text("band", "batch")),
                cpus=args.text("cpus", ""),
                cpu_policy=CpuPolicy(args.text("policy", "default")),
                decided_at_ms=args.number("decided", 0),
            )
            for replica in args.words
        )
        return ApplyPlacements(
            at_ms=self.now_ms, node=args.text("node", NODE), generation=self._next(), placements=placements
        )

    def _stop(self, args: Args) -> StopReplicas:
        args.only("attempt", "grace", "generation")
        stop = ReplicaStop(
            replica=args.word(0),
            attempt=args.number("attempt", 1),
            grace_ms=args.number("grace", 5000),
            reason=Reason.CANCELLED,
        )
        return StopReplicas(at_ms=self.now_ms, node=NODE, generation=args.number("generation", 0), stops=(stop,))

    def _evict(self, args: Args) -> EvictReplica:
        args.only("attempt", "grace", "eviction", "generation")
        return EvictReplica(
            at_ms=self.now_ms,
            node=NODE,
            generation=args.number("generation", 0),
            eviction=args.text("eviction", "e1"),
            replica=args.word(0),
            attempt=args.number("attempt", 1),
            grace_ms=args.number("grace", 5000),
            reason=Reason.MEMORY_WATERMARK,
        )

    def _lease(self, args: Args) -> LeaseRenewed:
        args.only("ms", "fence")
        return LeaseRenewed(
            node=NODE, sample_seq=1, batch_cpu_mcpu=0, lease_ms=args.number("ms", 15_000), fence=args.number("fence", 0)
        )

    def _launched(self, args: Args) -> ReplicaLaunched:
        args.only("attempt", "pid", "group")
        return ReplicaLaunched(
            replica=args.word(0),
            attempt=args.number("attempt", 1),
            pid=args.number("pid", 77),
            group=args.text("group", ""),
        )

    def _failed(self, args: Args) -> LaunchFailed:
        args.only("attempt", "reason")
        return LaunchFailed(
            replica=args.word(0),
            attempt=args.number("attempt", 1),
            reason=Reason(args.text("reason", "cgroup-refused")),
            detail="EINVAL",
        )

    def _exited(self, args: Args) -> ReplicaExited:
        args.only("attempt", "code", "cpu", "oom")
        code = args.text("code", "0")
        return ReplicaExited(
            replica=args.word(0),
            attempt=args.number("attempt", 1),
            exit_code=None if code == "unknown" else int(code),
            oom=args.text("oom", "no") == "yes",
            cpu_used_ms=args.number("cpu", 0),
        )

    def _adopted(self, args: Args) -> Adopted:
        args.only("alive", "dead", "stopping", "waiting", "paused", "stops", "evicts", "group", "attaches")
        group = args.text("group", "")
        run = RunSpec(attach=AttachSpec(cgroup=group)) if group else a_placement().run
        replicas = [
            AdoptedReplica(
                placement=replace(a_placement(name), run=run),
                pid=7,
                launched_at_ms=self.now_ms,
                alive=key != "dead",
                stop=stop,
                group=group,
            )
            for key, stop in (("alive", None), ("dead", None), ("stopping", self._intent()))
            if (name := args.text(key, ""))
        ]
        waiting = args.text("waiting", "")
        paused = args.text("paused", "")
        words = Args(words=("3", *([paused] if paused else [])))
        return Adopted(
            replicas=tuple(replicas),
            waiting=(a_placement(waiting, attempt=2),) if waiting else (),
            terms=tuple(
                (order, args.number(f"{order}s", 0)) for order in ("stop", "evict") if f"{order}s" in args.named
            ),
            revision=3 if "paused" in args.named else 0,
            restrictions=restrictions_changed(words, self.now_ms).restrictions,
            attaches=args.number("attaches", 0) == 1,
        )

    def _report(self, args: Args) -> NodeTopologyReported:
        """The collector's report; `node` is another one's."""
        args.only("node", "pinned", "reserved", "system", "mode", "gpus")
        pinned = args.text("pinned", "")
        rules = NodeRules(
            reserved_cpus=args.text("reserved", ""),
            system_cpus=args.text("system", ""),
            kubelet_reserved_cpus=pinned,
            kubelet_pinned_cpus=pinned,
            colocation_mode="vm" if args.text("mode", "container") == "vm" else "container",
        )
        report = a_node(args.text("node", NODE), rules=rules)
        buses = [bus for bus in args.text("gpus", "").split(",") if bus]
        gpus = tuple(
            Device(kind="gpu", device=number, zone=0, address=f"0000:{bus}:00.0") for number, bus in enumerate(buses)
        )
        return replace(report, topology=replace(report.topology, devices=gpus))

    def _suspended(self, args: Args, *, is_suspended: bool) -> ReplicasSuspended:
        """The result of suspending or resuming; `failed` names the one that the kernel refused."""
        args.only("failed")
        failed = args.text("failed", "")
        attempts = tuple((name, 1) for name in (*args.words, *([failed] if failed else [])))
        return ReplicasSuspended(
            attempts=attempts, is_suspended=is_suspended, failed=((failed, 1, f"{failed} EBUSY"),) if failed else ()
        )

    def _intent(self) -> StopIntent:
        return StopIntent(cause=EndCause.STOPPED, reason=Reason.CANCELLED, kill_at_ms=self.now_ms + 3_000)

    def _read(self, args: Args) -> FastReading:
        """`waits` has for each group of online work the ms that it has waited since it was made; with it batch work gives way.

        `unseen` is a busy group whose waits are not shown. `zones` has for each of two zones of five CPUs what batch work uses
        there, and `fills` what online work does, where that is known; a group whose name ends in a digit runs in that zone alone.
        `held` are the CPUs of zone 0 that the node's rules withhold, in mcpu. With `threads` cores have so many, and batch work
        shares them; `stays` is a zone that some of it cannot leave. `memory` has what the memory of each zone carries, in percent
        of what it sustains.
        """
        args.only(
            *("online", "system", "batch", "waits", "way", "ending", "unseen", "zones", "fills", "held"),
            *("threads", "stays", "memory"),
        )
        threads = args.number("threads", 1)
        fills = [int(part) for part in args.text("fills", "").split(",") if part]
        held_mcpu = args.number("held", 0)
        waits = args.text("waits", "")
        pairs = (part.split(":") for part in waits.split(",") if part)
        return FastReading(
            at_ms=self.now_ms,
            capacity_mcpu=10_000,
            online_used_mcpu=args.number("online", 0),
            batch_used_mcpu=args.number("batch", 0),
            system_used_mcpu=args.number("system", 0),
            reserved_mcpu=held_mcpu,
            low_priority=self._low_priority(args.text("way", "idle" if waits else "")),
            may_freeze=self.has_freezer and args.number("ending", 0) == 0,
            shares_cores=threads > 1,
            stalls=self._stalls(pairs, args.text("unseen", "")) if waits else None,
            zones=tuple(
                ZoneReading(
                    zone=zone,
                    capacity_mcpu=5_000 if zone else 5_000 - held_mcpu,
                    batch_used_mcpu=int(used),
                    online_used_mcpu=fills[zone] if fills else None,
                    threads=threads,
                    may_leave=args.number("stays", -1) != zone,
                    reserved_mcpu=0 if zone else held_mcpu,
                )
                for zone, used in enumerate(part for part in args.text("zones", "").split(",") if part)
            ),
            memory=self._memory([int(part) for part in args.text("memory", "").split(",") if part]),
        )

    def _memory(self, pct: list[int]) -> MemoryTraffic | None:
        zones = tuple(ZoneTraffic(zone=zone, bytes_per_s=each * GB) for zone, each in enumerate(pct))
        return MemoryTraffic(at_ms=self.now_ms, zones=zones) if zones else None

    def _stalls(self, waits: Iterable[list[str]], unseen: str) -> OnlineStalls:
        totals = tuple((name, int(ms) * 1_000) for name, ms in waits)
        return OnlineStalls(
            at_ms=self.now_ms,
            total_us=totals,
            unseen=(unseen,) if unseen else (),
            zones=tuple((name, int(name[-1])) for name, _ in totals if name[-1].isdigit()),
        )

    def _low_priority(self, word: str) -> LowPriority:
        return convert("" if word == "none" else word, LowPriority)

    def _sample(self, args: Args) -> NodeUsageSampled:
        """slo=NAME:above/samples[:kept]: what online work says of its latency; without it, nothing. `age` is that of the value."""
        args.only("slo", "age")
        name, _, rate = args.text("slo", "").partition(":")
        counts, _, kept = rate.partition(":")
        above, _, samples = counts.partition("/")
        metric = a_latency(int(above), int(samples), breaks_slo=not kept) if name else None
        latency = metric and replace(metric, age_ms=args.number("age", metric.age_ms))
        workloads = (an_online_workload(name, business=latency),) if name else ()
        return a_sample(NODE, workloads=workloads)

    def _written(self, args: Args) -> CeilingWritten:
        """`zones` are the ceilings of zones that the kernel took, and `cores=1` says that batch work keeps to whole cores;
        `sets-refused` says why it has these and not what was asked.
        """
        args.only("observed", "zones", "cores", "sets-refused")
        observed = args.number("observed", 0) == 1
        knobs = (KnobValue(path="colo/batch/cpu.max", value=args.word(0), before=""),) if observed else ()
        return CeilingWritten(
            ceiling_mcpu=int(args.word(0)),
            knobs=knobs,
            observed=observed,
            zones=_zones(args.text("zones", "")),
            has_whole_cores=args.number("cores", 0) == 1,
            sets_refused=args.text("sets-refused", ""),
        )

    def _refused(self, args: Args) -> CeilingRefused:
        return CeilingRefused(ceiling_mcpu=int(args.word(0)), detail="EINVAL")

    def _next(self) -> int:
        self.generation += 1
        return self.generation


def _zones(text: str) -> tuple[ZoneCeiling, ...]:
    """Ceilings of zones of five CPUs from "0:2000,1:3000"."""
    pairs = (part.split(":") for part in text.split(",") if part)
    return tuple(ZoneCeiling(zone=int(zone), ceiling_mcpu=int(mcpu), capacity_mcpu=5_000) for zone, mcpu in pairs)


def _of_zones(zones: Iterable[ZoneCeiling]) -> str:
    text = ",".join(f"{each.zone}:{each.ceiling_mcpu}" for each in zones)
    return f" zones={text}" if text else ""


def _line(effect) -> str:
    match effect:
        case Publish():
            return f"-> {_fact(effect.fact)} [{effect.id.removeprefix('executor:')}]"
        case LaunchReplica():
            return f"launch {effect.placement.replica}#{effect.placement.attempt}"
        case SignalReplica():
            return f"signal {effect.signal} {effect.replica}#{effect.attempt} kill_at={effect.intent.kill_at_ms}"
        case RememberPlacement():
            return f"remember waiting {effect.placement.replica}#{effect.placement.attempt}"
        case RememberEnd():
            return f"remember end {effect.fact.replica}#{effect.fact.attempt}"
        case SuspendReplicas():
            names = " ".join(f"{replica}#{attempt}" for replica, attempt in effect.attempts)
            return f"{'suspend' if effect.is_suspended else 'resume'} {names}"
        case RememberRestrictions():
            table = " ".join(":".join(each.key) for each in effect.restrictions)
            return f"remember restrictions {effect.revision} {table}".rstrip()
        case RememberTerm():
            return f"remember term {effect.order} {effect.generation}"
        case KeepCpus():
            return f"keep withheld={effect.kept.withheld} pinned={effect.kept.pinned}"
        case LocateDevices():
            places = " ".join(f"{each.kind}:{each.device}={each.address}" for each in effect.devices)
            return f"locate {places}".rstrip()
        case SetCeiling():
            return f"set ceiling {effect.ceiling_mcpu}{_of_zones(effect.zones)}{' cores=1' * effect.has_whole_cores}"
        case SetFrozen():
            return "freeze batch work" if effect.is_frozen else "thaw batch work"
        case _:
            raise ScriptFailed(f"led to {effect!r}, which has no line here")


def _fact(fact) -> str:
    match fact:
        case ReplicaStarted():
            return f"started {fact.replica}#{fact.attempt} pid={fact.pid}"
        case ReplicaEnded():
            words = [f"ended {fact.replica}#{fact.attempt} {fact.cause.value} code={fact.exit_code}"]
            words += [f"reason={fact.reason.value}"] if fact.reason else []
            words += [f"eviction={fact.eviction}"] if fact.eviction else []
            words += [f"ran={fact.ran_ms}"] if fact.ran_ms else []
            return " ".join([*words, *([f"({fact.detail})"] if fact.detail else [])])
        case PlacementRefused():
            newest = f" newest={fact.newest_over}" if fact.newest_over else ""
            return f"refused {fact.replica}#{fact.attempt} {fact.reason.value}{newest} {fact.detail}".rstrip()
        case EnforcementChanged():
            broke = f" {fact.slo_workload}={fact.violation_pct}%" if fact.slo_workload else ""
            way = f"{fact.ceiling_before_mcpu} -> {fact.ceiling_mcpu}"
            if tells_of_freeze(fact):
                state = "frozen" if fact.frozen else "thawed"
                felt = f" {fact.stall_group}={fact.stall_pct}%" if fact.stall_group else broke
                return f"{state} at {fact.ceiling_mcpu} {fact.reason.value}{felt}"
            would = f" would write {','.join(knob.path for knob in fact.knobs)}" if fact.observed else ""
            felt = f" {fact.stall_group}={fact.stall_pct}%" if fact.zone is not None and fact.stall_group else ""
            moved = "" if fact.zone is None else f" zone={fact.zone}"
            terms = ",".join(
                f"{each.zone}:{each.online_used_mcpu}+{each.reserved_mcpu}+{each.system_used_mcpu}"
                + ("" if each.node_most_mcpu is None else f"<={each.node_most_mcpu}")
                for each in fact.zone_terms
            )
            zones = f"{' cores=1' * fact.whole_cores}{_of_zones(fact.zones)}{moved}{felt}" + (
                f" terms={terms}" if terms else ""
            )
            carried = "" if fact.memory is None else f" memory={fact.memory.zone}:{fact.memory.bytes_per_s // GB}%"
            return f"ceiling {way} {fact.reason.value}{broke}{carried} target={fact.target_mcpu}{would}{zones}"
        case DriftCorrected() if fact.observed:
            would = ",".join(f"{knob.path}={knob.value}" for knob in fact.knobs)
            return f"would write {fact.count} {would} failed={','.join(fact.failed)}"
        case DriftCorrected():
            back = ",".join(f"{knob.path}={knob.before}->{knob.value}" for knob in fact.knobs[:2])
            return f"drift count={fact.count} named={len(fact.knobs)} {back} failed={','.join(fact.failed)}"
        case OwnCpusOpened():
            return f"opened {fact.cpus} {','.join(fact.groups)}".rstrip()
        case RestrictionsApplied():
            failed = f" failed={','.join(fact.failed)}" if fact.failed else ""
            return f"restrictions {fact.revision} applied, {fact.suspended} suspended{failed}"
        case AttachedGroupsChanged():
            return "attached " + ",".join(
                f"{each.qos.value}:{each.replica}#{each.attempt}={each.group}" for each in fact.groups
            )
        case NodeRecovered():
            return "recovered " + ",".join(f"{replica}#{attempt}" for replica, attempt in fact.running)
        case _:
            raise ScriptFailed(f"published {fact!r}, which has no line here")


@pytest.mark.parametrize("path", script_files(FOLDER), ids=lambda path: path.stem)
def test_the_executor_answers_as_the_conversation_says(path: Path, play: Play) -> None:
    play(path, Conversation())
