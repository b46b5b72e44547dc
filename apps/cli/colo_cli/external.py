"""The commands `colo external set|clear`: what a system outside gives batch work on a node, for a time."""

import json
import urllib.parse
from typing import TYPE_CHECKING, Any

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.output import Format, Output, bytes_text, cpu_text, print_data, print_text, span_text
from colo_cli.restrictions import As, who_asks

if TYPE_CHECKING:
    from colo_common.events.external import ExternalCapacity

__all__ = ["clear", "external_line", "set_"]


def set_(
    node: str,
    /,
    *,
    source: str,
    cpu: str = "",
    memory: str = "",
    for_: str,
    by: As = "",
    output: Output = "table",
    api: str | None = None,
) -> int:
    """Promise batch work no more than this on a node, until the time is over; said again, its time begins again.

    The smallest of all sources and of the computed number counts; what batch work holds stays.

    Args:
        node: The node's name.
        source: Who says it: the name of a system, by which it is renewed and cleared.
        cpu: CPU ("4", "3500m").
        memory: Memory ("8Gi").
        for_: How long it counts, 1s to 24h ("10m").
        by: Who asks; COLO_USER or your user name when absent.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    given = {"cpu": cpu, "memory": memory}
    asked = {"source": source, "for": for_, "by": who_asks(by), **{name: text for name, text in given.items() if text}}
    answer = Client(api).call("PUT", _path(node), json.dumps(asked).encode(), **{"Content-Type": "application/json"})
    return _print(answer, output)


def clear(node: str, /, *, source: str, output: Output = "table", api: str | None = None) -> int:
    """End what a source said of a node before its time is over.

    Args:
        node: The node's name.
        source: Who said it.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = Client(api).call("DELETE", f"{_path(node)}?{urllib.parse.urlencode({'source': source})}")
    return _print(answer, output)


def external_line(each: "ExternalCapacity", now_ms: int) -> str:
    """ "yarn gives batch work at most 4.0 CPU, 8Gi for 45s more (by ana)"."""
    cpu = "" if each.cpu_mcpu is None else f"{cpu_text(each.cpu_mcpu)} CPU"
    memory = "" if each.memory_bytes is None else bytes_text(each.memory_bytes)
    amounts = ", ".join(filter(None, (cpu, memory)))
    by = f" (by {each.by})" if each.by else ""
    return f"{each.source} gives batch work at most {amounts} for {span_text(max(each.until_ms - now_ms, 0))} more{by}"


def _path(node: str) -> str:
    return f"/v1/nodes/{urllib.parse.quote(node, safe='')}/external"


def _print(answer: Any, output: Format) -> int:
    if output != "table":
        print_data(answer, output)
        return 0
    from colo_common.events.external import NodeExternal

    reply = answer_as(answer, NodeExternal)
    for each in reply.entries:
        print_text(f"{reply.node}: {external_line(each, reply.now_ms)}")
    if not reply.entries:
        print_text(f"{reply.node}: no system outside bounds batch work")
    return 0
