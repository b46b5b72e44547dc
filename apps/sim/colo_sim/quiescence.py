"""Whether a simulated world has settled (all views of the placements are equal), and whether work is pending."""

from __future__ import annotations

from collections.abc import Iterator

from colo_common.model.lifecycle import JOB
from colo_sim.event_queue import at_once
from colo_sim.world_cluster import SimCluster

__all__ = ["differences", "pending_work"]


def differences(world: SimCluster) -> list[str]:
    """Differences between the ledger, the services' memories and the machines, as sentences; empty when all agree."""
    rows = world.ledger.all_rows()
    held = {r.attempt: row.node for row in rows for r in row.holds}
    found = [f"{p.key} is down" for p in world.processes() if not p.is_up]
    if found:
        return found
    for key, core in world.scheduler_cores.items():
        found += _compare(key, {attempt: one.placement.node for attempt, one in core.commits.held.items()}, held)
    for key, overcommit in world.overcommit_cores.items():
        known = {_attempt(each): name for name, node in overcommit.nodes.items() for each in node.held.attempts}
        found += _compare(key, known, held)
    found += [*_unshared(world)]
    running: dict[tuple[str, int], str] = {}
    machines: dict[tuple[str, int], str] = {}
    for name, node in world.nodes.items():
        if node.is_lost_for_good:
            continue
        for replica, active in world.executor_core(node).active.items():
            running[replica, active.placement.attempt] = name
        for one in node.machine.counters().replicas:
            machines[one.replica, one.attempt] = name
    found += _compare("executors", running, held)
    found += _compare("machines", machines, held)
    placed = {
        (job.name(index), replica.attempt): replica.node
        for core in world.jobs_cores
        for job in core.index.jobs.values()
        for index, replica in job.replicas()
        if replica.node and replica.state in ("Assigned", "Starting", "Running", "Stopping", "Unknown")
    }
    found += _compare("jobs", placed, held)
    found += [f"{name}: {count} messages are not acknowledged" for name, count in _undelivered(world)]
    return found


def pending_work(world: SimCluster) -> list[str]:
    """Pending work, as sentences; empty when every job ended as it should, and nothing is held or waiting."""
    if world.store.fault is not None:
        return [str(world.store.fault)]
    found = differences(world)
    stored = {row.id for row in at_once(world.store.load("job"))}
    states = world.invariant_checker.job_states
    for plan in world.client.plans:
        state = states.get(plan.job, "never stored")
        if plan.job not in world.client.accepted:
            found.append(f"{plan.job} was not accepted")
        elif plan.job not in stored:
            found.append(f"{plan.job} was accepted and is lost")
        elif state not in JOB.terminal:
            found.append(f"{plan.job} is {state}: {_replicas(world, plan.job)}")
        elif plan.job not in world.client.cancelled and state != "Completed":
            found.append(f"{plan.job} ended as {state}")
    if world.operator.done < len(world.operator.plans):
        found.append(f"{world.operator.done} of {len(world.operator.plans)} restrictions are over")
    found += [f"{r.attempt} is held on {row.node}" for row in world.ledger.all_rows() for r in row.holds]
    found += [f"outbox of {name} is not empty" for name in ("jobs", "evictor") if _outbox(world, name)]
    for core in world.jobs_cores:
        for name, queue in core.index.queues.items():
            if queue.waiting or queue.running:
                found.append(f"queue {name}: {queue.waiting} wait, {queue.running} run")
    for key, evictor in world.evictor_cores.items():
        found += [f"{key}: a victim is on its way on {name}" for name, node in evictor.own_nodes() if node.terminating]
    for attempt, node in world.invariant_checker.placed.items():
        if attempt not in world.invariant_checker.reported:
            found.append(f"{attempt} was placed on {node} and never reported again")
    return found


def _unshared(world: SimCluster) -> Iterator[str]:
    """Partitions that not just one instance holds."""
    for service, cores in (("overcommit", world.overcommit_cores), ("evictor", world.evictor_cores)):
        for partition in range(world.partitions[service]):
            holders = [key for key, core in cores.items() if core.partitions.holds(partition)]
            if len(holders) != 1:
                yield f"{service}: {holders} hold partition {partition}"
    for partition in range(world.partitions["jobs"]):
        holding = [core for core in world.jobs_cores if core.share.partition == partition]
        if len(holding) != 1:
            yield f"jobs: {len(holding)} cores have partition {partition}"


def _compare(view_name: str, view: dict[tuple[str, int], str], held: dict[tuple[str, int], str]) -> Iterator[str]:
    for attempt in sorted(view.keys() | held.keys()):
        if view.get(attempt) != held.get(attempt):
            yield f"{view_name}: {attempt} on {view.get(attempt)}, the ledger says {held.get(attempt)}"


def _undelivered(world: SimCluster) -> Iterator[tuple[str, int]]:
    lost = [f"-{node.name}-" for node in world.nodes.values() if node.is_lost_for_good]
    partitions = world.partitions["jobs"]
    for name, count in world.bus.undelivered().items():
        # Nobody reads the consumers of another number of partitions any more.
        is_left = partitions and "colo-jobs-" in name and f"-of-{partitions}-" not in name
        if not is_left and not any(part in name for part in lost):
            yield name, count


def _outbox(world: SimCluster, service: str) -> bool:
    return bool(at_once(world.store.load(f"outbox-{service}")))


def _replicas(world: SimCluster, job: str) -> list[str]:
    found = world.job(job)
    if found is None:
        return []
    return [f"{found.name(i)}#{r.attempt} {r.state} {r.node}" for i, r in found.replicas()]


def _attempt(key: str) -> tuple[str, int]:
    replica, _, number = key.rpartition("#")
    return replica, int(number)
