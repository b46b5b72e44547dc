"""The commands `colo explain eviction ID` and `colo get evictions`."""

import urllib.parse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.event_lines import moment, print_clock
from colo_cli.output import Format, bytes_text, cpu_text, print_data, print_table, print_text, span_text
from colo_cli.which_job import find_job

if TYPE_CHECKING:
    from colo_common.events.eviction import EvictionRequested, VictimRank
    from colo_gateway.eviction_account import EvictionAccount, NotChosen

__all__ = ["eviction", "eviction_lines", "evictions"]

Output = Annotated[Format, Parameter(name=["--output", "-o"])]


def eviction(eviction: str, /, *, output: Output = "table", api: str | None = None) -> int:
    """Explain one eviction: what was measured, who was chosen, why the others were not, and what became of it.

    Example: `colo explain eviction ev-3f9a`; `colo get evictions` lists the ids.

    Args:
        eviction: The eviction's id or the beginning of it, or the replica that was evicted ("job/task/index").
        output: table, json or yaml.
        api: Address of the gateway.
    """
    client = Client(api)
    answer = client.get(f"/v1/evictions/{urllib.parse.quote(eviction, safe='')}")
    if output != "table":
        print_data(answer, output)
        return 0
    from colo_gateway.eviction_account import EvictionAccount

    found = answer_as(answer, EvictionAccount)
    print_text(f"{found.eviction}, {moment(found.at_ms)}: {found.sentence}")
    print_clock(client.clock_speed)
    print()
    for line in eviction_lines(found):
        print_text(line, indent=13)
    _print_ranking(found.requested.ranking, found.not_chosen)
    return 0


def evictions(
    *,
    node: str = "",
    job: str = "",
    since: str = "",
    limit: int = 100,
    output: Output = "table",
    api: str | None = None,
) -> int:
    """List evictions, newest first.

    Example: `colo get evictions --since 10m`.

    Args:
        node: Only evictions on this node.
        job: Only evictions of this job: its id, the beginning of it, or its name.
        since: Not longer ago than this (10s, 1m, 1h30m).
        limit: At most so many, 1 to 1000.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    client = Client(api)
    wanted = (find_job(client, job) or job) if job else ""
    answer = client.get("/v1/evictions", node=node, job=wanted, since=since, limit=limit)
    if output != "table":
        print_data(answer, output)
        return 0
    from colo_gateway.eviction_account import EvictionList

    reply = answer_as(answer, EvictionList)
    rows = [
        [
            each.eviction,
            moment(each.at_ms),
            each.node,
            each.replica,
            each.reason,
            _value_text(each.requested),
            each.state,
            "-" if each.took_ms is None else span_text(each.took_ms),
        ]
        for each in reply.evictions
    ]
    header = ["EVICTION", "TIME", "NODE", "REPLICA", "REASON", "VALUE/LIMIT>", "STATE", "TOOK>"]
    print_table(header, rows, "no evictions")
    if reply.total > len(rows):
        print(f"and {reply.total - len(rows)} more: --limit")
    if rows:
        print_clock(reply.clock_speed)
    if reply.known_since_ms:
        print_text(f"(those from before {moment(reply.known_since_ms)} may be missing)", indent=1)
    return 0


def _value_text(asked: "EvictionRequested") -> str:
    """What was measured beside its threshold, which a drain does not have."""
    return f"{asked.value_pct}%/{asked.threshold_pct}%" if asked.threshold_pct else "-"


def eviction_lines(found: "EvictionAccount") -> list[str]:
    """The numbers of an eviction, one a line."""
    asked = found.requested
    hold = f" of {span_text(asked.hold_ms)} needed" if asked.hold_ms else ""
    signal = (
        f"  signal     {asked.reason}: {asked.value_pct}%, threshold {asked.threshold_pct}%, "
        f"held {span_text(asked.held_ms)}{hold} (sample {asked.sample_seq})"
    )
    drain = f"  drain      {asked.reason}, begun {span_text(asked.held_ms)} before"
    lines = [
        # A drain has no threshold.
        signal if asked.threshold_pct else drain,
        f"  credited   {found.credited}",
        f"  chosen     {found.replica}, {found.chosen or 'no ranking was told'}",
        f"  asked by   {asked.asked_by or 'evictor'}",
    ]
    if asked.evictions_allowed:
        lines.append(
            f"  budget     {asked.evictions_in_window} of {asked.evictions_allowed} evictions of the cluster in a minute"
            f"; the node has no other one for {span_text(asked.cool_ms)}"
        )
    if asked.online_replicas:
        lines.append(f"  online     {asked.online_replicas} online replicas run there and are never candidates")
    return [*lines, f"  end        {_end_text(found)}"]


def _end_text(found: "EvictionAccount") -> str:
    grace = span_text(found.requested.grace_ms)
    if found.took_ms is None:
        return f"it is leaving, with {grace} between SIGTERM and SIGKILL"
    wall = f" ({found.wall_ms} ms by the clock on the wall)" if found.wall_ms is not None else ""
    code = f", exit code {found.exit_code}" if found.exit_code is not None else ""
    again = f"; placed again on {found.again_node}" if found.again_node else "; not placed again yet"
    return f"{span_text(found.took_ms)} from decision to exit{wall}, grace {grace}{code}{again}"


def _print_ranking(ranking: "Sequence[VictimRank]", not_chosen: "Sequence[NotChosen]") -> None:
    if not not_chosen:
        return
    why = {(each.replica, each.attempt): each.why for each in not_chosen}
    rows = [
        [
            "  " + rank.replica,
            rank.band or "-",
            str(rank.priority),
            bytes_text(rank.used) if rank.unit == "bytes" else f"{cpu_text(rank.used)} CPU",
            why.get((rank.replica, rank.attempt), "chosen"),
        ]
        for rank in ranking
    ]
    print()
    print_table(["  CANDIDATE", "BAND", "PRIORITY>", "USES>", "WHY NOT"], rows, "")
