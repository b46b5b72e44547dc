"""The four dashboards of Grafana: `python k8s/dashboards.py` writes them into the chart, which Compose uses as well, and into what
kubectl applies.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent / "colo" / "files" / "dashboards"
BASE = Path(__file__).parent / "base" / "colo.yaml"
# Whose metrics every service has, in the order in which work passes them.
SERVICES = ("gateway", "jobs", "scheduler", "overcommit", "evictor", "collector", "executor")


class Panel(NamedTuple):
    """A picture of queries (PromQL, what a line is called); `width` of 24 columns. `kind` is Grafana's name of the panel."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    width: int = 8
    kind: str = "timeseries"
    says: str = ""


def everybody(metric: str, function: str = "{}") -> tuple[tuple[str, str], ...]:
    """One query for each service whose metrics begin with its name."""
    return tuple((f"sum({function.format(f'colo_{name}_{metric}')})", name) for name in SERVICES)


def percentile(metric: str, share: str = "0.99") -> str:
    """The percentile of a histogram of seconds over five minutes, all instances together."""
    return f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket[5m])))"


FLEET = (
    Panel("Nodes", (('max by (freshness) (colo_overcommit_fleet_nodes)', "{{freshness}}"),), width=6),
    Panel("Online harm, last 5 minutes", (("colo:online_harm:ratio_rate5m", "harmed"),), "percentunit", 6, "stat",
          "The share of their time in which online services waited because of contention. Objective: 0.1 %."),
    Panel("Broken promises", (("colo:broken_promises:ratio", "nodes"),), "percentunit", 6, "stat",
          "The share of nodes where batch work holds more than could be promised by the newest sample. Objective: 1 %."),
    Panel("Replicas that wait", (("max(sum by (instance) (colo_jobs_waiting_replicas))", "waiting"),), "short", 6, "stat"),
    Panel("CPU of the fleet", (("max by (what) (colo_overcommit_fleet_cpu_mcpu) / 1000", "{{what}}"),), "short", 12,
          says="Cores: what is there, measured use, what batch work may have, what it holds, what it holds too much."),
    Panel("Memory of the fleet", (("max by (what) (colo_overcommit_fleet_memory_bytes)", "{{what}}"),), "bytes", 12),
    Panel("What could be promised and what is", (("max by (what) (colo_overcommit_batch_cpu_mcpu) / 1000", "{{what}}"),), width=12),
    Panel("Replicas by queue", (("max by (queue) (colo_jobs_placed_replicas)", "{{queue}} placed"),
                                ("max by (queue) (colo_jobs_waiting_replicas)", "{{queue}} waiting")), width=12),
    Panel("Evictions and losses", (("sum(rate(colo_jobs_replica_evictions_total[5m]))", "evicted"),
                                   ("sum(rate(colo_jobs_replica_losses_total[5m]))", "lost"),
                                   ("sum(rate(colo_jobs_replica_failures_total[5m]))", "failed")), "ops", 12),
    Panel("Jobs", (("sum(rate(colo_jobs_jobs_submitted_total[5m]))", "submitted"),
                   ("sum by (state) (rate(colo_jobs_jobs_ended_total[5m])) or on() vector(0)", "{{state}}")), "ops", 12),
)  # fmt: skip

NODE = (
    Panel("CPU", (('colo_executor_online_used_mcpu{instance=~"$instance"} / 1000', "online {{instance}}"),
                  ('colo_executor_batch_used_mcpu{instance=~"$instance"} / 1000', "batch {{instance}}"),
                  ('colo_executor_batch_ceiling_mcpu{instance=~"$instance"} / 1000', "ceiling {{instance}}")), width=16,
          says="The executor's own readings. A process that simulates many nodes shows the last of them."),
    Panel("Ceilings in NUMA zones", (('colo_executor_batch_zone_ceiling_mcpu{instance=~"$instance"} / 1000 or on() colo_executor_batch_ceiling_mcpu{instance=~"$instance"} / 1000', "{{zone}} {{instance}}"),),
          says="What batch work may use of each zone: less where online work of that zone waits or its memory is full. Where no machine has several zones, of the machine."),
    Panel("What memory carries", (('colo_executor_memory_traffic_bytes_per_s{instance=~"$instance"} or on() vector(0)', "{{zone}} {{instance}}"),), "Bps",
          says="By NUMA zone, where resctrl is mounted and bandwidth_zone_bytes_per_s is set; else nothing is read."),
    Panel("Replicas on the node", (('colo_executor_replicas_count{instance=~"$instance"}', "{{instance}}"),)),
    Panel("Reflex, p99", (('histogram_quantile(0.99, sum by (le, instance) (rate(colo_executor_reflex_seconds_bucket{instance=~"$instance"}[5m])))', "{{instance}}"),), "s",
          says="From the beginning of a fast reading to the ceiling written. Budget: 100 ms."),
    Panel("Ceilings written", (('rate(colo_executor_ceiling_writes_total{instance=~"$instance"}[5m])', "written {{instance}}"),
                               ('rate(colo_executor_ceiling_refusals_total{instance=~"$instance"}[5m])', "refused {{instance}}")), "ops"),
    Panel("Time in which batch work was frozen", (('rate(colo_executor_batch_frozen_seconds_total{instance=~"$instance"}[5m])', "frozen {{instance}}"),), "percentunit",
          says="The last rung of the reflex. ColoBatchFrozenOften fires above 5 % of half an hour."),
    Panel("Why the reflex moved, last 10 minutes", (('sum by (instance, reason) (increase(colo_executor_reflex_moves_total{instance=~"$instance"}[10m]))', "{{reason}} {{instance}}"),)),
    Panel("Batch replicas by core-scheduling cookie", (('colo_executor_core_cookies_count{instance=~"$instance"}', "{{cookie}} {{instance}}"),),
          says="Nothing where process_hygiene_core_scheduling is off. Those without one share cores with online work."),
    Panel("Own CPUs that others may use", (('colo_executor_open_own_cpus_count{instance=~"$instance"}', "{{instance}}"),),
          says="CPUs of LSE and LSR work on which processes of others may run, too. ColoOwnCpusOpen fires after ten minutes."),
    Panel("Where an executor needs somebody", (('colo_executor_journal_behind_count{instance=~"$instance"}', "journal behind {{instance}}"),
                                               ('colo_executor_stuck_replicas_count{instance=~"$instance"}', "replicas stuck {{instance}}"),
                                               ('colo_executor_lease_expired_count{instance=~"$instance"}', "lease expired {{instance}}"),
                                               ('colo_executor_unseen_groups_count{instance=~"$instance"}', "groups unseen {{instance}}")),
          says="ColoExecutorJournalBehind and ColoReplicasStuck fire after minutes. Without a lease batch work is at the floor until the control plane is back; where waits of groups are unseen the usage rule decides."),
    Panel("Launches", (('sum by (instance, outcome) (rate(colo_executor_launches_total{instance=~"$instance"}[5m]))', "{{outcome}} {{instance}}"),), "ops"),
    Panel("Kernel files that somebody else changed", (('sum by (instance, outcome) (increase(colo_executor_drifts_total{instance=~"$instance"}[1h])) or on() vector(0)', "{{outcome}} {{instance}}"),)),
    Panel("Facts of the executor", (('rate(colo_executor_events_handled_total{instance=~"$instance"}[5m])', "{{type}} {{instance}}"),), "ops"),
    Panel("Samples of the collector", (('sum by (instance) (rate(colo_collector_events_handled_total{instance=~"$instance"}[5m]))', "handled {{instance}}"),
                                       ('sum by (instance) (rate(colo_collector_telemetry_malformed_total{instance=~"$instance"}[5m]))', "malformed {{instance}}")), "ops"),
)  # fmt: skip

SCHEDULER = (
    Panel("Decisions", (("sum by (outcome) (rate(colo_scheduler_outcomes_total[5m]))", "{{outcome}}"),), "ops", 16),
    Panel("Waiting for a place", (("sum(colo_scheduler_waiting_replicas)", "waiting"), ("sum(colo_scheduler_held_attempts)", "held")),),
    Panel("Commit to the ledger", ((percentile("colo_scheduler_commit_seconds", "0.5"), "p50"),
                                   (percentile("colo_scheduler_commit_seconds"), "p99")), "s"),
    Panel("One event in the core", ((percentile("colo_scheduler_handle_seconds", "0.5"), "p50"),
                                    (percentile("colo_scheduler_handle_seconds"), "p99")), "s"),
    Panel("Shards", (("colo_scheduler_held_shards", "{{instance}}"),), says="Whose placement requests each scheduler decides."),
    Panel("Behind on the bus", (('max by (of) (colo_gateway_pending_messages{of="scheduler"})', "pending"), ("sum(colo_scheduler_inbox_items)", "inbox"))),
    Panel("Nodes known", (("colo_scheduler_known_nodes", "{{instance}}"),)),
    Panel("Ledger rows with a problem", (("max(colo_scheduler_disagreeing_rows)", "disagree"), ("max(colo_scheduler_unreadable_rows)", "unreadable"))),
    Panel("Writes that met another version", (("sum(rate(colo_scheduler_conflicts_total[5m]))", "conflicts"),), "ops"),
    Panel("Publish", ((percentile("colo_scheduler_publish_seconds"), "p99"),), "s"),
)  # fmt: skip

SERVICES_BOARD = (
    Panel("Ready", (("min by (service, instance, part) (colo_ready)", "{{service}} {{instance}} {{part}}"),), width=12),
    Panel("Behind on the bus", (("max by (of) (colo_gateway_pending_messages)", "{{of}}"),), width=12),
    Panel("Events handled", everybody("events_handled_total", "rate({}[5m])"), "ops", 12),
    Panel("Items that wait for the core", everybody("inbox_items"), width=12),
    Panel("Messages that wait for the bus", everybody("outgoing_messages")),
    Panel("Dead letters, last 10 minutes", (("colo:dead_letters:increase10m", "{{service}}"),)),
    Panel("Refused requests", everybody("refusals_total", "rate({}[5m])"), "ops"),
    Panel("Store and bus tried again", tuple((f"sum by (port) (rate(colo_{name}_retries_total[5m])) or on() vector(0)", f"{name} {{{{port}}}}") for name in SERVICES[:5]), "ops"),
    Panel("Event loop late, p99", (('histogram_quantile(0.99, sum by (le, instance) (rate(colo_loop_lag_seconds_bucket[5m])))', "{{instance}}"),), "s"),
    Panel("Connections to NATS since the start", (("colo_bus_connections", "{{instance}}"),)),
    Panel("CPU of the processes", (("rate(process_cpu_seconds_total[5m])", "{{service}} {{instance}}"),), "percentunit", 12),
    Panel("Memory of the processes", (("process_resident_memory_bytes", "{{service}} {{instance}}"),), "bytes", 12),
    Panel("Versions", (("count by (version) (colo_build_info)", "{{version}}"),), kind="stat"),
)  # fmt: skip

BOARDS = {
    "fleet": ("colo: fleet", FLEET),
    "node": ("colo: node", NODE),
    "scheduler": ("colo: scheduler", SCHEDULER),
    "services": ("colo: services", SERVICES_BOARD),
}


def board(name: str) -> dict[str, Any]:
    """The dashboard as Grafana reads it."""
    title, panels = BOARDS[name]
    column = row = 0
    placed = []
    for number, panel in enumerate(panels, 1):
        if column + panel.width > 24:
            column, row = 0, row + 8
        placed.append(_panel(panel, number, column, row))
        column += panel.width
    variables = []
    if name == "node":
        variables.append(
            {
                "name": "instance",
                "label": "node",
                "type": "query",
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "query": "label_values(colo_executor_replicas_count, instance)",
                "refresh": 2,
                "multi": True,
                "includeAll": True,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            }
        )
    return {
        "uid": f"colo-{name}",
        "title": title,
        "tags": ["colo"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}, *variables]},
        "links": [
            {"title": "Dashboards", "type": "dashboards", "tags": ["colo"], "asDropdown": True},
            {
                "title": "Traces",
                "type": "link",
                "targetBlank": True,
                "url": "http://127.0.0.1:16686/search?service=colo-jobs&lookback=1h",
            },
        ],
        "panels": placed,
    }


def _panel(panel: Panel, number: int, column: int, row: int) -> dict[str, Any]:
    return {
        "id": number,
        "title": panel.title,
        "description": panel.says,
        "type": panel.kind,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": column, "y": row, "w": panel.width, "h": 8},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(panel.queries)
        ],
    }


def text(name: str) -> str:
    """The file of a dashboard."""
    return json.dumps(board(name), indent=1) + "\n"


def base() -> str:
    """What kubectl applies, with these dashboards: each is one line there, as Helm writes it. The rest is `just chart`'s."""
    known = {f"  {each}.json: ": text(each) for each in BOARDS}
    lines = []
    for line in BASE.read_text().splitlines(keepends=True):
        head = line[: line.find(": ") + 2]
        lines.append(f"{head}{json.dumps(known[head], ensure_ascii=False)}\n" if head in known else line)
    return "".join(lines)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for each in BOARDS:
        (FOLDER / f"{each}.json").write_text(text(each))
    BASE.write_text(base())
