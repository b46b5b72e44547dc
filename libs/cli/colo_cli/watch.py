"""`colo watch`: one line for each fact, as it happens."""

import json
from typing import Any

from colo_cli.client import Client

__all__ = ["watch"]

_HEAD = {"at_ms", "producer", "boot_id", "seq", "sent_us"}


def watch(
    *,
    types: str = "",
    node: str = "",
    job: str = "",
    since: int | None = None,
    json_lines: bool = False,
    api: str | None = None,
) -> int:
    """Follow what happens; Ctrl-C ends it.

    Args:
        types: Only these fact types, separated by commas (PlacementsDecided,EvictionRequested,...).
        node: Only facts of this node.
        job: Only facts of this job.
        since: Resume after this position of the tape; 0 replays what is kept.
        json_lines: One JSON object a line instead of text.
        api: Address of the gateway.
    """
    try:
        for name, body in Client(api).events(types=types, node=node, job=job, since=since):
            if json_lines:
                print(json.dumps({"type": name, **body}), flush=True)
            else:
                print(f"{name:<22} {_line(body)}", flush=True)
    except KeyboardInterrupt:
        pass
    return 0


def _line(body: dict[str, Any]) -> str:
    parts = []
    for key, value in body.items():
        if key in _HEAD or value in ("", None, [], {}):
            continue
        if isinstance(value, list | dict):
            parts.append(f"{key}[{len(value)}]")
        else:
            parts.append(f"{key}={value}")
    return " ".join(parts)[:300]
