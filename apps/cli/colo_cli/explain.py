"""The commands `colo explain job JOB` and `colo explain overcommit NODE`."""

import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from cyclopts import Parameter

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.event_lines import moment, print_clock
from colo_cli.holds import holds_text
from colo_cli.output import Format, bytes_text, counted, cpu_text, print_data, print_table, print_text, span_text
from colo_cli.risk_text import risk_lines
from colo_cli.waterfall import bar_of, steps_of
from colo_cli.which_job import ask_job, split_replica

if TYPE_CHECKING:
    from colo_common.events.node import AllocatableChanged, Term
    from colo_common.events.placement import NodeScore
    from colo_common.events.requests import DecisionRecord
    from colo_common.model.workload import JobSpec
    from colo_gateway.replies import JobExplained, ReplicaExplained

__all__ = ["job", "names_text", "overcommit"]

#: Cells of a bar of the waterfall.
_BAR: Final = 24
_AGE: Final = "AGE>"
_PLACED: Final = ("Assigned", "Starting", "Running", "Unknown", "Stopping")
_TABLES_SHOWN: Final = 8
_ROWS_SHOWN: Final = 5
_STORY_SHOWN: Final = 20
_SPARED_SHOWN: Final = 3
_TASKS_SHOWN: Final = 10
Output = Annotated[Format, Parameter(name=["--output", "-o"])]


def job(
    job: str,
    /,
    *,
    replica: str = "",
    whole: Annotated[bool, Parameter(name="--all")] = False,
    output: Output = "table",
    api: str | None = None,
) -> int:
    """Explain why each replica is where it is, or what it waits for: its story, every eviction, its place in the queue.

    Example: `colo explain job train`.

    Args:
        job: The job's id, the beginning of it, or its name; "job/task/index" for one replica.
        replica: Only this replica ("task/index").
        whole: The whole story that is kept; without it the newest 20 lines, the submission and every eviction.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    job, replica = split_replica(job, replica)
    answer = ask_job(Client(api), job, "explain", replica=replica)
    if output != "table":
        print_data(answer, output)
        return 0
    from colo_gateway.replies import JobExplained

    reply = answer_as(answer, JobExplained)
    summary = reply.job.summary
    tenant = "" if summary.tenant == "default" else f", tenant {summary.tenant}"
    print_text(f"{summary.job}: {summary.state}, queue {summary.queue}{tenant}, {counted(summary.replicas, 'replica')}")
    print_clock(reply.clock_speed)
    _print_amounts(reply.job.spec)
    print()
    # The job was named above: "main/0" is what --replica takes.
    own = f"{summary.job}/"
    for item in reply.replicas:
        print_text(f"{item.replica.removeprefix(own)}: {item.sentence.replace(own, '')}")
        _print_place(item)
    _print_scores(reply.replicas)
    if reply.partial:
        print()
        print_text(f"The scheduler's view is missing: {reply.partial}")
    if reply.wait_sentence:
        print()
        print_text(f"Wait: {reply.wait_sentence.replace(own, '')}")
    _print_evictions(reply)
    _print_story(reply, whole=whole)
    return 0


def _print_amounts(spec: "JobSpec") -> None:
    """What each task requests, which is promised, and its limits, which the node enforces (none of CPU: what is idle)."""
    for task in spec.tasks[:_TASKS_SHOWN]:
        limits = task.run.limits
        cpu_mcpu, memory_bytes = (limits.cpu_mcpu, limits.memory_bytes) if limits is not None else (0, 0)
        cpu = f"CPU {cpu_text(cpu_mcpu)}" if cpu_mcpu else "CPU none"
        # Nothing is limited of what runs already, unless the job says so.
        least_bytes = 0 if task.run.attach else task.request.memory_bytes
        memory = bytes_text(memory_bytes or least_bytes) if memory_bytes or least_bytes else "none"
        requests = f"CPU {cpu_text(task.request.cpu_mcpu)}, memory {bytes_text(task.request.memory_bytes)}"
        each = f"each of {task.replicas} " if task.replicas > 1 else ""
        print_text(f"{task.name}: {each}requests {requests}; limits {cpu}, memory {memory}")
        if (attach := task.run.attach) is not None:
            ends = "a stop ends its processes" if attach.kill_on_stop else "a stop leaves its processes alone"
            print_text(f"{task.name}: attached to {attach.unit or attach.cgroup}, which somebody else starts; {ends}")
    more = len(spec.tasks) - _TASKS_SHOWN
    if more > 0:
        print(f"and {counted(more, 'task')} more; --output json lists them")


def overcommit(node: str, /, *, output: Output = "table", api: str | None = None) -> int:
    """Show the formula behind a node's batch allocatable with every term, value, unit, source and age.

    Args:
        node: The node's name.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    client = Client(api)
    answer = client.get(f"/v1/nodes/{urllib.parse.quote(node, safe='')}/explain")
    if output != "table":
        print_data(answer, output)
        return 0
    from colo_common.events.requests import NodeExplained

    reply = answer_as(answer, NodeExplained)
    published = reply.published
    print_text(
        f"{node}: batch allocatable {cpu_text(published.batch_cpu_mcpu)} CPU, {bytes_text(published.batch_memory_bytes)};"
        f" headroom {cpu_text(published.headroom_cpu_mcpu)} CPU, {bytes_text(published.headroom_memory_bytes)};"
        f" sample {published.sample_seq}, {span_text(reply.age_ms)} old, facts {published.freshness.value}"
    )
    print_clock(client.clock_speed)
    print()
    print_text(published.explanation.formula)
    print()
    for prefix, show in (("cpu", cpu_text), ("memory", bytes_text)):
        _print_terms(published, prefix, show)
        _print_waterfall(published, prefix, show)
    for term in published.explanation.terms:
        if term.zone is None:
            age = f", {span_text(term.age_ms)} old" if term.age_ms is not None else ""
            print_text(f"{term.name} {_term_text(term, str)} ({term.source}{age}); shown beside the formula")
    for line in risk_lines(published.risk) if published.risk is not None else ():
        print_text(line)
    return 0


def _print_evictions(reply: "JobExplained") -> None:
    """Print every eviction that the gateway knows, and how many it does not know."""
    known = reply.evictions
    counted_ones = sum(each.evictions for each in reply.job.replicas)
    if known or counted_ones:
        print("\nEvictions (`colo explain eviction ID` shows all candidates):")
    for each in known:
        print_text(f"  {moment(each.at_ms)}  {each.eviction}  {each.sentence}", indent=14)
        spared = [f"{other.replica} ({other.why})" for other in each.not_chosen]
        more = f" and {len(spared) - _SPARED_SHOWN} more" if len(spared) > _SPARED_SHOWN else ""
        if spared:
            print_text(f"{' ' * 14}not chosen: {', '.join(spared[:_SPARED_SHOWN])}{more}", indent=16)
    if counted_ones > len(known):
        print(f"  {counted(counted_ones - len(known), 'eviction')} more, from before the gateway started or long ago")


def _print_story(reply: "JobExplained", *, whole: bool) -> None:
    story = reply.job.story
    if not story:
        return
    first_ms = story[0].at_ms
    shown = [
        number
        for number, line in enumerate(story)
        if whole or number == 0 or number >= len(story) - _STORY_SHOWN or "evicted" in line.what
    ]
    own = f"{reply.job.summary.job}/"
    print(f"\nStory (begins at {moment(first_ms)}; times since then):")
    before = -1
    for number in shown:
        if number > before + 1:
            print(f"  {'...':>9}  {counted(number - before - 1, 'earlier line')} (--all)")
        line = story[number]
        what = line.what.replace(own, "")
        print_text(f"  +{span_text(max(line.at_ms - first_ms, 0)):>8}  {what}", indent=15)
        before = number


def _print_terms(published: "AllocatableChanged", prefix: str, show: Callable[[int], str]) -> None:
    terms: dict[str, dict[int | None, Term]] = {}
    for term in published.explanation.terms:
        if term.name.startswith(prefix + "_"):
            terms.setdefault(term.name, {})[term.zone] = term
    by_id = {zone.zone: zone for zone in published.zones}
    zones = sorted(by_id)
    rows: list[list[str]] = []
    for name, by_zone in terms.items():
        # LSE work holds CPUs of some zones only; its term has no value for the other zones.
        values = [_term_text(by_zone[zone], show) if zone in by_zone else "-" for zone in zones]
        first = next(iter(by_zone.values()))
        rows.append([name, *values, _age_text(by_zone.values()), first.source])
    field = {"cpu": "cpu_mcpu", "memory": "memory_bytes"}[prefix]
    for kind in ("batch", "headroom"):
        label = "= allocatable" if kind == "batch" else "= headroom"
        rows.append([label, *(show(getattr(by_id[zone], f"{kind}_{field}")) for zone in zones), "", "formula"])
    if published.mid:
        mid = {zone.zone: getattr(zone, field) for zone in published.mid}
        rows.append(["= mid tier", *(show(mid.get(zone, 0)) for zone in zones), "", "formula"])
    _print_with_ages([prefix.upper(), *(f"ZONE {z}>" for z in zones), _AGE, "SOURCE"], rows)
    print()


def _print_waterfall(published: "AllocatableChanged", prefix: str, show: Callable[[int], str]) -> None:
    """Print the steps from the node's capacity to its allocatable, with a bar each."""
    steps = steps_of(published, prefix)
    if not steps:
        return
    rows = [
        [
            step.name,
            show(abs(step.change)) if step.change else "",
            show(step.left),
            "" if step.age_ms is None else span_text(step.age_ms),
            bar_of(step, steps[0].left, _BAR),
        ]
        for step in steps
    ]
    _print_with_ages([f"{prefix.upper()} OF THE NODE", "STEP>", "LEFT>", _AGE, "BAR"], rows)
    print()


def _print_with_ages(headers: list[str], rows: list[list[str]]) -> None:
    """Print the table, without the column of ages where no term says its age, as those of an older service."""
    at = headers.index(_AGE)
    if not any(row[at] for row in rows):
        headers = headers[:at] + headers[at + 1 :]
        rows = [row[:at] + row[at + 1 :] for row in rows]
    print_table(headers, rows, "no terms")


def _age_text(terms: "Iterable[Term]") -> str:
    """The age of the oldest of the terms; "" where none says it."""
    ages = [term.age_ms for term in terms if term.age_ms is not None]
    return span_text(max(ages)) if ages else ""


def _term_text(term: "Term", show: Callable[[int], str]) -> str:
    return f"{term.value}%" if term.unit == "pct" else show(term.value)


def _print_place(item: "ReplicaExplained") -> None:
    """Print what the replica holds, unless it waits again: its last place is not its own any more then."""
    place = item.decision.placement if item.decision is not None else None
    if place is not None and item.state in _PLACED:
        print_text(f"  holds {holds_text(place)}", indent=8)


def _print_scores(items: "Sequence[ReplicaExplained]") -> None:
    """Print the scores of the best nodes at the decision of each replica; replicas with equal scores share one table."""
    groups: dict[bytes, list[tuple[str, DecisionRecord]]] = {}
    for item in items:
        if item.decision is not None and item.decision.scores:
            groups.setdefault(msgspec.json.encode(item.decision.scores), []).append((item.replica, item.decision))
    for number, members in enumerate(groups.values()):
        if number == _TABLES_SHOWN:
            rest = len(groups) - _TABLES_SHOWN
            print(f"\nand {rest} more score tables: --replica shows that of one replica, --output json all of them")
            return
        decisions = [decision for _, decision in members]
        print()
        print_text(f"scores for {names_text([replica for replica, _ in members])} ({_moment_text(decisions)}):")
        _print_table(decisions[0].scores)


def _moment_text(decisions: "Sequence[DecisionRecord]") -> str:
    """The meaning of the rows of a table that these decisions share."""
    fitting = [each.fitting for each in decisions if each.fitting is not None]
    if len(fitting) < len(decisions):
        return "nodes that pass the filters then; only the first was looked at closely"
    listed = len(decisions[0].scores)
    is_all = all(listed >= min(each, _ROWS_SHOWN) for each in fitting)
    return "the best nodes then" if is_all else "the best nodes then, as far as they were compared"


def _print_table(scores: "Sequence[NodeScore]") -> None:
    names = sorted({name for row in scores for name in row.scores})
    rows = [
        ["  " + row.node, *(str(row.scores.get(name, "")) for name in names), str(row.total)]
        for row in scores[:_ROWS_SHOWN]
    ]
    print_table(["  NODE", *(f"{name}>" for name in names), "TOTAL>"], rows, "")


def names_text(replicas: list[str]) -> str:
    """The replicas of one job by task and index, runs shortened: "main/0-4, main/7, side/2"."""
    by_task: dict[str, list[int]] = {}
    for replica in replicas:
        _, task, index = replica.split("/")
        by_task.setdefault(task, []).append(int(index))
    runs: list[tuple[str, int, int]] = []
    for task, indices in by_task.items():
        for number in sorted(indices):
            if runs and runs[-1][0] == task and runs[-1][2] == number - 1:
                runs[-1] = (task, runs[-1][1], number)
            else:
                runs.append((task, number, number))
    return ", ".join(f"{task}/{first}" + (f"-{last}" if last > first else "") for task, first, last in runs)
