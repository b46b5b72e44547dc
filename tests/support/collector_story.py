"""A collector core driven by the words of a conversation."""

from __future__ import annotations

from colo_collector.core import CollectorCore, Event
from colo_collector.host_applications import SetHostApplications
from colo_collector.latency_slo import SetLatencySlo
from colo_collector.policy import CollectorPolicy
from colo_collector.readings import SampleRead, Skip, TopologyRead, Unreadable
from colo_common.events.effects import Effect, Publish
from colo_common.events.node import (
    Capability,
    NodeTopologyReported,
    NodeUsageSampled,
    PressureCrossed,
    PressureReading,
    WorkloadUsage,
    ZoneUsage,
)
from colo_common.events.policy import PolicyChanged
from colo_common.model.colocation_policy import ColocationPolicy, PolicyOverride, PolicyValues
from colo_common.model.host_applications import (
    HostApplication,
    HostApplicationOverride,
    HostApplications,
    path_of_unit,
)
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_selector import Selector
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.topology import uniform_topology
from tests.support.scripts import Args, ScriptFailed

__all__ = ["CollectorStory"]

MIB = 1 << 20
GIB = 1 << 30


class CollectorStory:
    """One node "n1" and its clock, which every `measure` moves on by its interval."""

    def __init__(self) -> None:
        self._core = CollectorCore("n1", CollectorPolicy())
        self._now_ms = 0

    def __call__(self, command: str, args: Args) -> str:
        handler = getattr(self, f"do_{command}", None)
        if handler is None:
            raise ScriptFailed("is not a command of the collector")
        text: str = handler(args)
        return text

    def do_start(self, args: Args) -> str:
        """A new process: windows, numbers and the published topology are forgotten."""
        args.only("window")
        self._core = CollectorCore("n1", CollectorPolicy(window_ms=args.number("window", 10_000)))
        return ""

    def do_machine(self, args: Args) -> str:
        """The shell read the topology of the machine."""
        args.only("sockets", "zones", "cpus", "gib", "rack", "has")
        topology = uniform_topology(
            sockets=args.number("sockets", 1),
            zones_per_socket=args.number("zones", 2),
            cpus_per_zone=args.number("cpus", 8),
            memory_bytes_per_zone=args.number("gib", 16) * GIB,
        )
        capabilities = tuple(Capability(name=name, present=True) for name in args.text("has", "").split(",") if name)
        labels = {"rack": args.named["rack"]} if "rack" in args.named else {}
        simulated = "simulated" in args.words
        return self._handle(
            TopologyRead(topology=topology, capabilities=capabilities, labels=labels, simulated=simulated)
        )

    def do_document(self, args: Args) -> str:
        """The colocation policy in its revision: `slo=150`, and of a rack another one: `rack=r2:80`.

        host= declares host applications, units of systemd by name, "none" none; of a rack others: `host_of=r2:b.service`.
        """
        args.only("slo", "rack", "host", "host_of")
        rack, _, slo_ms = args.text("rack", "").partition(":")
        overrides = (
            (
                PolicyOverride(
                    selector=Selector(labels={"rack": rack}), values=PolicyValues(online_latency_slo_ms=int(slo_ms))
                ),
            )
            if rack
            else ()
        )
        given_ms = args.number("slo") if "slo" in args.named else None
        policy = ColocationPolicy(
            defaults=PolicyValues(online_latency_slo_ms=given_ms), overrides=overrides, host_applications=_hosts(args)
        )
        return self._handle(PolicyChanged(at_ms=self._now_ms, revision=int(args.word(0)), policy=policy))

    def do_measure(self, args: Args) -> str:
        """A period with a sample: mcpu by zone, replicas as name=mcpu lines, stall in percent of the interval."""
        args.only("span", "zones", "mib", "cpu", "memory", "io")
        span_ms = args.number("span", 1_000)
        self._now_ms += span_ms
        used = [int(word) for word in args.text("zones", "0,0").split(",")]
        workloads = tuple(self._workload(line) for line in args.body)
        memory_bytes = args.number("mib", 1_024) * MIB
        pressure = tuple(
            PressureReading(resource=resource, some_us=stall_us, full_us=0 if resource == "cpu" else stall_us)
            for resource in ("cpu", "memory", "io")
            if resource in args.named
            for stall_us in (args.number(resource) * span_ms * 10,)
        )
        return self._handle(
            SampleRead(
                at_ms=self._now_ms,
                interval_ms=span_ms,
                cpu_used_mcpu=sum(used),
                memory_used_bytes=memory_bytes,
                zones=tuple(
                    ZoneUsage(zone=zone, cpu_used_mcpu=mcpu, memory_used_bytes=memory_bytes // len(used))
                    for zone, mcpu in enumerate(used)
                ),
                workloads=workloads,
                pressure=pressure,
                system_cpu_used_mcpu=max(sum(used) - sum(one.cpu_used_mcpu for one in workloads), 0),
            )
        )

    def do_unreadable(self, args: Args) -> str:
        """A period without a sample."""
        try:
            reason = Skip(args.word(0))
        except ValueError as error:
            raise ScriptFailed(f"knows no reason {args.word(0)}") from error
        self._now_ms += 1_000
        return self._handle(Unreadable(reason=reason))

    def do_skipped(self, args: Args) -> str:
        """The counters."""
        return "\n".join(f"{reason.value} {count}" for reason, count in sorted(self._core.skipped.items()))

    def _workload(self, line: str) -> WorkloadUsage:
        replica, _, mcpu = line.partition(" ")
        return WorkloadUsage(
            workload=f"{replica}#1",
            qos=QosClass.BE,
            band=PriorityBand.BATCH,
            cpu_used_mcpu=int(mcpu),
            memory_used_bytes=64 * MIB,
            replica=replica,
            attempt=1,
        )

    def _handle(self, event: Event) -> str:
        try:
            effects = self._core.handle(event, self._now_ms)
        except InvalidInput as error:
            return f"refused {error}"
        self._core.check()
        return "\n".join(_shown(effect) for effect in effects)


def _shown(effect: Effect) -> str:
    if isinstance(effect, SetLatencySlo):
        return f"slo {effect.slo_ms} revision={effect.revision} since={effect.since_ms}"
    if isinstance(effect, SetHostApplications):
        named = "setting" if effect.applications is None else ", ".join(each.text() for each in effect.applications)
        return f"host {named or 'none'} revision={effect.revision} since={effect.since_ms}"
    if not isinstance(effect, Publish):
        raise ScriptFailed(f"cannot print {type(effect).__name__}")
    fact = effect.fact
    match fact:
        case NodeTopologyReported():
            words = [f"zones={len(fact.topology.zones)}", f"cpus={len(fact.topology.cpus)}"]
            words += [f"gib={fact.topology.memory_capacity_bytes // GIB}"]
            words += [f"{key}={value}" for key, value in sorted(fact.labels.items())]
            words += [one.name for one in fact.capabilities]
            words += ["simulated"] if fact.simulated else []
            return f"{fact.at_ms}: -> topology {' '.join(words)}"
        case NodeUsageSampled():
            zones = ",".join(str(zone.cpu_used_mcpu) for zone in fact.zones)
            batch = "".join(f" {one.workload}={one.cpu_used_mcpu}" for one in fact.workloads)
            return f"{fact.at_ms}: -> sample {fact.sample_seq} zones={zones} system={fact.system_cpu_used_mcpu}{batch}"
        case PressureCrossed():
            side = "above" if fact.above else "below"
            return (
                f"{fact.at_ms}: -> pressure {fact.signal} {side} value={fact.value_pct} mark={fact.threshold_pct}"
                f" sample={fact.sample_seq} [{effect.id}]"
            )
        case _:
            raise ScriptFailed(f"cannot print {type(fact).__name__}")


def _hosts(args: Args) -> HostApplications | None:
    """The declared host applications; None where the words name none."""
    if not {"host", "host_of"} & set(args.named):
        return None
    rack, _, own = args.text("host_of", "").partition(":")
    override = HostApplicationOverride(selector=Selector(labels={"rack": rack}), applications=_units(own))
    return HostApplications(applications=_units(args.text("host", "")), overrides=(override,) if rack else ())


def _units(text: str) -> tuple[HostApplication, ...]:
    names = [name for name in text.split(",") if name not in ("", "none")]
    return tuple(HostApplication(name=name.partition(".")[0], path=path_of_unit(name, "host")) for name in names)
