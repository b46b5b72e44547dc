"""An overcommit core driven by the words of a conversation."""

from __future__ import annotations

from msgspec import ValidationError, convert, to_builtins
from msgspec.structs import replace

from colo_common.events.effects import Effect, Publish, Reply, RequestReceived, Wake
from colo_common.events.eviction import EvictionFinished
from colo_common.events.external import (
    ClearExternalCapacity,
    ExternalCapacityChanged,
    NodeExternal,
    SetExternalCapacity,
)
from colo_common.events.node import AllocatableChanged, FreshnessChanged, LeaseRenewed, PromiseRisk
from colo_common.events.placement import NodeRelease, PlacementsReleased
from colo_common.events.policy import PolicyChanged, PolicyPreview, PreviewPolicy
from colo_common.events.requests import ExplainAllocatable, NodeExplained, Refusal
from colo_common.model.colocation_policy import ColocationPolicy, PolicyOverride, PolicyValues
from colo_common.model.freshness import FreshnessPolicy
from colo_common.model.host_applications import HostApplication, HostApplications
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules
from colo_common.model.node_selector import Selector
from colo_common.model.partition import PartitionsHeld
from colo_common.model.qos import PriorityBand, QosClass, default_band, parse_qos
from colo_common.model.reasons import EndCause
from colo_overcommit.core import Event, OvercommitCore
from colo_overcommit.external import entry_of
from colo_overcommit.histories import HistoriesLoaded
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.risk import RiskPolicy
from tests.support.builders import (
    GIB,
    a_batch_workload,
    a_node,
    a_placement,
    a_sample,
    a_topology,
    an_eviction,
    decided,
)
from tests.support.restriction_words import restrictions_changed
from tests.support.scripts import Args, ScriptFailed

__all__ = ["OvercommitStory"]


class OvercommitStory:
    """Nodes of two zones with 16 CPUs and 64 GiB each; `sample` moves the clock on by a second."""

    def __init__(self) -> None:
        self._policy = OvercommitPolicy(
            freshness=FreshnessPolicy(stale_after_ms=10_000, lost_after_ms=60_000, warm_samples=2)
        )
        self._core = OvercommitCore(self._policy)
        self._last: dict[str, AllocatableChanged] = {}
        self._now_ms = 0
        self._seq = 0
        self._rows: dict[str, bytes] = {}
        self._standby: OvercommitCore | None = None

    def __call__(self, command: str, args: Args) -> str:
        handler = getattr(self, f"do_{command}", None)
        if handler is None:
            raise ScriptFailed("is not a command of the overcommit service")
        text: str = handler(args)
        return text

    def do_node(self, args: Args) -> str:
        """The node says what it is. reserved= lists CPUs, system= and kubelet= too, mcpu= and gib= are quantities.

        pinned= are those of kubelet= that the kubelet pinned to pods. colocated=0: no batch work there.
        observe=1: nothing is written there.
        amplify= is the percentage that its CPU is claimed to be, normal= what it is of a reference machine's; pool= is a label.
        """
        args.only(
            "cpus",
            "reserved",
            "system",
            "kubelet",
            "pinned",
            "mcpu",
            "gib",
            "colocated",
            "amplify",
            "normal",
            "pool",
            "observe",
        )
        labels = {"pool": args.text("pool")} if "pool" in args.named else {}
        rules = NodeRules(
            reserved_cpus=args.text("reserved", ""),
            system_cpus=args.text("system", ""),
            kubelet_reserved_cpus=args.text("kubelet", ""),
            kubelet_pinned_cpus=args.text("pinned", ""),
            reserved_mcpu=args.number("mcpu", 0),
            reserved_memory_bytes=args.number("gib", 0) * GIB,
            is_colocated=args.number("colocated", 1) == 1,
            enforcement="observe" if args.number("observe", 0) == 1 else "full",
            amplification_pct=args.number("amplify", 100),
            cpu_normalization_pct=args.number("normal", 100),
        )
        node = a_node(args.word(0), a_topology(cpus=args.number("cpus", 16)))
        return self._tell(replace(node, rules=rules, labels=labels))

    def do_risk(self, args: Args) -> str:
        """target= over= least= most=: from here another instance, with risk control, which knows nothing but the policy"""
        args.only("target", "over", "least", "most")
        risk = RiskPolicy(
            target_ratio=float(args.text("target")),
            take_back_ms=args.number("over", 0),
            least_margin_pct=args.number("least", 5),
            most_margin_pct=args.number("most", 60),
        )
        try:
            self._core = OvercommitCore(replace(self._policy, risk=risk))
        except InvalidInput as error:
            return f"refused {error}"
        return ""

    def do_policy(self, args: Args) -> str:
        """name=value...: from here another instance with this policy, which knows nothing else"""
        numbers = {name: int(text) if text.isdigit() else text for name, text in args.named.items()}
        try:
            self._core = OvercommitCore(convert(to_builtins(self._policy) | numbers, OvercommitPolicy, strict=False))
        except (InvalidInput, ValidationError) as error:
            return f"refused {error}"
        return ""

    def do_document(self, args: Args) -> str:
        """REVISION key=value POOL.key=value: an operator applied this policy, with an override for each pool"""
        return self._tell(PolicyChanged(revision=int(args.word(0)), policy=_document(args)))

    def do_external(self, args: Args) -> str:
        """node source for= mcpu= gib=: a system outside bounds the node; clear=1 lifts it. heard=1: another instance took it."""
        args.only("for", "mcpu", "gib", "clear", "heard")
        node, source = args.word(0), args.word(1)
        asked: SetExternalCapacity | ClearExternalCapacity = ClearExternalCapacity(node=node, source=source)
        if not args.number("clear", 0):
            asked = SetExternalCapacity(
                node=node,
                source=source,
                ttl_ms=args.number("for"),
                cpu_mcpu=args.number("mcpu") if "mcpu" in args.named else None,
                memory_bytes=args.number("gib") * GIB if "gib" in args.named else None,
                by="ana",
            )
        if args.number("heard", 0):
            assert isinstance(asked, SetExternalCapacity)
            return self._tell(
                ExternalCapacityChanged(at_ms=self._now_ms, node=node, entries=(entry_of(asked, self._now_ms),))
            )
        effects = self._core.handle(RequestReceived(request="r", body=asked), self._now_ms)
        lines = []
        for effect in effects:
            body = effect.body if isinstance(effect, Reply) else effect.fact if isinstance(effect, Publish) else None
            if isinstance(body, NodeExternal | ExternalCapacityChanged):
                entries = [f"{e.source} until {e.until_ms}: {e.cpu_mcpu}/{e.memory_bytes}" for e in body.entries]
                lines.append(f"{type(body).__name__} {', '.join(entries) or 'none'}")
            else:
                lines.append(f"refused {body}")
        return "\n".join(lines)

    def do_restart(self, args: Args) -> str:
        """The instance ends; from here another one with its settings, which reads what it stored. damage=1: the rows are cut.

        later= so many ms pass meanwhile.
        """
        args.only("damage", "later")
        rows = self._core.due_histories(self._now_ms, 0, 1_000)
        for node, row in rows.items():
            if row is None:
                self._rows.pop(node, None)
            else:
                self._rows[node] = row[:-9] if args.number("damage", 0) else row
        self._now_ms += args.number("later", 0)
        self._core = OvercommitCore(self._core.policy)
        self._core.handle(HistoriesLoaded(rows=self._rows), self._now_ms)
        stored = " ".join(f"{node}={'deleted' if row is None else f'{len(row)}B'}" for node, row in rows.items())
        unreadable = self._core.dropped.unreadable_histories
        return f"stored {stored or 'nothing'}; read {len(self._rows)}, {unreadable} not readable"

    def do_shared(self, args: Args) -> str:
        """From here the instance shares the nodes with another one, which holds none of them and hears everything."""
        args.only()
        policy = self._core.policy
        self._core, self._standby = (OvercommitCore(policy, partitions=1) for _ in range(2))
        return self._tell(PartitionsHeld(fences=((0, 1),)), is_shared=False)

    def do_handover(self, args: Args) -> str:
        """The instance is killed: the other one, which heard what it published, holds its nodes from here."""
        args.only()
        if self._standby is None:
            raise ScriptFailed("no other instance shares the nodes")
        self._core, self._standby = self._standby, None
        return self._tell(PartitionsHeld(fences=((0, 2),)))

    def do_preview(self, args: Args) -> str:
        """key=value POOL.key=value: what this policy would change"""
        (reply,) = self._core.handle(
            RequestReceived(request="r", body=PreviewPolicy(policy=_document(args))), self._now_ms
        )
        if not (isinstance(reply, Reply) and isinstance(reply.body, PolicyPreview)):
            raise ScriptFailed("no preview")
        found = reply.body
        lines = [
            f"{row.node} by {row.override or 'defaults'}: {row.batch_cpu_mcpu} -> {row.would_cpu_mcpu}, "
            f"least {row.least_mcpu} -> {row.would_least_mcpu}, over {row.over_mcpu}"
            + (f"/{row.over_memory_bytes // GIB}Gi" if row.over_memory_bytes else "")
            + (
                f", mid {row.mid_cpu_mcpu} -> {row.would_mid_cpu_mcpu}"
                if row.mid_cpu_mcpu != row.would_mid_cpu_mcpu
                else ""
            )
            + "".join(
                f", z{zone.zone} {zone.batch_cpu_mcpu}/{zone.batch_memory_bytes // GIB}Gi -> "
                f"{zone.would_cpu_mcpu}/{zone.would_memory_bytes // GIB}Gi"
                for zone in row.zones
            )
            for row in found.listed
        ]
        total = f"{found.changing} of {found.nodes} change, {found.over} over, {found.samples} samples"
        if found.beginning:
            total += f", {found.beginning} begin"
        if found.unmeasured:
            total += f", not measured {' '.join(found.unmeasured)}"
        return "\n".join([f"{total}: {found.batch_cpu_mcpu} -> {found.would_cpu_mcpu}", *lines])

    def do_replay(self, args: Args) -> str:
        """node: the instance hears what was published last of the node"""
        return self._tell(self._last[args.word(0)])

    def do_evicted(self, args: Args) -> str:
        """COUNT held= took=: so many evictions, from the crossing to the request and from there to the end"""
        args.only("held", "took")
        for number in range(int(args.word(0))):
            name = f"e{number}"
            self._tell(an_eviction(eviction=name, held_ms=args.number("held")))
            took_ms = args.number("took")
            self._tell(
                EvictionFinished(
                    eviction=name, node="n1", replica="j/main/0", attempt=1, cause=EndCause.EVICTED, took_ms=took_ms
                )
            )
        return ""

    def do_sample(self, args: Args) -> str:
        """node zones=mcpu,mcpu gib=N,N batch=mcpu lse=mcpu: a second later; batch work and LSE work (web/main/0) run in zone 0.

        ls= is what LS work (web/main/1) uses in zone 1, with 1 GiB; mid= what one of the mid tier (web/mid/0) uses in zone 0, which
        runs in the tree of batch work; host= what a host application uses there, as BAND:mcpu. boot= of a later collector.
        """
        args.only("zones", "gib", "batch", "lse", "ls", "mid", "host", "seq", "boot")
        self._now_ms += 1_000
        self._seq += 1
        cpu = [int(word) for word in args.text("zones").split(",")]
        gib = [int(word) for word in args.text("gib", "8,8").split(",")]
        batch = args.number("batch", 0)
        workloads = (a_batch_workload(mcpu=batch, gib=1),) if batch else ()
        if "lse" in args.named:
            own = a_batch_workload("web/main/0", mcpu=args.number("lse"), gib=1)
            workloads = (*workloads, replace(own, qos=QosClass.LSE, band=PriorityBand.PROD))
        if "ls" in args.named:
            shared = a_batch_workload("web/main/1", mcpu=args.number("ls"), gib=1, zones=(1,))
            workloads = (*workloads, replace(shared, qos=QosClass.LS, band=PriorityBand.PROD))
        if "mid" in args.named:
            workloads = (*workloads, a_batch_workload("web/mid/0", mcpu=args.number("mid"), gib=1))
        if "host" in args.named:
            band, _, mcpu = args.text("host").partition(":")
            host = a_batch_workload(mcpu=int(mcpu), gib=1)
            host = replace(host, workload="host", replica="", attempt=0, band=PriorityBand(band), host_revision=0)
            workloads = (*workloads, host)
        sample = a_sample(
            args.word(0),
            seq=args.number("seq", self._seq),
            zones=list(zip(cpu, gib, strict=True)),
            workloads=workloads,
            boot_id=args.text("boot", "b1"),
            at_ms=self._now_ms,
        )
        return self._tell(sample)

    def do_repeat(self, args: Args) -> str:
        """COUNT node every=ms, and what a sample has: so many samples, so far apart. What the last one says is shown."""
        count, every_ms = int(args.word(0)), int(args.named.pop("every"))
        shown = ""
        for _ in range(count):
            self._now_ms += every_ms - 1_000
            shown = self.do_sample(Args(words=args.words[1:], named=args.named))
        return shown

    def do_place(self, args: Args) -> str:
        """node replica mcpu= gib= zone= qos= band=; without a band every class but BE in the band prod"""
        args.only("mcpu", "gib", "zone", "qos", "band")
        qos = parse_qos(args.text("qos", "BE"), "qos")
        placement = a_placement(
            args.word(1),
            node=args.word(0),
            mcpu=args.number("mcpu"),
            gib=args.number("gib", 1),
            zone=args.number("zone", 0),
        )
        band = PriorityBand(args.text("band", default_band(qos).value))
        return self._tell(decided(replace(placement, qos=qos, band=band)))

    def do_restrict(self, args: Args) -> str:
        """REVISION KIND:SCOPE:TARGET...: what operators forbid from now on"""
        return self._tell(restrictions_changed(args, self._now_ms))

    def do_release(self, args: Args) -> str:
        """node replica"""
        return self._tell(PlacementsReleased(nodes=(NodeRelease(node=args.word(0), attempts=((args.word(1), 1),)),)))

    def do_at(self, args: Args) -> str:
        """The clock shows so many ms; each core is woken if it asked for that."""
        self._now_ms = int(args.word(0))
        for core in (self._standby, self._core):
            due_ms = core.deadline_ms() if core is not None else None
            if core is not None and due_ms is not None and due_ms <= self._now_ms:
                if core is self._core:
                    return self._tell(Wake(), is_shared=False)
                if core.handle(Wake(), self._now_ms):
                    raise ScriptFailed("an instance that holds no node says something")
        return ""

    def do_explain(self, args: Args) -> str:
        """Ask for the formula of a zone: what= the beginning of its terms, cpu_ when absent.

        ages=1: how old each is and of which sample, in place of the source.
        """
        args.only("zone", "what", "ages")
        (reply,) = self._core.handle(
            RequestReceived(request="r", body=ExplainAllocatable(node=args.word(0))), self._now_ms
        )
        if not isinstance(reply, Reply):
            raise ScriptFailed("no reply")
        if isinstance(reply.body, Refusal):
            return f"refused {reply.body}"
        if not isinstance(reply.body, NodeExplained):
            raise ScriptFailed(f"an answer of type {type(reply.body).__name__}")
        zone, what = args.number("zone", 0), args.text("what", "cpu_")
        terms = [t for t in reply.body.published.explanation.terms if t.zone == zone and t.name.startswith(what)]
        if args.number("ages", 0):
            return "\n".join(
                f"{t.name} {t.value} {t.unit} age={'-' if t.age_ms is None else t.age_ms} "
                f"sample={'-' if t.sample_seq is None else t.sample_seq}"
                for t in terms
            )
        return "\n".join(f"{term.name} {term.value} {term.unit} ({term.source})" for term in terms)

    def _tell(self, event: Event, *, is_shared: bool = True) -> str:
        try:
            effects = self._core.handle(event, self._now_ms)
        except InvalidInput as error:
            return f"refused {error}"
        self._core.check()
        if self._standby is not None:
            published = [effect.fact for effect in effects if isinstance(effect, Publish)]
            echoes = [fact for fact in published if isinstance(fact, AllocatableChanged | FreshnessChanged)]
            for received in (event, *echoes) if is_shared else echoes:
                if self._standby.handle(received, self._now_ms):
                    raise ScriptFailed("an instance that holds no node says something")
        return "\n".join(line for effect in effects if (line := self._line(effect)))

    def _line(self, effect: Effect) -> str:
        fact = effect.fact if isinstance(effect, Publish) else None
        match fact:
            case AllocatableChanged():
                self._last[fact.node] = fact
                zones = " ".join(
                    f"z{z.zone}={z.batch_cpu_mcpu}/{z.batch_memory_bytes // GIB}Gi({z.headroom_cpu_mcpu:+d})"
                    for z in fact.zones
                )
                return (
                    f"{self._now_ms}: -> allocatable {fact.node} {fact.freshness.value} {fact.batch_cpu_mcpu} {zones}"
                    + "".join(f" mid{z.zone}={z.cpu_mcpu}/{z.memory_bytes // GIB}Gi" for z in fact.mid)
                    + (f" {_risk_text(fact.risk)}" if fact.risk else "")
                )
            case FreshnessChanged():
                change = f"{fact.previous.value} -> {fact.freshness.value}"
                return f"{self._now_ms}: -> freshness {fact.node} {change} age={fact.age_ms}"
            case LeaseRenewed():
                return f"{self._now_ms}: -> lease {fact.node} {fact.lease_ms} ms"
            case _:
                return f"{self._now_ms}: -> {type(effect).__name__}"


def _document(args: Args) -> ColocationPolicy:
    """The policy of the words: values of the defaults, and those of each pool as an override.

    host= declares host applications, as NAME:BAND and more after commas; "none": there are none.
    """
    pools: dict[str, dict[str, object]] = {"": {}}
    declared = args.named.pop("host", None)
    for name, text in args.named.items():
        pool, _, key = name.rpartition(".")
        pools.setdefault(pool, {})[key] = {"true": True, "false": False}.get(
            text, int(text) if text.isdigit() else text
        )
    overrides = tuple(
        PolicyOverride(name=pool, selector=Selector(labels={"pool": pool}), values=convert(values, PolicyValues))
        for pool, values in pools.items()
        if pool
    )
    hosts = None if declared is None else HostApplications(applications=_hosts(declared))
    return ColocationPolicy(defaults=convert(pools[""], PolicyValues), overrides=overrides, host_applications=hosts)


def _hosts(words: str) -> tuple[HostApplication, ...]:
    pairs = [word.split(":") for word in words.split(",") if word != "none"]
    return tuple(
        HostApplication(
            name=name,
            path=f"/{name}",
            qos=QosClass.LS if band == "prod" else QosClass.BE,
            band=PriorityBand(band),
        )
        for name, band in pairs
    )


def _risk_text(risk: PromiseRisk) -> str:
    """margin/broken of judged/at most, of CPU and memory, and the time for which promises are judged."""
    parts = [
        f"{name}={each.margin_millionths / 10_000:.2f}%/{each.broken} of {each.judged}/{100 * each.broken_most_ratio:.0f}%"
        for name, each in (("cpu", risk.cpu), ("memory", risk.memory))
    ]
    return f"risk over {risk.take_back_ms} ms: {' '.join(parts)}"
