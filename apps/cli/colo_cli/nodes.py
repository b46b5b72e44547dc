"""The commands `colo get nodes` and `colo get node NODE`."""

import urllib.parse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.event_lines import print_clock, print_line
from colo_cli.external import external_line
from colo_cli.output import (
    ListOutput,
    ago,
    bytes_text,
    counted,
    cpu_text,
    print_data,
    print_list,
    print_table,
    print_text,
    share_text,
    span_text,
)
from colo_cli.watching import Watch, watched
from colo_cli.workload_rows import class_lines, print_workloads

if TYPE_CHECKING:
    from colo_common.events.kernel import KernelGroup
    from colo_common.events.requests import NodeSummary
    from colo_gateway.event_line import EventLine
    from colo_gateway.state_replies import NodeReply

__all__ = ["node", "nodes"]

_COLUMNS: Final = (
    "NODE", "STATE", "AGE>", "CPU>", "USED>", "BATCH>", "PROMISED>", "HELD>", "FREE>", "+HEADROOM>", "MEM>",
    "+MEM PROMISED>", "+MEM HELD>", "+MEM HEADROOM>", "+MID>", "+MID HELD>", "+MID MEM>", "+MID MEM HELD>", "WHY NOT MORE",
    "+LABELS",
)  # fmt: skip
_REPLICAS_SHOWN: Final = 50
_KNOBS_SHOWN: Final = 20


def nodes(
    *,
    sort: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    selector: Annotated[str, Parameter(name=["--selector", "-l"])] = "",
    limit: int = 100_000,
    output: ListOutput = "table",
    watch: Watch = False,
    api: str | None = None,
) -> int:
    """List nodes: use in percent, what batch work is promised, what of it is held and free, and why there is no more.

    Args:
        sort: By name, cpu, memory, batch, promised, held, free, headroom or age; "cpu,free": by two; "-cpu": smallest first.
        selector: Only nodes with these labels: "disk=ssd,zone!=b,gpu,!spot,rack in (r1,r2),cores>16".
        limit: The most nodes to list.
        output: table, wide, name, json or yaml.
        watch: List again every two seconds.
        api: Address of the gateway.
    """
    client = Client(api)

    def show() -> int:
        from colo_common.events.requests import NodeList

        answer = client.pages("/v1/nodes", "nodes", limit, sort=sort, selector=selector)
        found = answer_as(answer, NodeList)
        none = "no node has these labels" if selector else "no nodes yet"
        if print_list(answer, output, _COLUMNS, lambda: [_node_row(each) for each in found.nodes], none):
            more = found.total - len(found.nodes)
            if more > 0:
                print(f"and {counted(more, 'node')} more")
            if found.nodes:
                print_clock(client.clock_speed)
        return 0

    return watched(watch, show)


def _node_row(node: "NodeSummary") -> list[str]:
    return [
        node.node,
        node.freshness.value,
        "-" if node.sample_age_ms is None else span_text(node.sample_age_ms),
        cpu_text(node.cpu_capacity_mcpu),
        share_text(node.cpu_used_mcpu, node.cpu_capacity_mcpu),
        share_text(node.batch_cpu_used_mcpu, node.cpu_capacity_mcpu),
        _short_cpu(node.batch_cpu_mcpu),
        _short_cpu(node.held_cpu_mcpu),
        _short_cpu(node.batch_cpu_mcpu - node.held_cpu_mcpu),
        _short_cpu(node.headroom_cpu_mcpu),
        share_text(node.memory_used_bytes, node.memory_capacity_bytes),
        bytes_text(node.batch_memory_bytes),
        bytes_text(node.held_memory_bytes),
        _signed_bytes(node.headroom_memory_bytes),
        *_mid_cells(node),
        node.reason,
        ",".join(f"{key}={value}" for key, value in sorted(node.labels.items())),
    ]


def _mid_cells(node: "NodeSummary") -> list[str]:
    """What the mid tier gets and what of it is held: CPU, then memory; "-" where it is off."""
    if node.mid_cpu_mcpu is None or node.mid_memory_bytes is None:
        return ["-"] * 4
    return [
        _short_cpu(node.mid_cpu_mcpu),
        _short_cpu(node.mid_held_cpu_mcpu),
        bytes_text(node.mid_memory_bytes),
        bytes_text(node.mid_held_memory_bytes),
    ]


def node(
    node: str,
    /,
    *,
    cpus: Annotated[bool, Parameter(negative=())] = False,
    output: ListOutput = "table",
    watch: Watch = False,
    api: str | None = None,
) -> int:
    """Show one node: zones, promises, restrictions, the ceiling of its batch work, its replicas and its last changes.

    Args:
        node: The node's name.
        cpus: Show every control group on it instead, foreign ones too: CPUs, memory zones, weight and quota as the kernel has them.
        output: table, wide, name, json or yaml.
        watch: Show it again every two seconds.
        api: Address of the gateway.
    """
    client = Client(api)
    path = f"/v1/nodes/{urllib.parse.quote(node, safe='')}"
    if cpus:
        return watched(watch, lambda: _show_cpus(client.get(f"{path}/cpus"), output))
    return watched(watch, lambda: _show_node(client.get(path), output, client.clock_speed))


def _show_node(answer: Any, output: ListOutput, clock_speed: float) -> int:
    from colo_gateway.state_replies import NodeReply

    if output in ("json", "yaml"):
        print_data(answer, output)
        return 0
    reply = answer_as(answer, NodeReply)
    if output == "name":
        print(reply.node.summary.node)
        return 0
    _print_head(reply)
    print_clock(clock_speed)
    _print_zones(reply)
    _print_measured(reply, is_wide=output == "wide")
    _print_ceiling(reply)
    _print_withheld(reply, is_wide=output == "wide")
    _print_open_cpus(reply)
    _print_replicas(reply, is_wide=output == "wide")
    _print_changes(reply.changes)
    for sentence in reply.missing:
        print(f"\nnot known: {sentence}")
    return 0


def _print_head(reply: "NodeReply") -> None:
    from colo_common.model.restriction import restriction_text

    node = reply.node.summary
    age = "no sample yet" if node.sample_age_ms is None else f"sample {span_text(node.sample_age_ms)} old"
    kind = ", simulated" if node.simulated else ""
    print_text(
        f"{node.node}: {node.freshness.value} ({age}){kind}, {cpu_text(node.cpu_capacity_mcpu)} CPU in"
        f" {counted(len(reply.node.zones), 'zone')}, {bytes_text(node.memory_capacity_bytes)}",
        colour="bold",
    )
    for each in reply.restrictions:
        print_text(restriction_text(each), colour="yellow")
    if node.labels:
        print_text("labels " + ",".join(f"{key}={value}" for key, value in sorted(node.labels.items())))
    if reply.node.taints:
        print_text("taints " + ",".join(f"{each.key}={each.value}:{each.effect}" for each in reply.node.taints))
    if node.reason and node.reason not in map(restriction_text, reply.restrictions):
        print_text(f"no more is promised: {node.reason}")


def _print_zones(reply: "NodeReply") -> None:
    node = reply.node.summary
    rows = [
        [
            str(zone.zone),
            zone.cpus,
            share_text(zone.cpu_used_mcpu, zone.cpu_capacity_mcpu),
            _short_cpu(zone.batch_cpu_mcpu),
            _short_cpu(zone.held_cpu_mcpu),
            _short_cpu(zone.headroom_cpu_mcpu),
            share_text(zone.memory_used_bytes, zone.memory_capacity_bytes),
            bytes_text(zone.batch_memory_bytes),
            bytes_text(zone.held_memory_bytes),
        ]
        for zone in reply.node.zones
    ]
    rows.append(
        [
            "all",
            "",
            share_text(node.cpu_used_mcpu, node.cpu_capacity_mcpu),
            _short_cpu(node.batch_cpu_mcpu),
            _short_cpu(node.held_cpu_mcpu),
            _short_cpu(node.headroom_cpu_mcpu),
            share_text(node.memory_used_bytes, node.memory_capacity_bytes),
            bytes_text(node.batch_memory_bytes),
            bytes_text(node.held_memory_bytes),
        ]
    )
    print()
    columns = ["ZONE", "CPUS", "USED>", "PROMISED>", "HELD>", "HEADROOM>", "MEM USED>", "MEM PROMISED>", "MEM HELD>"]
    print_table(columns, rows, "no zones")
    if node.mid_cpu_mcpu is not None:
        print_text(
            f"mid tier: {cpu_text(node.mid_cpu_mcpu)} CPU, {bytes_text(node.mid_memory_bytes or 0)}; held"
            f" {cpu_text(node.mid_held_cpu_mcpu)} CPU, {bytes_text(node.mid_held_memory_bytes)}"
        )
    for each in reply.node.external:
        print_text(external_line(each, reply.node.now_ms))


def _print_measured(reply: "NodeReply", *, is_wide: bool) -> None:
    """The workloads of which more is known than their use, and the online ones that colo did not place."""
    from colo_common.model.qos import ONLINE_CLASSES

    detail = reply.node
    shown = [
        one
        for one in detail.workloads
        if (not one.replica and one.qos in ONLINE_CLASSES)
        or one.stall_pct is not None
        or one.detail is not None
        or one.business is not None
    ]
    if not shown:
        return
    print()
    print_workloads(shown[:_REPLICAS_SHOWN], is_wide=is_wide, now_ms=detail.now_ms)
    more = len(shown) - _REPLICAS_SHOWN
    if more > 0:
        print(f"and {counted(more, 'workload')} more; --output json lists all")
    for line in class_lines(detail.classes):
        print_text(line)


def _print_ceiling(reply: "NodeReply") -> None:
    ceiling = reply.ceiling
    if ceiling is None:
        return
    print()
    would = " (not written)" if ceiling.observed else ""
    print_text(
        f"batch ceiling{would} {cpu_text(ceiling.ceiling_mcpu)} CPU, before {cpu_text(ceiling.ceiling_before_mcpu)}"
        f" ({ceiling.reason.value}, {ago(ceiling.at_ms, reply.node.now_ms)} ago);"
        f" online work used {cpu_text(ceiling.online_cpu_used_mcpu)} CPU then"
    )
    if ceiling.zones:
        # Imported here, because only a machine of several zones needs it.
        from colo_common.events.fact_text import zones_text

        print_text(f"  {zones_text(ceiling.zones, ceiling.zone_terms)} CPU")
    if ceiling.whole_cores:
        keeps = "would keep" if ceiling.observed else "keeps"
        print_text(f"batch work {keeps} to whole cores, as many as the ceiling needs, and shares none with online work")
    if ceiling.memory is not None:
        # Imported here, because only a node whose memory was full needs it.
        from colo_common.events.fact_text import memory_text

        print_text(f"  {memory_text(ceiling.memory)}")
    if ceiling.frozen:
        print_text(
            f"batch work {'would be' if ceiling.observed else 'is'} frozen: it gets no CPU whatever the ceiling says"
        )
    for knob in ceiling.knobs:
        print(f"  {knob.path} = {knob.value}")


def _print_withheld(reply: "NodeReply", *, is_wide: bool) -> None:
    """What the executor would write there and does not."""
    withheld = reply.withheld
    if withheld is None:
        return
    shown = withheld.knobs if is_wide else withheld.knobs[:_KNOBS_SHOWN]
    print()
    print_text(
        f"would do, and does not ({ago(withheld.at_ms, reply.node.now_ms)} ago):"
        f" {counted(withheld.count, 'kernel value')}",
        colour="yellow",
    )
    for knob in shown:
        print_text(f"  {knob.path} = {knob.value}" + (f" (now {knob.before})" if knob.before else ""))
    for sentence in withheld.failed:
        print_text(f"  not possible: {sentence}")
    more = withheld.count - len(shown) - len(withheld.failed)
    if more > 0:
        print(f"  and {more} more; {'--output json' if is_wide else '--output wide'} lists up to 100")


def _print_open_cpus(reply: "NodeReply") -> None:
    """Whose processes may run on CPUs that are LSE or LSR work's own, and what to do about it."""
    found = reply.open_cpus
    if found is None:
        return
    # Imported here, because few nodes have any.
    from colo_common.model.open_cpus import close_cpus_text, open_cpus_text

    print()
    age = ago(found.at_ms, reply.node.now_ms)
    print_text(f"{open_cpus_text(found.cpus, found.groups)} (seen {age} ago)", colour="yellow")
    print_text(f"  {close_cpus_text(found.groups)}")


def _print_replicas(reply: "NodeReply", *, is_wide: bool) -> None:
    if reply.replicas is None:
        return
    shown = reply.replicas.replicas[:_REPLICAS_SHOWN]
    now_ms = reply.replicas.now_ms
    rows = [
        [
            each.replica,
            each.state,
            each.qos.value,
            cpu_text(each.cpu_mcpu),
            bytes_text(each.memory_bytes),
            ",".join(map(str, each.zones)) or "-",
            ago(each.since_ms, now_ms) if each.since_ms else "-",
            each.queue,
            each.tenant,
        ]
        for each in shown
    ]
    print()
    columns = ["REPLICA", "STATE", "CLASS", "CPU>", "MEMORY>", "ZONES", "RUNS FOR>", "+QUEUE", "+TENANT"]
    print_table(columns, rows, "no replica of colo is here", is_wide=is_wide)
    more = reply.replicas.total - len(rows)
    if more > 0:
        print(f"and {more} more; --output json lists up to 1000")


def _print_changes(changes: "Sequence[EventLine]") -> None:
    """Print the last lines of the node's history, newest last."""
    if not changes:
        return
    print("\nlast changes (colo history node has more):")
    for change in changes:
        print_line(change, indent=2)


def _show_cpus(answer: Any, output: ListOutput) -> int:
    from colo_common.events.kernel import NodeKernelGroups

    found = answer_as(answer, NodeKernelGroups)
    columns = (
        "GROUP", "CLASS", "CPUS", "MEMS", "WEIGHT>", "QUOTA>", "WHOSE", "+MEMORY LIMIT>", "PROCESSES>", "+PATH",
    )  # fmt: skip
    rows = [_group_row(each) for each in found.groups]
    if print_list(answer, output, columns, lambda: rows, "no control group with processes"):
        if found.simulated:
            print("(a simulated machine: the values that a kernel would hold)")
        if found.left_out:
            print(f"and {counted(found.left_out, 'group')} more")
        for fault in found.faults:
            print(f"not read: {fault}")
    return 0


def _group_row(group: "KernelGroup") -> list[str]:
    return [
        group.name,
        group.qos.value if group.qos else "-",
        group.cpus or "-",
        group.mems or "-",
        "idle" if group.idle else "-" if group.weight is None else str(group.weight),
        "none" if group.cpu_quota_mcpu is None else cpu_text(group.cpu_quota_mcpu),
        "colo" if group.is_colo else "foreign",
        "none" if group.memory_limit_bytes is None else bytes_text(group.memory_limit_bytes),
        str(group.processes),
        group.path,
    ]


def _short_cpu(mcpu: int) -> str:
    """CPU with one decimal: a column of numbers is compared, not computed with."""
    return f"{mcpu / 1000:.1f}"


def _signed_bytes(number: int) -> str:
    return f"-{bytes_text(-number)}" if number < 0 else bytes_text(number)
