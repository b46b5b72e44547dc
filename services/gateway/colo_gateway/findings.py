"""What is wrong, and which command shows more or puts it right: one finding for each condition, the gravest first."""

from collections.abc import Mapping, Sequence
from typing import Final

from colo_common.events.enforcement import OwnCpusOpened
from colo_common.events.fleet import FleetTotals
from colo_common.events.requests import QueueSummary
from colo_common.model.freshness import Freshness
from colo_common.model.open_cpus import open_cpus_text
from colo_common.model.slo import VIOLATION_HARD_PCT
from colo_gateway.harm_reply import LatencySummary
from colo_gateway.recent import RecentCounts
from colo_gateway.state_replies import Finding, ServiceEntry

__all__ = ["BROKEN_PCT_MOST", "LAG_MOST", "findings_of"]

#: A consumer that is more messages behind than this is behind its work, and not only between two deliveries.
LAG_MOST: Final = 5_000
#: Batch work may hold so much more than could be promised now, in percent of all that it holds, before that is a finding: what is
#: promised is lent and taken back by suppression within a second, so some of it is overdrawn whenever online load rises.
BROKEN_PCT_MOST: Final = 10
_FULL_PCT: Final = 90
#: What the bus says by itself and an operator has to look at. Messages that a service ends are dead letters, and told as those.
_TROUBLE: Final = {
    "max-deliveries": "gave a message up after as many deliveries as it may make",
    "consumer-deleted": "was deleted; its service makes it again",
    "consumer-quorum-lost": "has lost the servers that keep it",
    "stream-deleted": "was deleted",
    "stream-quorum-lost": "has lost the servers that keep it and takes nothing",
    "out-of-storage": "has no room on the disk",
}
_NAMED_MOST: Final = 3


def findings_of(
    services: Sequence[ServiceEntry],
    fleet: FleetTotals | None,
    queues: Sequence[QueueSummary] | None,
    recent: RecentCounts,
    latency: LatencySummary,
    open_cpus: Mapping[str, OwnCpusOpened],
) -> tuple[Finding, ...]:
    """The findings about services, nodes, promises, online latency, own CPUs, queues, the bus and dead letters, in this order."""
    found = [finding for entry in services for finding in _of_service(entry)]
    if fleet is not None:
        found += _of_nodes(fleet)
    broken = [one for one in latency.worst if one.violation_pct >= VIOLATION_HARD_PCT]
    if broken:
        worst = broken[0]
        what = f"{worst.workload} on {worst.node} broke its latency SLO in {worst.violation_pct}% of {worst.samples} values"
        more = f" (and {len(broken) - 1} more nodes)" if len(broken) > 1 else ""
        found.append(Finding(what=what + more, do=f"colo get node {worst.node}"))
    if open_cpus:
        nodes = sorted(open_cpus)
        worst_open = open_cpus[nodes[0]]
        what = f"{nodes[0]}: {open_cpus_text(worst_open.cpus, worst_open.groups)}"
        more = f" (and {len(nodes) - 1} more nodes)" if len(nodes) > 1 else ""
        found.append(Finding(what=what + more, do=f"colo get node {nodes[0]}"))
    for queue in queues or ():
        if queue.waiting * 100 >= queue.capacity * _FULL_PCT:
            what = f"queue {queue.queue} is nearly full: {queue.waiting} of {queue.capacity} replicas may wait"
            found.append(Finding(what=what, do=f"colo get jobs --queue {queue.queue} --state Pending"))
    for advice, count in recent.advisories.items():
        kind, _, about = advice.partition(" ")
        if kind in _TROUBLE:
            times = "" if count == 1 else f", {count} times"
            found.append(Finding(what=f"NATS says: {about} {_TROUBLE[kind]}{times}", do="colo admin check"))
    dead = sum(recent.dead_letters.values())
    if dead:
        who = _named([f"{service} {count}" for service, count in recent.dead_letters.items()])
        found.append(Finding(what=f"{dead} messages could not be handled ({who})", do="colo dead-letters list"))
    return tuple(found)


def _of_service(entry: ServiceEntry) -> list[Finding]:
    found = []
    if not entry.is_ready:
        found.append(Finding(what=f"{entry.service} is not ready: {entry.why}", do="colo get services"))
    numbers = sorted({one.partitions for one in entry.instances if one.partitions})
    if len(numbers) > 1:
        what = f"instances of {entry.service} are set to {' and '.join(map(str, numbers))} partitions"
        found.append(Finding(what=f"{what}: those that hold none wait until the others leave", do="colo get services"))
    serving = [one for one in entry.instances if one.held] or entry.instances
    total = max((one.partitions for one in serving), default=0)
    orphans = total - len({partition for one in entry.instances for partition in one.held})
    if orphans > 0:
        what = f"{orphans} of {total} partitions of {entry.service} have no owner"
        if total == 1:
            what = f"no instance of {entry.service} serves: {len(entry.instances)} stand by"
        found.append(Finding(what=what, do="colo get services"))
    missed = sum(one.facts_missed for one in entry.instances)
    if missed:
        what = f"{entry.service} missed facts that a stream discarded before it received them, {missed} times since its start"
        found.append(Finding(what=what, do="colo admin check"))
    losses = sum(one.store_losses for one in entry.instances)
    if losses:
        what = f"{entry.service} found its store emptied or begun again, {losses} times since its start, and put its rows back"
        found.append(Finding(what=what, do="colo doctor --cluster"))
    unrestored = sum(one.unrestored_items for one in entry.instances)
    if unrestored:
        what = f"{unrestored} unfinished jobs are lost with the store and cannot be rebuilt"
        again = f": submit them again, {entry.service} logs their ids as jobs-unknown"
        found.append(Finding(what=what + again, do="colo submit -f FILE --idempotency-key KEY"))
    if entry.pending is not None and entry.pending > LAG_MOST:
        what = f"{entry.service} is {entry.pending} messages behind"
        found.append(Finding(what=what, do="colo get services -o wide"))
    return found


def _of_nodes(fleet: FleetTotals) -> list[Finding]:
    found = []
    for state, meaning in (
        (Freshness.LOST, "send no samples; their replicas were queued again"),
        (Freshness.STALE, "send samples late; batch work only shrinks there"),
    ):
        count = fleet.nodes.get(state.value, 0)
        if count:
            names = f" ({_named(fleet.late)})" if fleet.late else ""
            found.append(Finding(what=f"{count} nodes {meaning}{names}", do="colo get nodes --sort age"))
    if not sum(fleet.nodes.values()):
        found.append(Finding(what="no node has reported itself", do="colo doctor"))
    if fleet.overdrawn_cpu_mcpu * 100 > fleet.held_cpu_mcpu * BROKEN_PCT_MOST:
        worst = fleet.overdrawn[0].node
        what = (
            f"batch work holds {fleet.overdrawn_cpu_mcpu / 1000:.1f} CPU more than could be promised now,"
            f" on {fleet.overdrawn_nodes} nodes"
        )
        found.append(Finding(what=what, do=f"colo explain overcommit {worst}"))
    return found


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_MOST
    return ", ".join(names[:_NAMED_MOST]) + (f" and {more} more" if more > 0 else "")
