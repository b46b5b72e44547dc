"""Load traces from the answer of a Prometheus range query (`/api/v1/query_range`, result type matrix).

A series is one node, named by the first label it has of `node`, `instance`, `nodename`, `host`, `machine`. It holds
memory when its label `resource` is "memory" or "mem" in its `__name__`; else CPU. Memory is joined to CPU at equal times
and otherwise held from the sample before; a node without memory gets 50 %.

Whether values are percent or ratio: the caller's `unit` if given; else the end of `__name__` (`_ratio`, `_percent`,
`_pct`); else ratio when no value of that resource is above 1, percent otherwise. A notice states which rule decided.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from colo_common.model.invalid import InvalidInput
from colo_sim.trace_rows import MAX_ROWS, TraceRead, TraceRows, number_of

__all__ = ["PrometheusUnit", "parse_prometheus"]

PrometheusUnit = Literal["percent", "ratio"]
_Resource = Literal["cpu", "memory"]

_NODE_LABELS: Final = ("node", "instance", "nodename", "host", "machine")
_DEFAULT_MEMORY_PPM: Final = 500_000
_WHOLE: Final[dict[PrometheusUnit, int]] = {"percent": 100, "ratio": 1}


class _Series(msgspec.Struct, frozen=True, kw_only=True):
    metric: dict[str, str]
    values: Annotated[list[tuple[float, str]], msgspec.Meta(max_length=MAX_ROWS)]


class _Data(msgspec.Struct, frozen=True, kw_only=True):
    resultType: str  # noqa: N815 - the name on the wire
    result: list[Any]


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    data: _Data | None = None
    error: str = ""


def parse_prometheus(text: bytes, rows: TraceRows, *, unit: PrometheusUnit | None = None) -> TraceRead:
    """Return the trace of a range-query answer. Raises InvalidInput naming the part that breaks a rule."""
    source = rows.source
    answer = _decoded(text, source)
    cpu: dict[str, dict[int, str]] = {}
    memory: dict[str, dict[int, str]] = {}
    names: dict[_Resource, set[str]] = {"cpu": set(), "memory": set()}
    for index, series in enumerate(answer):
        where = f"{source} data.result[{index}]"
        resource = _resource_of(series.metric)
        node = _node_of(series.metric, where, is_alone=len(answer) == 1)
        kept = cpu if resource == "cpu" else memory
        if node in kept:
            raise InvalidInput(f"{where}.metric", f"must be the only {resource} series of node {node}", series.metric)
        kept[node] = _samples_of(series, where)
        names[resource].add(series.metric.get("__name__", ""))
    if not cpu:
        raise InvalidInput(f"{source} data.result", "must hold at least one CPU series", len(answer))
    cpu_unit, cpu_why = _unit_of("cpu", names["cpu"], cpu, unit)
    memory_unit, memory_why = _unit_of("memory", names["memory"], memory, unit)
    for index, node in enumerate(sorted(cpu)):
        _add_node(rows, node, index, cpu[node], memory.get(node, {}), (cpu_unit, memory_unit))
    return rows.finish("prometheus", notices=(cpu_why, memory_why) if memory else (cpu_why,))


def _decoded(text: bytes, source: str) -> list[_Series]:
    try:
        answer = msgspec.json.decode(text, type=_Answer)
    except msgspec.MsgspecError as error:
        raise InvalidInput(source, f"must be the JSON answer of a Prometheus range query: {error}", "") from None
    if answer.status != "success" or answer.data is None:
        raise InvalidInput(f"{source} status", 'must be "success" with data', answer.error or answer.status)
    if answer.data.resultType != "matrix":
        raise InvalidInput(f"{source} data.resultType", 'must be "matrix" (a range query)', answer.data.resultType)
    try:
        return msgspec.convert(answer.data.result, type=list[_Series])
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{source} data.result", f"must be series of [time, text] values: {error}", "") from None


def _resource_of(metric: dict[str, str]) -> _Resource:
    is_memory = metric.get("resource") == "memory" or "mem" in metric.get("__name__", "").lower()
    return "memory" if is_memory else "cpu"


def _node_of(metric: dict[str, str], where: str, *, is_alone: bool) -> str:
    for label in _NODE_LABELS:
        if metric.get(label):
            return metric[label]
    if is_alone:
        return "all"
    raise InvalidInput(f"{where}.metric", f"must have one of the labels {', '.join(_NODE_LABELS)}", metric)


def _samples_of(series: _Series, where: str) -> dict[int, str]:
    samples: dict[int, str] = {}
    last_ms = -1
    for index, (seconds, value) in enumerate(series.values):
        t_ms = round(seconds * 1000)
        if t_ms <= last_ms:
            raise InvalidInput(f"{where}.values[{index}] time", "must ascend and be at least 0", seconds)
        samples[t_ms] = value
        last_ms = t_ms
    return samples


def _unit_of(
    resource: _Resource, names: set[str], nodes: dict[str, dict[int, str]], asked: PrometheusUnit | None
) -> tuple[PrometheusUnit, str]:
    """Return the unit and a sentence with the reason for it."""
    if asked is not None:
        return asked, f"{resource} values are read as {asked}, as asked"
    ends = sorted(name.rsplit("_", 1)[-1] for name in names)
    if ends and all(end == "ratio" for end in ends):
        return "ratio", f"{resource} values are read as ratio, because the metric's name says so"
    if ends and all(end in ("percent", "pct") for end in ends):
        return "percent", f"{resource} values are read as percent, because the metric's name says so"
    largest = 0.0
    for samples in nodes.values():
        for value in samples.values():
            try:
                largest = max(largest, number_of(value, resource))
            except InvalidInput:
                continue  # refused or left out, with its place, when the sample itself is read
    if largest <= 1:
        return "ratio", f"{resource} values are read as ratio, because none is above 1"
    return "percent", f"{resource} values are read as percent, because the largest is {largest:g}"


def _add_node(
    rows: TraceRows,
    node: str,
    index: int,
    cpu: dict[int, str],
    memory: dict[int, str],
    units: tuple[PrometheusUnit, PrometheusUnit],
) -> None:
    mem_ppm = _DEFAULT_MEMORY_PPM
    # "line" is the position of the sample in its series: a JSON answer is usually one line of text.
    for line, (t_ms, value) in enumerate(cpu.items(), start=1):
        if t_ms in memory:
            read_ppm = rows.share_ppm(memory[t_ms], line, f"memory of {node}", whole=_WHOLE[units[1]])
            mem_ppm = mem_ppm if read_ppm is None else read_ppm
        cpu_ppm = rows.share_ppm(value, line, f"cpu of {node}", whole=_WHOLE[units[0]])
        if cpu_ppm is not None:
            rows.add(node, t_ms, cpu_ppm, mem_ppm, line)
