"""The command `colo get services`: who is there, since when, how far behind, ready or why not."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.event_lines import print_clock
from colo_cli.output import ListOutput, ago, print_list
from colo_cli.watching import Watch, watched

if TYPE_CHECKING:
    from colo_gateway.state_replies import ServiceEntry

__all__ = ["SERVICE_COLUMNS", "service_rows", "services"]

SERVICE_COLUMNS: Final = (
    "SERVICE", "READY", "UP FOR>", "BEHIND>", "IN WORK>", "INBOX>", "DEAD LETTERS>", "HOLDS>", "+HELD FOR>", "+HOST",
    "+PID>", "+BOOT", "+VERSION", "+HANDLED>", "WHY NOT",
)  # fmt: skip


def services(*, output: ListOutput = "table", watch: Watch = False, api: str | None = None) -> int:
    """List the control services, a line for each instance.

    Args:
        output: table, wide (also what tells instances apart), name, json or yaml.
        watch: List again every two seconds.
        api: Address of the gateway.
    """
    client = Client(api)

    def show() -> int:
        from colo_gateway.state_replies import ServicesReply

        answer = client.get("/v1/services")
        found = answer_as(answer, ServicesReply)
        rows = [row for entry in found.services for row in service_rows(entry)]
        if print_list(answer, output, SERVICE_COLUMNS, lambda: rows, "no services"):
            for sentence in found.missing:
                print(f"not known: {sentence}")
            print_clock(found.clock_speed)
        return 0 if all(entry.is_ready for entry in found.services) else 1

    return watched(watch, show)


def holds(held: tuple[int, ...], partitions: int) -> str:
    """How many partitions of the work an instance holds; one that holds none stands by. "-": the work is not divided."""
    return f"{len(held)}/{partitions}" if partitions else "-"


def service_rows(entry: "ServiceEntry") -> Iterator[list[str]]:
    """A row for each instance; one row for a service that has none. The messages that wait belong to all instances together."""
    behind = "-" if entry.pending is None else str(entry.pending)
    in_work = "-" if entry.unacknowledged is None else str(entry.unacknowledged)
    if not entry.instances:
        yield [entry.service, "no", "-", behind, in_work, "-", str(entry.dead_letters), *("-",) * 7, entry.why]
    for one in entry.instances:
        why = "; ".join(f"{part}: {problem}" for part, problem in sorted(one.problems.items()))
        yield [
            entry.service,
            "no" if why else "yes",
            ago(one.started_at_ms, one.now_ms),
            behind,
            in_work,
            str(one.inbox_items),
            str(one.dead_letters),
            holds(one.held, one.partitions),
            ago(0, one.held_for_ms) if one.held else "-",
            one.host,
            str(one.pid),
            one.boot_id,
            one.version,
            str(one.handled),
            why,
        ]
