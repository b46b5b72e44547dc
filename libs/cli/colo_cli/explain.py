"""`colo explain job ID` and `colo explain overcommit NODE`."""

import urllib.parse
from typing import Annotated, Any, Final

from cyclopts import Parameter

from colo_cli.client import Client
from colo_cli.holds import holds_text
from colo_cli.output import Format, bytes_text, cpu_text, print_data, print_table, span_text

__all__ = ["job", "overcommit"]

_PLACED: Final = ("Assigned", "Starting", "Running", "Unknown", "Stopping")
Output = Annotated[Format, Parameter(name=["--output", "-o"])]


def job(job: str, /, *, replica: str = "", output: Output = "table", api: str | None = None) -> int:
    """Say why each replica is where it is, or what it waits for.

    Args:
        job: The job's id.
        replica: Only this replica ("job/task/index").
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = Client(api).get(f"/v1/jobs/{urllib.parse.quote(job, safe='')}/explain", replica=replica)
    if output != "table":
        print_data(answer, output)
        return 0
    summary = answer["job"]["summary"]
    print(f"{summary['job']}: {summary['state']}, queue {summary['queue']}, {summary['replicas']} replicas")
    for item in answer["replicas"]:
        print(f"\n{item['replica']}: {item['sentence']}")
        _print_place(item)
        _print_decision(item["decision"])
    if answer["partial"]:
        print(f"\nThe scheduler's view is missing: {answer['partial']}")
    story = answer["job"]["story"][-20:]
    if story:
        first_ms = story[0]["at_ms"]
        print("\nStory (time since its first line):")
        for line in story:
            print(f"  +{span_text(max(line['at_ms'] - first_ms, 0)):>8}  {line['what']}")
    return 0


def overcommit(node: str, /, *, output: Output = "table", api: str | None = None) -> int:
    """Show the formula behind a node's batch allocatable with every term, value, unit and source.

    Args:
        node: The node's name.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = Client(api).get(f"/v1/nodes/{urllib.parse.quote(node, safe='')}/explain")
    if output != "table":
        print_data(answer, output)
        return 0
    published = answer["published"]
    print(
        f"{node}: batch allocatable {cpu_text(published['batch_cpu_mcpu'])} CPU, {bytes_text(published['batch_memory_bytes'])};"
        f" headroom {cpu_text(published['headroom_cpu_mcpu'])} CPU, {bytes_text(published['headroom_memory_bytes'])};"
        f" sample {published['sample_seq']}, {span_text(answer['age_ms'])} old, facts {published['freshness']}"
    )
    print(f"\n{published['explanation']['formula']}\n")
    for prefix, show in (("cpu", cpu_text), ("memory", bytes_text)):
        _print_terms(published, prefix, show)
    return 0


def _print_terms(published: dict[str, Any], prefix: str, show: Any) -> None:
    terms: dict[str, dict[int, dict[str, Any]]] = {}
    for term in published["explanation"]["terms"]:
        if term["name"].startswith(prefix + "_"):
            terms.setdefault(term["name"], {})[term["zone"]] = term
    zones = sorted(zone["zone"] for zone in published["zones"])
    rows = []
    for name, by_zone in terms.items():
        unit = by_zone[zones[0]]["unit"]
        values = [f"{by_zone[z]['value']}%" if unit == "pct" else show(by_zone[z]["value"]) for z in zones]
        rows.append([name, *values, by_zone[zones[0]]["source"]])
    field = {"cpu": "cpu_mcpu", "memory": "memory_bytes"}[prefix]
    for kind in ("batch", "headroom"):
        by_id = {zone["zone"]: zone for zone in published["zones"]}
        label = "= allocatable" if kind == "batch" else "= headroom"
        rows.append([label, *(show(by_id[z][f"{kind}_{field}"]) for z in zones), "formula"])
    print_table([prefix.upper(), *(f"ZONE {z}>" for z in zones), "SOURCE"], rows, "no terms")
    print()


def _print_place(item: dict[str, Any]) -> None:
    """What it holds; a place that it had before it came to wait again is not told."""
    place = (item["decision"] or {}).get("placement")
    if place is not None and item["state"] in _PLACED:
        print(f"  holds {holds_text(place)}")


def _print_decision(decision: dict[str, Any] | None) -> None:
    if decision is None or not decision["scores"]:
        return
    names = sorted({name for row in decision["scores"] for name in row["scores"]})
    rows = [
        [row["node"], *(str(row["scores"].get(name, "")) for name in names), str(row["total"])]
        for row in decision["scores"][:5]
    ]
    print_table(["  NODE", *(f"{name}>" for name in names), "TOTAL>"], [["  " + row[0], *row[1:]] for row in rows], "")
