"""The commands `colo quiesce` and `colo unquiesce`."""

import time
from typing import TYPE_CHECKING, Final

import msgspec

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.output import counted, cpu_text, print_data
from colo_cli.restrictions import (
    Answered,
    As,
    Output,
    ask_to_lift,
    ask_to_restrict,
    print_changes,
    read_answer,
    restriction_line,
)

if TYPE_CHECKING:
    from colo_common.events.restriction import QuiesceProgress

__all__ = ["quiesce", "unquiesce"]

_POLL_S: Final = 0.03
_NAMED_MOST: Final = 10


def quiesce(
    *,
    reason: str = "",
    for_: str | None = None,
    evict: bool = False,
    grace: str | None = None,
    end: bool = False,
    dry_run: bool = False,
    wait: float = 5.0,
    by: As = "",
    output: Output = "table",
    api: str | None = None,
) -> int:
    """Stop all batch work everywhere at once: what runs is suspended, none is placed. Online work is not touched.

    Reports how many nodes have confirmed it and how fast. Ends with 1 when some did not answer in time; they follow when they do.

    Args:
        reason: Why, in a line; everybody who asks reads it.
        for_: The time after which it ends by itself, such as 10m; without it, until `colo unquiesce`.
        evict: Suspended batch work then leaves its nodes, in order and within the eviction budget.
        grace: With --evict, the time between SIGTERM and SIGKILL; without it, each replica's own.
        end: End it, as `colo unquiesce`.
        dry_run: Only show what it would stop.
        wait: The most seconds to wait for the nodes.
        by: Who asks; COLO_USER or your user name when absent.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    if end:
        return unquiesce(reason=reason, wait=wait, by=by, output=output, api=api)
    if dry_run:
        return _preview(api, output)
    begun_s = time.monotonic()
    fields = {"for": for_, "evicts": evict, "grace": grace}
    asked = ask_to_restrict(api, "quiesce", "fleet", reason=reason, by=by, **fields)
    return _report(asked, "all batch work is quiesced already", begun_s, wait, output, api)


def unquiesce(
    *, reason: str = "", wait: float = 5.0, by: As = "", output: Output = "table", api: str | None = None
) -> int:
    """End a quiesce: suspended batch work runs on, new batch work is placed.

    Args:
        reason: Why, in a line.
        wait: The most seconds to wait for the nodes.
        by: Who asks; COLO_USER or your user name when absent.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    begun_s = time.monotonic()
    asked = ask_to_lift(api, ("quiesce",), "fleet", "", by=by, reason=reason)
    if not asked.reply.changes:
        print_changes(asked, "batch work is not quiesced", output)
        return 0
    return _report(asked, "", begun_s, wait, output, api)


def _report(asked: Answered, nothing: str, begun_s: float, wait_s: float, output: Output, api: str | None) -> int:
    """Wait until every node has confirmed, or for `wait_s`, and print how far it is."""
    client = Client(api)
    changes, latest = asked.reply.changes, asked
    while True:
        progress = latest.reply.quiesce
        # A change is followed from its own revision on, a repetition from the last one on.
        if progress is not None and changes and progress.revision < asked.reply.revision:
            progress = None
        is_done = progress is not None and progress.confirmed == progress.nodes
        took_s = time.monotonic() - begun_s
        if is_done or took_s > wait_s:
            break
        time.sleep(_POLL_S)
        latest = read_answer(client.get("/v1/restrictions"))
    if output != "table":
        changed = {"changes": msgspec.to_builtins(changes), "took_ms": round(took_s * 1_000)}
        print_data({**latest.answer, **changed}, output)
    else:
        print_changes(asked, nothing, output)
        _print_progress(asked, latest, progress, took_s)
    return 0 if is_done and progress is not None and not progress.failed else 1


def _print_progress(asked: Answered, latest: Answered, progress: "QuiesceProgress | None", took_s: float) -> None:
    if not asked.reply.changes:
        for each in latest.reply.restrictions:
            if each.kind.value == "quiesce":
                print(restriction_line(each))
    if progress is None:
        print("no node has confirmed it yet")
        return
    print(
        f"{progress.confirmed} of {counted(progress.nodes, 'node')} confirmed it within {took_s:.2f} s"
        f" (the slowest {progress.slowest_ms} ms after the order); {counted(progress.suspended, 'replica')} suspended"
    )
    missing = progress.missing
    if missing:
        more = progress.nodes - progress.confirmed - len(missing[:_NAMED_MOST])
        print(f"no answer yet from {', '.join(missing[:_NAMED_MOST])}" + (f" and {more} more" if more > 0 else ""))
    for sentence in progress.failed:
        print(f"failed: {sentence}")


def _preview(api: str | None, output: Output) -> int:
    from colo_common.events.requests import NodeList

    nodes = answer_as(Client(api).pages("/v1/nodes", "nodes"), NodeList).nodes
    present = [node for node in nodes if node.freshness.value != "lost"]
    held_mcpu = sum(node.held_cpu_mcpu for node in present)
    used_mcpu = sum(node.batch_cpu_used_mcpu for node in present)
    if output != "table":
        print_data({"nodes": len(present), "held_cpu_mcpu": held_mcpu, "batch_cpu_used_mcpu": used_mcpu}, output)
        return 0
    print(
        f"would suspend batch work on {counted(len(present), 'node')}: {cpu_text(held_mcpu)} CPU held, "
        f"{cpu_text(used_mcpu)} CPU in use; nothing was changed"
    )
    return 0
