"""The command `colo status`: one screen about everything, what is wrong, and what to do about it."""

import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.output import Output, bytes_text, counted, cpu_text, fitted, painted, print_data, share_text, span_text
from colo_cli.services import service_rows
from colo_cli.watching import Watch, watched

if TYPE_CHECKING:
    from colo_gateway.state_replies import StatusReply

__all__ = ["status"]

_FINDINGS_SHOWN: Final = 6
_RESTRICTIONS_SHOWN: Final = 2
_LABEL: Final = 13


def status(*, output: Output = "table", watch: Watch = False, api: str | None = None) -> int:
    """Show on one screen whether all is well. Ends with 0 when it is, 1 when something is wrong or no gateway answers.

    Args:
        output: table, json or yaml.
        watch: Show it again every two seconds.
        api: Address of the gateway.
    """
    client = Client(api)

    def show() -> int:
        from colo_gateway.state_replies import StatusReply

        answer = client.get("/v1/status")
        reply = answer_as(answer, StatusReply)
        if output != "table":
            print_data(answer, output)
        else:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
            for line, colour in _lines(reply):
                cut = fitted(line, width)
                print(painted(cut, colour) if colour else cut)
        return 0 if reply.is_well else 1

    return watched(watch, show)


def _lines(status: "StatusReply") -> Iterator[tuple[str, str]]:
    """Every line with its colour, "" for none."""
    count = len(status.findings)
    if status.is_well:
        verdict = "all is well"
    else:
        verdict = "1 thing is wrong" if count == 1 else f"{count} things are wrong"
    clock = "" if status.clock_speed == 1 else f"   times are simulated, x{status.clock_speed:g}"
    yield f"colo {status.version}: {verdict}{clock}", "green" if status.is_well else "red"
    yield from _service_lines(status)
    yield from _fleet_lines(status)
    yield from _work_lines(status)
    for finding in status.findings[:_FINDINGS_SHOWN]:
        yield f"! {finding.what}", "red"
        yield f"    -> {finding.do}", ""
    if count > _FINDINGS_SHOWN:
        yield f"! and {count - _FINDINGS_SHOWN} more: colo status -o json", "red"
    for sentence in status.missing:
        yield f"not known: {sentence}", "yellow"


def _service_lines(status: "StatusReply") -> Iterator[tuple[str, str]]:
    yield f"{'SERVICE':<{_LABEL}}READY    UP FOR   BEHIND  IN WORK   INBOX  DEAD LETTERS", "bold"
    for entry in status.services:
        for row in service_rows(entry):
            name, ready, up_for, behind, in_work, inbox, dead = row[:7]
            line = f"{name:<{_LABEL}}{ready:<6}{up_for:>9}{behind:>9}{in_work:>9}{inbox:>8}{dead:>14}"
            yield line, "" if ready == "yes" else "red"


def _fleet_lines(status: "StatusReply") -> Iterator[tuple[str, str]]:
    fleet = status.fleet
    if fleet is None:
        return
    states = ", ".join(f"{count} {state}" for state, count in fleet.nodes.items() if count) or "none"
    late = f" ({', '.join(fleet.late[:3])}{' ...' if len(fleet.late) > 3 else ''})" if fleet.late else ""
    yield f"{'nodes':<{_LABEL}}{sum(fleet.nodes.values())}: {states}{late}", "yellow" if fleet.late else ""
    for name, unit, text, capacity, used, promised, held in (
        (
            "CPU",
            " CPU",
            cpu_text,
            fleet.cpu_capacity_mcpu,
            fleet.cpu_used_mcpu,
            fleet.batch_cpu_mcpu,
            fleet.held_cpu_mcpu,
        ),
        (
            "memory",
            "",
            bytes_text,
            fleet.memory_capacity_bytes,
            fleet.memory_used_bytes,
            fleet.batch_memory_bytes,
            fleet.held_memory_bytes,
        ),
    ):
        yield (
            (
                f"{name:<{_LABEL}}{text(capacity)}{unit}, {share_text(used, capacity)} used; batch is promised {text(promised)},"
                f" holds {share_text(held, promised)}"
            ),
            "",
        )
    if fleet.mid_nodes:
        yield (
            f"{'mid tier':<{_LABEL}}{cpu_text(fleet.mid_cpu_mcpu)} CPU and {bytes_text(fleet.mid_memory_bytes)} on"
            f" {counted(fleet.mid_nodes, 'node')}, holds {share_text(fleet.mid_held_cpu_mcpu, fleet.mid_cpu_mcpu)} and"
            f" {share_text(fleet.mid_held_memory_bytes, fleet.mid_memory_bytes)}",
            "",
        )
    if fleet.overdrawn_nodes:
        sums = ((fleet.overdrawn_cpu_mcpu, " CPU", cpu_text), (fleet.overdrawn_memory_bytes, " of memory", bytes_text))
        over = " and ".join(text(sum_) + unit for sum_, unit, text in sums if sum_)
        where = "1 node" if fleet.overdrawn_nodes == 1 else f"{fleet.overdrawn_nodes} nodes"
        yield (
            f"{'promises':<{_LABEL}}short on {where}: {over} more held than can be given now",
            "yellow",
        )
    else:
        yield f"{'promises':<{_LABEL}}kept: no node holds more batch work than it can give now", ""


def _work_lines(status: "StatusReply") -> Iterator[tuple[str, str]]:
    recent = status.recent
    if status.queues is not None:
        parts = [
            f"{queue.queue} {queue.waiting} waiting"
            + (f" ({span_text(queue.oldest_wait_ms)})" if queue.waiting else "")
            + f", {queue.running} running"
            for queue in sorted(status.queues, key=lambda one: (-one.waiting, one.queue))
        ]
        yield f"{'queues':<{_LABEL}}{'; '.join(parts)}", ""
    window = span_text(recent.window_ms)
    reasons = ", ".join(f"{count} {reason}" for reason, count in recent.evictions_by_reason.items())
    worst = next(iter(recent.evictions_by_node.items()), None)
    where = f"; most on {worst[0]} ({worst[1]})" if worst else ""
    yield (
        f"{'evictions':<{_LABEL}}{recent.evictions} in the last {window}{': ' + reasons if reasons else ''}{where}",
        "",
    )
    yield from _harm_lines(status)
    yield from _restriction_lines(status)


def _harm_lines(status: "StatusReply") -> Iterator[tuple[str, str]]:
    """What online services felt in the last ten minutes, and what they say of their own latency."""
    is_broken = any(one.above for one in status.latency.worst)
    for label, sentence, colour in (
        ("online harm", status.harm.sentence, "yellow" if status.harm.harmed_ms else ""),
        ("latency SLO", status.latency.sentence, "yellow" if is_broken else ""),
    ):
        for number, line in enumerate(textwrap.wrap(sentence, 79 - _LABEL)):
            yield f"{'' if number else label:<{_LABEL}}{line}", colour


def _restriction_lines(status: "StatusReply") -> Iterator[tuple[str, str]]:
    from colo_common.model.restriction import restriction_text

    if not status.restrictions:
        yield f"{'restricted':<{_LABEL}}nothing", ""
    for each in status.restrictions[:_RESTRICTIONS_SHOWN]:
        target = f"{each.scope.value} {each.target}".strip()
        yield f"{'restricted':<{_LABEL}}{target} {restriction_text(each)}", "yellow"
    more = len(status.restrictions) - _RESTRICTIONS_SHOWN
    if more > 0:
        yield f"{'':<{_LABEL}}and {more} more: colo get restrictions", "yellow"
