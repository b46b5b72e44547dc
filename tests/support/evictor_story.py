"""An evictor core driven by the words of a conversation."""

from __future__ import annotations

from msgspec.structs import replace

from colo_common.events.effects import Effect, Publish, Record, Wake
from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.eviction import EvictionFinished, EvictionRequested, EvictReplica, NodeDrained
from colo_common.events.node import FreshnessChanged
from colo_common.events.policy import PolicyChanged
from colo_common.model.colocation import COLOCATION_LABEL
from colo_common.model.colocation_policy import ColocationPolicy, PolicyOverride, PolicyValues
from colo_common.model.colocation_rules import ColocationRule
from colo_common.model.freshness import Freshness
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_selector import Selector
from colo_common.model.qos import PriorityBand
from colo_common.model.reasons import EndCause, Reason
from colo_evictor.core import Event, EvictorCore
from colo_evictor.policy import EvictorPolicy
from tests.support.builders import (
    a_batch_workload,
    a_latency,
    a_node,
    a_placement,
    a_sample,
    an_online_workload,
    decided,
)
from tests.support.restriction_words import restrictions_changed
from tests.support.scripts import Args, ScriptFailed

__all__ = ["EvictorStory"]


class EvictorStory:
    """One node "n1" of two zones with 16 CPUs and 64 GiB each."""

    def __init__(self) -> None:
        closed = ColocationRule(selector=Selector(labels={"pool": "online"}), is_colocated=False)
        self._core = EvictorCore(EvictorPolicy(colocation=(closed,)))
        self._now_ms = 0
        self._seq = 0
        self._core.handle(a_node(), 0)

    def __call__(self, command: str, args: Args) -> str:
        handler = getattr(self, f"do_{command}", None)
        if handler is None:
            raise ScriptFailed("is not a command of the evictor")
        text: str = handler(args)
        return text

    def do_place(self, args: Args) -> str:
        """replica mcpu= priority= band=batch|free|mid|prod"""
        args.only("mcpu", "priority", "band")
        placement = a_placement(args.word(0), mcpu=args.number("mcpu", 1000), priority=args.number("priority", 0))
        return self._tell(decided(replace(placement, band=PriorityBand(args.text("band", "batch")))))

    def do_sample(self, args: Args) -> str:
        """at=ms zones=mcpu,mcpu gib=N,N stall=NAME:pct[:gate] slo=NAME:above/samples[:kept] and lines "replica mcpu gib [band]"."""
        args.only("at", "zones", "gib", "stall", "slo")
        self._now_ms = args.number("at")
        self._seq += 1
        cpu = [int(word) for word in args.text("zones", "4000,4000").split(",")]
        gib = [int(word) for word in args.text("gib", "30,30").split(",")]
        workloads = []
        for line in args.body:
            name, mcpu, use_gib, *band = line.split()
            workload = a_batch_workload(name, mcpu=int(mcpu), gib=int(use_gib))
            workloads.append(replace(workload, band=PriorityBand(band[0])) if band else workload)
        name, _, stall = args.text("stall", "").partition(":")
        if name:
            pct, _, gate = stall.partition(":")
            workloads.append(an_online_workload(name, stall_pct=int(pct), is_throttled=bool(gate)))
        name, _, rate = args.text("slo", "").partition(":")
        if name:
            counts, _, kept = rate.partition(":")
            above, samples = map(int, counts.split("/"))
            workloads.append(an_online_workload(name, business=a_latency(above, samples, breaks_slo=not kept)))
        sample = a_sample(seq=self._seq, zones=list(zip(cpu, gib, strict=True)), workloads=tuple(workloads))
        return self._tell(sample)

    def do_ended(self, args: Args) -> str:
        """at=ms replica cause"""
        args.only("at")
        self._now_ms = args.number("at")
        cause = EndCause(args.word(1))
        job = args.word(0).split("/", maxsplit=1)[0]
        return self._tell(ReplicaEnded(node="n1", replica=args.word(0), job=job, attempt=1, cause=cause, exit_code=143))

    def do_restrict(self, args: Args) -> str:
        """REVISION KIND:SCOPE:TARGET...: what operators forbid from now on."""
        return self._tell(restrictions_changed(args, self._now_ms))

    def do_label(self, args: Args) -> str:
        """at=ms colocation=false pool=online: the node reports itself again, with these labels. A rule closes the pool "online"."""
        args.only("at", "colocation", "pool")
        self._now_ms = args.number("at")
        labels = {COLOCATION_LABEL: args.text("colocation", ""), "pool": args.text("pool", "")}
        return self._tell(a_node(labels={name: value for name, value in labels.items() if value}))

    def do_policy(self, args: Args) -> str:
        """REVISION cpu=pct memory=pct shared.memory=pct: an operator applied this policy; the pool "shared" has an override."""
        args.only("cpu", "memory", "shared.memory")
        given = {name: args.number(name) for name in args.named}
        values = PolicyValues(cpu_evict_pct=given.get("cpu"), memory_evict_pct=given.get("memory"))
        shared = PolicyOverride(
            selector=Selector(labels={"pool": "shared"}),
            values=PolicyValues(memory_evict_pct=given.get("shared.memory")),
        )
        document = ColocationPolicy(defaults=values, overrides=(shared,) if "shared.memory" in given else ())
        return self._tell(PolicyChanged(revision=int(args.word(0)), policy=document))

    def do_stale(self, args: Args) -> str:
        """at=ms: the facts of the node are no longer fresh."""
        self._now_ms = args.number("at")
        return self._tell(
            FreshnessChanged(
                node="n1", freshness=Freshness.STALE, previous=Freshness.FRESH, sample_seq=self._seq, age_ms=10_000
            )
        )

    def do_at(self, args: Args) -> str:
        """The clock shows so many ms; the core is woken if it asked for that."""
        self._now_ms = int(args.word(0))
        due_ms = self._core.deadline_ms()
        return self._tell(Wake()) if due_ms is not None and due_ms <= self._now_ms else ""

    def _tell(self, event: Event) -> str:
        try:
            effects = self._core.handle(event, self._now_ms)
        except InvalidInput as error:
            return f"refused {error}"
        self._core.check()
        return "\n".join(f"{self._now_ms}: -> {_line(effect)}" for effect in effects)


def _line(effect: Effect) -> str:
    if isinstance(effect, Record):
        return "record " + " ".join(f"{write.kind}/{write.id} version {write.expect}" for write in effect.writes)
    fact = effect.fact if isinstance(effect, Publish) else None
    match fact:
        case EvictionRequested():
            ranking = " > ".join(
                f"{rank.replica}({rank.priority}, {rank.used} {rank.unit}{rank.behind and f', behind by {rank.behind}'})"
                for rank in fact.ranking
            )
            if fact.reason in (Reason.NODE_DRAINED, Reason.COLOCATION_OFF):
                return f"requested {fact.replica}: {fact.reason.value} by {fact.asked_by}; {ranking}"
            sign = "<" if fact.reason is Reason.CPU_SATISFACTION else ">="
            level = f"{fact.reason.value} {fact.value_pct}% {sign} {fact.threshold_pct}% for {fact.held_ms} ms"
            online = f"; {fact.online_replicas} online" if fact.online_replicas else ""
            online += f"; {fact.stall_group} stalls {fact.stall_pct}%" if fact.stall_group else ""
            online += f"; {fact.slo_workload} breaks its SLO {fact.violation_pct}%" if fact.slo_workload else ""
            return f"requested {fact.replica}: {level}; {ranking}{online}"
        case NodeDrained():
            return f"drained {fact.node} after {fact.took_ms} ms, {fact.reason.value} by {fact.asked_by}"
        case EvictReplica():
            return f"order {fact.node} evict {fact.replica}#{fact.attempt} grace={fact.grace_ms}"
        case EvictionFinished():
            return f"finished {fact.replica} {fact.cause.value} after {fact.took_ms} ms"
        case _:
            return type(effect).__name__
