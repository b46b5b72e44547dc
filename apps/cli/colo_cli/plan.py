"""The command `colo plan -f job.yaml`."""

import json
import shlex
from typing import Annotated, Any

from cyclopts import Parameter

from colo_cli.client import Client
from colo_cli.failure import Failure
from colo_cli.output import Format, bytes_text, counted, cpu_text, print_data, print_table
from colo_cli.submit import print_notes, read_job_file

__all__ = ["devices_text", "nearest_text", "never_text", "plan", "print_refusals", "reason_text"]

_NODES_SHOWN = 10
_PLACES_SHOWN = 10


def plan(
    *,
    file: Annotated[str, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)],
    places: int = 100,
    output: Annotated[Format, Parameter(name=["--output", "-o"])] = "table",
    api: str | None = None,
) -> int:
    """Show where the job that a file describes would go, or why not, and how it differs from the one that runs; nothing changes.

    Ends with 0 when every replica fits, 1 when not, 2 when there is no answer. With the check index that it prints, a submission is
    refused when the plan is outdated.

    Args:
        file: The job file (YAML or JSON); "-" reads standard input.
        places: The most replicas to list one by one in json and yaml, at most 1000.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    try:
        body = json.dumps(read_job_file(file)).encode()
        answer = Client(api).call("POST", f"/v1/plan?places={places}", body, **{"Content-Type": "application/json"})
    except Failure as error:
        raise Failure(str(error), 2) from error
    if output != "table":
        print_data(answer, output)
    else:
        _print(answer)
        _print_running(answer["running"])
        index = answer["check_index"]
        print(
            f"\ncheck index {index}: `colo submit -f {shlex.quote(file)} --check-index {index}` is refused once this is outdated"
        )
    print_notes(answer)
    return 0 if answer["fits"] else 1


def _print(answer: dict[str, Any]) -> None:
    verdict = "fits" if answer["fits"] else "does not fit"
    replicas, nodes = counted(answer["replicas"], "replica"), counted(answer["nodes"], "node")
    print(f"{verdict}: {answer['placed']} of {replicas} on the {nodes} known now")
    if answer["waiting"]:
        wait = "replica of another job waits" if answer["waiting"] == 1 else "replicas of other jobs wait"
        print(f"{answer['waiting']} {wait} now and may come first")
    for task in answer["tasks"]:
        print(f"\n{task['task']}: {task['placed']} of {task['replicas']}")
        if task["nodes"]:
            shown = [f"{node} x{count}" for node, count in task["nodes"][:_NODES_SHOWN]]
            more = len(task["nodes"]) - len(shown)
            print("  " + ", ".join(shown) + (f" and {more} nodes more" if more else ""))
        _print_devices(task["task"], answer["places"])
        print_refusals(task)
        # Scores explain a place; without one they are left out.
        if task["placed"]:
            _print_scores(task["scores"])
    _print_victims(answer)


def _print_running(running: dict[str, Any] | None) -> None:
    """Print how the job differs from the newest unfinished one of its name. A submission leaves that one alone."""
    if running is None:
        return
    others = f" and {counted(running['others'], 'other')} of its name" if running["others"] else ""
    print(
        f"\n{running['job']} is {running['state']}{others}; a submission adds a job beside it and changes nothing of it"
    )
    if running["update"] == "none":
        print("  the same job: nothing differs")
        return
    print(
        f"  what differs, and what it would ask of its replicas ({running['update']} in all; cancel it to replace it):"
    )
    _print_changes(running["changes"], "  ")
    for task in running["tasks"]:
        now, planned = task["replicas_now"], task["replicas_planned"]
        if task["update"] == "none" and now == planned:
            continue
        sign = "+" if not now else "-" if not planned else "~"
        moved = f" ({planned - now:+d})" if planned != now else ""
        print(f"  {sign} task {task['task']}: {now} -> {counted(planned, 'replica')}{moved}")
        _print_changes([change for change in task["changes"] if change["field"] != "replicas"], "      ")


def _print_changes(changes: list[dict[str, Any]], indent: str) -> None:
    for change in changes:
        print(f"{indent}~ {change['field']}: {change['now']} -> {change['planned']} ({change['update']})")


def _print_devices(task: str, places: list[dict[str, Any]]) -> None:
    """Print the devices that the first replicas of a task would get, if the task requests devices."""
    own = [place for place in places if place["replica"].partition("/")[0] == task and place.get("devices")]
    for place in own[:_PLACES_SHOWN]:
        print(f"  {place['replica']} on {place['node']}: {devices_text(place['devices'])}")
    if len(own) > _PLACES_SHOWN:
        print(f"  and {len(own) - _PLACES_SHOWN} more with devices")


def devices_text(shares: list[dict[str, Any]]) -> str:
    """The text of device shares: "gpu 0, gpu 1, nic 0 (50 %)"."""
    return ", ".join(
        f"{share['kind']} {share['device']}" + (f" ({pct} %)" if (pct := share.get("core_pct", 100)) < 100 else "")
        for share in shares
    )


def print_refusals(answer: dict[str, Any]) -> None:
    """Print why nodes refuse: that no node could ever hold it, or the nodes by reason and the nearest node."""
    nearest = answer["nearest"]
    if answer["never"] and nearest is not None:
        # The reasons of each node at this moment do not matter then.
        print(f"  {never_text(nearest)}")
        return
    for count in answer["counts"]:
        detail = f": {count['detail']}" if count.get("detail") else ""
        print(f"  {counted(count['nodes'], 'node')}: {reason_text(count['reason'])} ({count['reason']}){detail}")
    # A condition has no amount; its reason was printed above.
    if nearest is not None and nearest["unit"] != "condition":
        print(f"  nearest: {nearest_text(nearest)}")


def _print_scores(scores: list[dict[str, Any]]) -> None:
    if not scores:
        return
    names = sorted({name for row in scores for name in row["scores"]})
    rows = [
        ["  " + row["node"], *(str(row["scores"].get(name, "")) for name in names), str(row["total"])] for row in scores
    ]
    # The scores of a later replica depend on the replicas before it.
    print("  scores before the first replica is placed:")
    print_table(["  NODE", *(f"{name}>" for name in names), "TOTAL>"], rows, "")


def _print_victims(answer: dict[str, Any]) -> None:
    if not answer["victims"]:
        return
    helped = answer["by_preempting"]
    print(f"\n{helped} more would fit if these less important replicas left (nobody leaves by this):")
    rows = [
        [
            "  " + v["replica"],
            v["node"],
            v["band"],
            str(v["priority"]),
            cpu_text(v["cpu_mcpu"]),
            bytes_text(v["memory_bytes"]),
        ]
        for v in answer["victims"]
    ]
    print_table(["  REPLICA", "NODE", "BAND", "PRIORITY>", "CPU>", "MEMORY>"], rows, "")


def reason_text(reason: str) -> str:
    """The sentence of a reason; the reason itself when it has none."""
    from colo_common.model.reasons import SENTENCES, Reason

    return SENTENCES.get(Reason(reason), reason) if reason in list(Reason) else reason


def never_text(near: dict[str, Any] | None) -> str:
    """A refusal for good: "no node could hold one even when empty: a machine has 16 CPU at most (node-07), it needs 60"."""
    from colo_common.model.shortage import most_text

    text = "no node could hold one even when empty"
    return text if near is None else f"{text}: {most_text(**_miss(near))}"


def nearest_text(near: dict[str, Any]) -> str:
    """The text of the nearest node's shortage: "1.2 CPU short in zone 1 of node-07 (2.8 of 4)"."""
    from colo_common.model.shortage import shortage_text

    return shortage_text(**_miss(near))


def _miss(near: dict[str, Any]) -> dict[str, Any]:
    return {name: near[name] for name in ("node", "reason", "need", "have", "unit", "zone")}
