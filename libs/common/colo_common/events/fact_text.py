"""A fact as one plain sentence, for people who follow or look back at what happens."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from colo_common.events.audit import RequestAudited
from colo_common.events.enforcement import (
    AttachedGroupsChanged,
    DriftCorrected,
    EnforcementChanged,
    MemoryTerms,
    NodeRecovered,
    OwnCpusOpened,
    PlacementRefused,
    ReplicaEnded,
    ReplicaStarted,
    ZoneCeiling,
    ZoneTerms,
)
from colo_common.events.eviction import EvictionFinished, EvictionRequested, NodeDrained
from colo_common.events.external import ExternalCapacityChanged
from colo_common.events.fact import Fact
from colo_common.events.job import (
    JobStateChanged,
    JobSubmitted,
    MidPlacementsRequested,
    PlacementsRequested,
    QueueChanged,
    ReplicaChange,
    ReplicasChanged,
    ReplicasWithdrawn,
)
from colo_common.events.node import (
    AllocatableChanged,
    FreshnessChanged,
    MemoryEventsGrew,
    NodeTopologyReported,
    PressureCrossed,
)
from colo_common.events.placement import (
    NearestMiss,
    PlacementRejected,
    PlacementsDecided,
    PlacementsReleased,
    PreemptionProposed,
)
from colo_common.events.policy import PolicyChanged
from colo_common.events.reservation import ReservationChanged
from colo_common.events.restriction import RestrictionChange, RestrictionsApplied, RestrictionsChanged
from colo_common.events.service import DeadLettered
from colo_common.model.duration import span_text
from colo_common.model.open_cpus import close_cpus_text, open_cpus_text
from colo_common.model.quantity import bytes_text, cpu_text
from colo_common.model.reasons import SENTENCES, EndCause, Reason
from colo_common.model.restriction import restriction_text
from colo_common.model.shortage import most_text, shortage_text

__all__ = ["SIGNALS", "ended_text", "fact_text", "level_text", "memory_text", "nearest_text", "several", "zones_text"]

_LINE_MOST: Final = 300
_SHOWN_MOST: Final = 3
_ENVELOPE: Final = frozenset({"at_ms", "producer", "boot_id", "seq", "sent_us", "traceparent"})

#: What each signal of the evictor measures.
SIGNALS: Final = {
    Reason.MEMORY_WATERMARK: "memory in use",
    Reason.CPU_WATERMARK: "CPU in use",
    Reason.CPU_SATISFACTION: "CPU that batch work gets of its request",
    Reason.ONLINE_STALLED: "wait of online work for a CPU",
    Reason.ONLINE_SLO_BROKEN: "values of online latency that break its SLO",
}
_DRAINS: Final = {
    Reason.NODE_DRAINED: "the node is drained",
    Reason.COLOCATION_OFF: "the node takes no batch work any more",
}
#: Why batch work may begin to keep to whole cores, or no longer has to, with the ceiling that it had.
_OF_CORES: Final = frozenset(
    {
        Reason.ONLINE_STALL_CORES,
        Reason.ONLINE_SLO,
        Reason.ONLINE_SLO_KEPT,
        Reason.ONLINE_SLO_OTHERWISE,
        Reason.ONLINE_STALL_FELL,
        Reason.ONLINE_STALL_OTHERWISE,
        Reason.ONLINE_LOAD_FELL,
    }
)
_STALLS: Final = {"cpu": "CPU", "memory": "memory", "io": "disk"}


def fact_text(fact: Fact) -> str:
    """The fact in at most 300 characters, without its time; lists name their first three members."""
    text = _TEXTS.get(type(fact), _fields_text)(fact)
    return text if len(text) <= _LINE_MOST else text[: _LINE_MOST - 3] + "..."


def several(members: Sequence[str]) -> str:
    """The first three members and the number of the others: "a, b, c and 2 more"."""
    more = len(members) - _SHOWN_MOST
    return ", ".join(members[:_SHOWN_MOST]) + (f" and {more} more" if more > 0 else "")


def level_text(fact: EvictionRequested) -> str:
    """Value, threshold and hold of the signal: "memory in use 93% >= 92% for 3.0s"; of a drain, who asked for it and when."""
    if fact.reason in _DRAINS:
        return f"{_DRAINS[fact.reason]}, by {fact.asked_by or 'an operator'} {span_text(fact.held_ms)} before"
    sign = "<" if fact.reason is Reason.CPU_SATISFACTION else ">="
    what = SIGNALS.get(fact.reason, fact.reason.value)
    about = fact.stall_group or fact.slo_workload
    what += f" ({about})" if about else ""
    return f"{what} {fact.value_pct}% {sign} {fact.threshold_pct}% for {span_text(fact.held_ms)}"


def nearest_text(miss: NearestMiss | None, *, never: bool) -> str:
    """What the nearest node lacks; with `never`, that no node could hold the replica even when empty."""
    fields = {} if miss is None else msgspec.structs.asdict(miss)
    if never:
        text = "no node could hold it even when empty"
        return f"{text}: {most_text(**fields)}" if fields else text
    return f"nearest: {shortage_text(**fields)}" if fields else ""


def ended_text(cause: EndCause, exit_code: int | None) -> str:
    """How an attempt ended: "succeeded", "failed with exit code 1", "was evicted", "ran out of memory"."""
    if cause is EndCause.EXITED:
        return "succeeded" if exit_code == 0 else f"failed with exit code {exit_code}"
    return _ENDS[cause]


_ENDS: Final = {
    EndCause.EXITED: "exited",
    EndCause.EVICTED: "was evicted",
    EndCause.STOPPED: "was stopped",
    EndCause.OOM: "ran out of memory",
    EndCause.DISK: "was over its limit of disk",
    EndCause.LOST: "ended, and nobody saw how",
    EndCause.START_FAILED: "could not be started",
}


def _reason(reason: Reason | None) -> str:
    return "" if reason is None else f": {SENTENCES[reason]}"


def _attempts(pairs: Iterable[tuple[str, int]]) -> str:
    return several([replica for replica, _ in pairs])


def _submitted(fact: JobSubmitted) -> str:
    count = fact.spec.replica_count
    return f"job {fact.job} submitted: {count} replica{'' if count == 1 else 's'}, queue {fact.spec.queue}"


def _job_changed(fact: JobStateChanged) -> str:
    return f"job {fact.job}: {fact.previous} -> {fact.state}" + (f" ({fact.reason})" if fact.reason else "")


def _replicas_changed(fact: ReplicasChanged) -> str:
    """The moves of each replica in one path: "j: main/0 Pending -> Assigned -> Running on node-01"."""
    paths: dict[str, list[ReplicaChange]] = {}
    for change in fact.changes:
        paths.setdefault(change.replica.removeprefix(f"{fact.job}/"), []).append(change)
    return f"{fact.job}: " + several([_path(replica, moves) for replica, moves in paths.items()])


def _path(replica: str, moves: list[ReplicaChange]) -> str:
    states = " -> ".join([moves[0].previous, *(move.state for move in moves)])
    node = next((f" on {move.node}" for move in reversed(moves) if move.node), "")
    why = next(
        (
            f" ({move.reason.value if move.reason else ended_text(move.cause, move.exit_code)})"
            for move in reversed(moves)
            if move.cause is not None
        ),
        "",
    )
    return f"{replica} {states}{node}{why}"


def _requested(fact: PlacementsRequested | MidPlacementsRequested) -> str:
    return "wanted a place: " + several([each.replica for each in fact.placement_requests])


def _withdrawn(fact: ReplicasWithdrawn) -> str:
    return f"no longer wanted a place: {_attempts(fact.attempts)}{_reason(fact.reason)}"


def _queue(fact: QueueChanged) -> str:
    return f"queue {fact.queue}: {fact.waiting} waiting, {fact.running} running"


def _decided(fact: PlacementsDecided) -> str:
    places = []
    for placement in fact.placements:
        zones = ",".join(str(share.zone) for share in placement.zones)
        plural = "s" if len(placement.zones) > 1 else ""
        places.append(f"{placement.replica} on {placement.node} zone{plural} {zones}")
    return "placed " + several(places)


def _rejected(fact: PlacementRejected) -> str:
    if fact.broken_rule:
        return f"{fact.replica} is not tried: {fact.broken_rule}"
    if fact.newest_over:
        return f"{fact.replica} needs a newer attempt: {fact.newest_over} was used before under this id"
    counts = ", ".join(f"{count.nodes} {count.reason.value}" for count in fact.counts)
    nearest = nearest_text(fact.nearest, never=fact.never)
    waiting = f"{fact.replica} waits: 0 of {fact.nodes} nodes fit"
    return waiting + (f" ({counts})" if counts else "") + (f"; {nearest}" if nearest else "")


def _proposed(fact: PreemptionProposed) -> str:
    victims = several([victim.replica for victim in fact.proposal.victims])
    return f"{fact.replica} would fit on {fact.proposal.node} if {victims} left"


def _released(fact: PlacementsReleased) -> str:
    return "gave back the place of " + several([f"{_attempts(each.attempts)} on {each.node}" for each in fact.nodes])


def _reservation(fact: ReservationChanged) -> str:
    where = f" on {fact.node}" if fact.node else ""
    owners = f", {fact.owners} owner{'' if fact.owners == 1 else 's'}" if fact.owners else ""
    return f"reservation {fact.reservation}: {fact.phase}{where}{owners}" + (f" ({fact.reason})" if fact.reason else "")


def _started(fact: ReplicaStarted) -> str:
    return f"{fact.replica} runs on {fact.node} (attempt {fact.attempt})"


def _ended(fact: ReplicaEnded) -> str:
    detail = f" ({fact.detail})" if fact.detail else ""
    reason = _reason(fact.reason) if fact.cause is not EndCause.EXITED else ""
    ran = f" after {span_text(fact.ran_ms)}" if fact.ran_ms else ""
    return f"{fact.replica} {ended_text(fact.cause, fact.exit_code)} on {fact.node}{ran}{reason}{detail}"


def _refused(fact: PlacementRefused) -> str:
    return f"{fact.node} refused {fact.replica}{_reason(fact.reason)}" + (f" ({fact.detail})" if fact.detail else "")


def _enforcement(fact: EnforcementChanged) -> str:
    before, now = cpu_text(fact.ceiling_before_mcpu), cpu_text(fact.ceiling_mcpu)
    online = f" (online uses {cpu_text(fact.online_cpu_used_mcpu)} CPU)"
    if fact.slo_workload:
        broke = f", {fact.slo_workload} broke its SLO in {fact.violation_pct} % of its values"
        online = f" (online uses {cpu_text(fact.online_cpu_used_mcpu)} CPU{broke})"
    elif fact.memory is not None:
        online = f" (online uses {cpu_text(fact.online_cpu_used_mcpu)} CPU, {memory_text(fact.memory)})"
    elif fact.rule == "stall":
        waited = f", {fact.stall_group} waited {fact.stall_pct} % of the time" if fact.stall_group else ""
        online = f" (online uses {cpu_text(fact.online_cpu_used_mcpu)} CPU{waited})"
    is_as_before = fact.ceiling_before_mcpu == fact.ceiling_mcpu
    if tells_of_freeze(fact):
        what = "would be" if fact.observed else "is"
        state = f"{what} frozen" if fact.frozen else f"{what} no longer frozen and may use {now} CPU"
        return f"{fact.node}: all batch work {state}{_reason(fact.reason)}{online}"
    may = "could use (nothing is written)" if fact.observed else "may use"
    way = "as before" if is_as_before else f"before {before}"
    cores = ", on whole cores" if fact.whole_cores else ""
    zones = f", {zones_text(fact.zones, fact.zone_terms)}" if fact.zones else ""
    return f"{fact.node}: batch {may} {now} CPU, {way}{cores}{zones}{_reason(fact.reason)}{online}"


def tells_of_freeze(fact: EnforcementChanged) -> bool:
    """Whether the fact tells that batch work was frozen or runs again: nothing else leaves the ceiling as it was, but a zone's
    ceiling and whole cores.
    """
    if fact.ceiling_before_mcpu != fact.ceiling_mcpu or fact.zone is not None:
        return False
    return fact.frozen or fact.reason not in _OF_CORES


def zones_text(zones: Sequence[ZoneCeiling], terms: Sequence[ZoneTerms] = ()) -> str:
    """How much CPU batch work may use in each of the zones, of what the zone has, and what online work uses there, if known."""
    known = {each.zone: each for each in terms}
    return ", ".join(
        f"in zone {each.zone} {cpu_text(each.ceiling_mcpu)} of {cpu_text(each.capacity_mcpu)}"
        + _online_there(known.get(each.zone))
        for each in zones
    )


def memory_text(terms: MemoryTerms) -> str:
    """What memory carried of what it sustains: "memory of zone 0 carried 85 % of what it sustains: 68.0 of 80.0 GB/s"."""
    whose = "the machine's memory" if terms.zone is None else f"memory of zone {terms.zone}"
    used, most = terms.bytes_per_s / 1e9, terms.most_bytes_per_s / 1e9
    pct = terms.bytes_per_s * 100 // max(1, terms.most_bytes_per_s)
    return f"{whose} carried {pct} % of what it sustains: {used:.1f} of {most:.1f} GB/s"


def _online_there(terms: ZoneTerms | None) -> str:
    if terms is None:
        return ""
    most = "" if terms.node_most_mcpu is None else f", so at most {cpu_text(terms.node_most_mcpu)} of the node"
    return f" (online uses {cpu_text(terms.online_used_mcpu)} there{most})"


def _drift(fact: DriftCorrected) -> str:
    if fact.observed:
        return _withheld(fact)
    if not fact.knobs:
        what = (
            f"cannot keep as it should be: {several(fact.failed)}" if fact.failed else "keeps all as it should be again"
        )
        return f"{fact.node}: its executor {what}"
    what = several([f"{knob.path} was {knob.before}, is {knob.value} again" for knob in fact.knobs])
    failed = f"; not restored: {several(fact.failed)}" if fact.failed else ""
    files = f"{fact.count} kernel file{'' if fact.count == 1 else 's'}"
    return f"{fact.node}: {_writers(fact)} changed {files}: {what}{failed}{_evidence(fact)}"


def _writers(fact: DriftCorrected) -> str:
    """Who changed the files: by name where something speaks for the writer of each."""
    known = {writer.path: writer.writer for writer in fact.writers}
    names = {known.get(knob.path, "unknown") for knob in fact.knobs}
    if not names or "unknown" in names or len(fact.knobs) + len(fact.failed) < fact.count or fact.failed:
        return "another program"
    return " and ".join(sorted(names))


def _evidence(fact: DriftCorrected) -> str:
    found = dict.fromkeys(writer.evidence for writer in fact.writers)
    return f" ({several(list(found))})" if found else ""


def _withheld(fact: DriftCorrected) -> str:
    what = several([f"{knob.path} = {knob.value}" + f" (now {knob.before})" * bool(knob.before) for knob in fact.knobs])
    failed = f"; not possible: {several(fact.failed)}" if fact.failed else ""
    if not fact.count:
        return f"{fact.node}: nothing would be written there"
    if not fact.knobs:
        return f"{fact.node}: would write nothing{failed}"
    values = f"{fact.count} kernel value{'' if fact.count == 1 else 's'}"
    return f"{fact.node}: would write, and leaves as they are, {values}: {what}{failed}"


def _recovered(fact: NodeRecovered) -> str:
    count = len(fact.running)
    remarks = "".join(f"; {remark}" for remark in fact.remarks)
    return (
        f"{fact.node}: its executor started, {count} replica{'' if count == 1 else 's'} still run{'s' * (count == 1)}"
        f"{remarks}"
    )


def _attached(fact: AttachedGroupsChanged) -> str:
    """ "node-03: attached: web/main/0 in system.slice/nginx.service"."""
    groups = [f"{each.replica} in {each.group}" for each in fact.groups]
    return f"{fact.node}: attached: {several(groups)}" if groups else f"{fact.node}: nothing is attached"


def _opened(fact: OwnCpusOpened) -> str:
    if not fact.cpus:
        return f"{fact.node}: the CPUs of LSE and LSR work are its alone"
    return f"{fact.node}: {open_cpus_text(fact.cpus, fact.groups)}: {close_cpus_text(fact.groups)}"


def _topology(fact: NodeTopologyReported) -> str:
    topology = fact.topology
    size = f"{cpu_text(topology.cpu_capacity_mcpu)} CPU, {bytes_text(topology.memory_capacity_bytes)}"
    zones = f"{len(topology.zones)} zone{'' if len(topology.zones) == 1 else 's'}"
    return f"{fact.node} is a machine of {size}, {zones}" + (", simulated" if fact.simulated else "")


def _allocatable(fact: AllocatableChanged) -> str:
    size = f"{cpu_text(fact.batch_cpu_mcpu)} CPU, {bytes_text(fact.batch_memory_bytes)}"
    return f"{fact.node}: batch work may be promised {size}, {cpu_text(fact.headroom_cpu_mcpu)} CPU of it free"


def _freshness(fact: FreshnessChanged) -> str:
    age = f", newest sample {span_text(fact.age_ms)} old" if fact.age_ms else ""
    return f"{fact.node}: samples {fact.previous.value} -> {fact.freshness.value}{age}"


def _pressure(fact: PressureCrossed) -> str:
    resource, _, share = fact.signal.partition("_")
    who = "some work" if share == "some" else "all work"
    way = "rose over" if fact.above else "fell under"
    value = f"{fact.value_pct}% of the last {span_text(fact.window_ms)}"
    return f"{fact.node}: {who} stalled on {_STALLS[resource]} {way} {fact.threshold_pct}%: {value}"


def _memory_events(fact: MemoryEventsGrew) -> str:
    counts = (
        (fact.oom_kill_events, "killed a process"),
        (fact.oom_events, "out of memory"),
        (fact.max_events, "at its limit"),
        (fact.high_events, "throttled"),
    )
    return (
        f"{fact.node}: memory of {fact.workload}: {', '.join(f'{what} {count} x' for count, what in counts if count)}"
    )


def _eviction(fact: EvictionRequested) -> str:
    others = max(fact.candidates, len(fact.ranking)) - 1
    spared = f"; {others} other candidate{'' if others == 1 else 's'}" if others > 0 else ""
    return f"{fact.node}: {fact.replica} must leave: {level_text(fact)}{spared} ({fact.eviction})"


def _evicted(fact: EvictionFinished) -> str:
    return (
        f"{fact.node}: {fact.replica} {_LEFT[fact.cause]} {span_text(fact.took_ms)} after the order ({fact.eviction})"
    )


def _drained(fact: NodeDrained) -> str:
    what = "batch replica" if fact.batch_only else "replica"
    by = f", asked by {fact.asked_by}" if fact.asked_by else ""
    return f"{fact.node}: drained, no {what} is left {span_text(fact.took_ms)} after the beginning{by}"


_LEFT: Final = {**dict.fromkeys(EndCause, "left"), EndCause.LOST: "did not leave in time, counted as lost"}


def _restrictions(fact: RestrictionsChanged) -> str:
    changes = [_restriction_change(change) for change in fact.audit]
    return several(changes) if changes else f"{len(fact.restrictions)} restrictions are in force"


def _policy(fact: PolicyChanged) -> str:
    """ "colocation policy 4 applied by ana: more headroom", or rolled back to an earlier revision."""
    what = f"rolled back to {fact.rolled_back_to}" if fact.rolled_back_to else "applied"
    by = f" by {fact.by}" if fact.by else ""
    return f"colocation policy {fact.revision} {what}{by}{f': {fact.reason}' if fact.reason else ''}"


def _external(fact: ExternalCapacityChanged) -> str:
    """ "node-03: yarn gives batch work at most 4 CPU, 8Gi", or that nobody bounds it any more."""
    parts = []
    for each in fact.entries:
        cpu = "" if each.cpu_mcpu is None else f"{cpu_text(each.cpu_mcpu)} CPU"
        memory = "" if each.memory_bytes is None else bytes_text(each.memory_bytes)
        parts.append(f"{each.source} gives batch work at most {', '.join(filter(None, (cpu, memory)))}")
    return f"{fact.node}: {'; '.join(parts) or 'no system outside bounds batch work'}"


def _restriction_change(change: RestrictionChange) -> str:
    """ "node node-03 cordoned by ana: kernel upgrade", "node node-03 no longer cordoned, lifted by ben: done"."""
    each = change.restriction
    what = f"{each.scope.value} {each.target}" if each.target else "the whole fleet"
    if change.action in ("set", "changed"):
        return f"{what} {restriction_text(each)}"
    by = f" by {change.by}" if change.by else ""
    why = f": {change.reason}" if change.reason else ""
    ended = f"lifted{by}{why}" if change.action == "lifted" else "its time is over"
    return f"{what} no longer {restriction_text(each)} ({ended})"


def _restrictions_applied(fact: RestrictionsApplied) -> str:
    failed = f"; failed: {several(fact.failed)}" if fact.failed else ""
    return f"{fact.node}: does what its restrictions ask, {fact.suspended} batch replicas are suspended{failed}"


def _dead(fact: DeadLettered) -> str:
    return f"{fact.service} could not handle a message of {fact.subject}: {fact.reason}"


def _fields_text(fact: Fact) -> str:
    """A fact without words of its own: its fields as "name value", lists and structs by their size."""
    parts = []
    for name in fact.__struct_fields__:
        value = getattr(fact, name)
        if name in _ENVELOPE or value in ("", None, (), {}) or value is False:
            continue
        if isinstance(value, (tuple, dict)):
            parts.append(f"{len(value)} {name.replace('_', ' ')}")
        elif not isinstance(value, msgspec.Struct):
            parts.append(f"{name.replace('_', ' ')} {value}")
    return ", ".join(parts)


def _audited(fact: RequestAudited) -> str:
    """Who asked for what, and what became of it."""
    about = [f"tenant {fact.tenant}"] if fact.tenant else []
    about += [f"job {fact.job}"] if fact.job and fact.job not in fact.path else []
    text = f"{fact.who} ({fact.how}, {fact.address or 'unknown address'}): {fact.method} {fact.path} {fact.status}"
    text += f", {', '.join(about)}" if about else ""
    text += f": {fact.reason}" if fact.reason else ""
    return f"{text} ({fact.alike} more like it before)" if fact.alike else text


_TEXTS: Final[dict[type[Fact], Callable[..., str]]] = {
    AllocatableChanged: _allocatable,
    DeadLettered: _dead,
    DriftCorrected: _drift,
    RequestAudited: _audited,
    EnforcementChanged: _enforcement,
    EvictionFinished: _evicted,
    EvictionRequested: _eviction,
    FreshnessChanged: _freshness,
    JobStateChanged: _job_changed,
    JobSubmitted: _submitted,
    NodeDrained: _drained,
    NodeRecovered: _recovered,
    AttachedGroupsChanged: _attached,
    OwnCpusOpened: _opened,
    NodeTopologyReported: _topology,
    PlacementRefused: _refused,
    PlacementRejected: _rejected,
    PlacementsDecided: _decided,
    PlacementsReleased: _released,
    PlacementsRequested: _requested,
    MidPlacementsRequested: _requested,
    ExternalCapacityChanged: _external,
    PolicyChanged: _policy,
    PreemptionProposed: _proposed,
    MemoryEventsGrew: _memory_events,
    PressureCrossed: _pressure,
    QueueChanged: _queue,
    ReplicaEnded: _ended,
    ReplicaStarted: _started,
    ReplicasChanged: _replicas_changed,
    ReplicasWithdrawn: _withdrawn,
    ReservationChanged: _reservation,
    RestrictionsApplied: _restrictions_applied,
    RestrictionsChanged: _restrictions,
}
