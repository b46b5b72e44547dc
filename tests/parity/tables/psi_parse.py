"""Pressure: parsing, the kernel's averages and triggers, and rubik's answer to pressure.

Colo parses pressure files. It computes no averages, sets no triggers and evicts by its own rules: the rest is `reference only`.
"""

from __future__ import annotations

from colo_collector.parse_psi import PressureLine, parse_pressure
from colo_common.model.invalid import InvalidInput
from tests.parity.peers.old_pressure import OldPressureLine, parse_old_pressure
from tests.parity.peers.psi_model import PressureFile, averages_after, periods_to_threshold, trigger_events_us
from tests.parity.peers.rubik_psi import RubikPod, is_valid_config, rubik_verdict
from tests.parity.table import JsonObject, NotReplayed, reference_only, table_of_kinds


def _line(line: PressureLine | OldPressureLine) -> dict[str, object]:
    shown: dict[str, object] = {
        "avg10": line.avg10_centipct / 100,
        "avg60": line.avg60_centipct / 100,
        "avg300": line.avg300_centipct / 100,
    }
    if isinstance(line, PressureLine):
        shown["total_us"] = line.total_us
    return shown


def _parse(case: JsonObject) -> object:
    try:
        pressure = parse_pressure(case["text"])
    except InvalidInput:
        return {"error": True}
    lines = {"some": pressure.some, "full": pressure.full}
    return {name: _line(line) for name, line in lines.items() if line is not None}


def _parse_experimental(case: JsonObject) -> object:
    try:
        pressure = parse_old_pressure(case["text"])
    except InvalidInput:
        return {"error": True}
    lines = {"some": pressure.some, "full": pressure.full}
    shown: dict[str, object] = {name: _line(line) for name, line in lines.items() if line is not None}
    return {"aggr_us": pressure.aggregate_us, **shown}


def _averages(case: JsonObject) -> object:
    return {"avg10_avg60_avg300": averages_after(case["stall_ns_per_2s_period"])}


def _time_to_threshold(case: JsonObject) -> object:
    return {"periods": periods_to_threshold(case["threshold"], case["stall_ns_per_2s_period"])}


def _opened(case: JsonObject) -> PressureFile:
    return PressureFile(
        is_proc=str(case.get("file", "/proc/pressure")).startswith("/proc"),
        is_privileged=bool(case.get("privileged", False)),
        has_unprivileged_triggers=not str(case.get("kernel", "6.4+")).startswith("<"),
    )


def _trigger(case: JsonObject) -> object:
    text = case["text"]
    if case.get("terminated", True) and text and not text.endswith(("\n", "\0")):
        text += "\0"
    return {"result": str(_opened(case).write(text))}


def _trigger_sequence(case: JsonObject) -> object:
    opened = _opened(case)
    return {"results": [str(opened.write(text)) for text in case["writes_same_fd"]]}


def _poll(case: JsonObject) -> object:
    opened = _opened(case)
    if case.get("trigger") is not None:
        opened.write(f"{case['trigger']}\0")
    opened.is_removed = any(bool(value) for key, value in case.items() if "removed" in key)
    return {"revents": list(opened.poll_errors())}


def _trigger_window(case: JsonObject) -> object:
    samples = [(now_us, total_us) for now_us, total_us in case["samples_us_total_us"]]
    return {"events_at_us": trigger_events_us(case["threshold_us"], case["window_us"], samples)}


def _trigger_live(case: JsonObject) -> object:
    raise NotReplayed


def _rubik_psi(case: JsonObject) -> object:
    pods = [
        RubikPod(
            name=pod["name"],
            is_online=pod["online"],
            some_avg10_pct=pod.get("some_avg10", {}),
            cpu_cores=pod.get("cpu", 0),
            memory_bytes=pod.get("memory", 0),
            start=pod.get("start", 0),
            namespace=pod.get("namespace", "default"),
        )
        for pod in case["pods"]
    ]
    config = case["config"]
    verdict = rubik_verdict(config["avg10Threshold"], config["resource"], pods)
    if verdict.resource is None:
        return {"triggered": False, "evict": None}
    return {"triggered": True, "resource": verdict.resource, "evict": verdict.evicted}


def _rubik_psi_config(case: JsonObject) -> object:
    return {"valid": is_valid_config(case["interval"], case["avg10Threshold"], case["resource"])}


TABLE = table_of_kinds(
    "psi_parse",
    {
        "parse": _parse,
        "parse_experimental": reference_only(_parse_experimental),
        "averages": reference_only(_averages),
        "time_to_threshold": reference_only(_time_to_threshold),
        "trigger": reference_only(_trigger),
        "trigger_sequence": reference_only(_trigger_sequence),
        "trigger_window": reference_only(_trigger_window),
        "trigger_live": _trigger_live,
        "poll": reference_only(_poll),
        "rubik_psi": reference_only(_rubik_psi),
        "rubik_psi_config": reference_only(_rubik_psi_config),
    },
)
