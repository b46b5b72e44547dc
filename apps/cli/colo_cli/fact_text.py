"""The text of a fact in one line, for `colo watch`."""

from collections.abc import Callable
from typing import Any, Final

from colo_cli.plan import nearest_text, never_text

__all__ = ["fact_text"]

_LEFT_OUT: Final = frozenset({"at_ms", "producer", "boot_id", "seq", "sent_us", "retry_at_ms", "traceparent", "never"})
_LINE_MOST: Final = 300
_SHOWN_MOST: Final = 3


def fact_text(body: dict[str, Any]) -> str:
    """The fields of a fact as "name=value", at most 300 characters, without the envelope; lists name their first three members."""
    job = f"{body.get('job', '')}/"
    parts = []
    for key, value in body.items():
        if key in _LEFT_OUT or value is False or value in ("", None, [], {}):
            continue
        if key == "job" and str(body.get("replica", "")).startswith(job):
            # The replica's id begins with the job's id.
            continue
        if key == "nearest":
            parts.append(f"nearest: {never_text(value) if body.get('never') else nearest_text(value)}")
        elif isinstance(value, list):
            parts.append(
                f"{key}: {_moves_text(value, job) if key == 'changes' else _several(value, _MEMBERS.get(key))}"
            )
        elif isinstance(value, dict):
            parts.append(_proposal_text(value) if key == "proposal" else f"{key}[{len(value)}]")
        else:
            parts.append(f"{key}={value}")
    line = " ".join(parts)
    return line if len(line) <= _LINE_MOST else line[: _LINE_MOST - 3] + "..."


def _several(members: list[Any], text: Callable[[Any], str] | None) -> str:
    if text is None:
        return str(len(members))
    more = len(members) - _SHOWN_MOST
    return ", ".join(map(text, members[:_SHOWN_MOST])) + (f" and {more} more" if more > 0 else "")


def _moves_text(changes: list[dict[str, Any]], job: str) -> str:
    """The state changes of each replica in one path: "main/0 Pending -> Assigned -> Running, main/1 Pending -> Assigned"."""
    paths: dict[str, list[str]] = {}
    for change in changes:
        path = paths.setdefault(change["replica"].removeprefix(job), [change["previous"]])
        path.append(change["state"])
    return _several(list(paths.items()), lambda item: f"{item[0]} {' -> '.join(item[1])}")


def _attempt_text(pair: list[Any]) -> str:
    return str(pair[0])


def _placement_text(placement: dict[str, Any]) -> str:
    zones = ",".join(str(zone["zone"]) for zone in placement["zones"])
    return f"{placement['replica']} on {placement['node']} zone {zones}"


def _release_text(release: dict[str, Any]) -> str:
    return f"{_several(release['attempts'], _attempt_text)} on {release['node']}"


def _proposal_text(proposal: dict[str, Any]) -> str:
    return f"would fit on {proposal['node']} if {_several(proposal['victims'], _replica_text)} left"


def _replica_text(member: dict[str, Any]) -> str:
    return str(member["replica"])


_MEMBERS: Final[dict[str, Callable[[Any], str]]] = {
    "attempts": _attempt_text,
    "counts": lambda count: f"{count['nodes']} {count['reason']}",
    "knobs": lambda knob: f"{knob['path']}={knob['value']}",
    "nodes": _release_text,
    "placements": _placement_text,
    "ranking": _replica_text,
    "running": _attempt_text,
    "placement_requests": _replica_text,
}
