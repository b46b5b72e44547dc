"""The command `colo get services`: who is there, since when, how far behind, ready or why not."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.event_lines import print_clock
from colo_cli.output import ListOutput, ago, print_list
from colo_cli.watching import Watch, watched
from colo_common.model.partition import Share

if TYPE_CHECKING:
    from colo_gateway.state_replies import ServiceEntry

__all__ = ["SERVICE_COLUMNS", "service_rows", "services"]

SERVICE_COLUMNS: Final = (
    "SERVICE", "READY", "UP FOR>", "BEHIND>", "+IN WORK>", "+INBOX>", "DEAD LETTERS>", "HOLDS>", "+PARTITIONS",
    "HELD FOR>", "+BEHIND BY PARTITION", "+HOST", "+PID>", "+BOOT", "+VERSION", "+HANDLED>", "WHY NOT",
)  # fmt: skip


def services(*, output: ListOutput = "table", watch: Watch = False, api: str | None = None) -> int:
    """List the control services, a line for each instance.

    Args:
        output: table, wide (also which partitions each holds and how far behind each of them is, and what tells instances
            apart), name, json or yaml.
        watch: List again every two seconds.
        api: Address of the gateway.
    """
    client = Client(api)

    def show() -> int:
        from colo_gateway.state_replies import ServicesReply

        answer = client.get("/v1/services")
        found = answer_as(answer, ServicesReply)
        rows = [row for entry in found.services for row in service_rows(entry, found.clock_speed)]
        if print_list(answer, output, SERVICE_COLUMNS, lambda: rows, "no services"):
            for sentence in found.missing:
                print(f"not known: {sentence}")
            print_clock(found.clock_speed)
        return 0 if all(entry.is_ready for entry in found.services) else 1

    return watched(watch, show)


def holds(held: tuple[int, ...], partitions: int) -> str:
    """How many partitions of the work an instance holds; one that holds none stands by. "-": the work is not divided."""
    return f"{len(held)}/{partitions}" if partitions else "-"


def ranges_text(numbers: Sequence[int]) -> str:
    """Numbers in short: "0,2-3"; "-" without any."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs) or "-"


def behind_by_partition(entry: "ServiceEntry", held: Sequence[int], partitions: int) -> str:
    """How many messages wait for each of the partitions, "0: 12, 3: 0", where each has consumers of its own, else "-"."""
    waiting: dict[int, int] = {}
    for partition in sorted(held):
        begins = f"colo-{entry.service}-{Share(partition, partitions).name}-"
        own = [each.pending for each in entry.consumers if each.consumer.startswith(begins)]
        if own:
            waiting[partition] = sum(own)
    return ", ".join(f"{partition}: {pending}" for partition, pending in waiting.items()) or "-"


def service_rows(entry: "ServiceEntry", clock_speed: float = 1.0) -> Iterator[list[str]]:
    """A row for each instance; one row for a service that has none. The messages that wait belong to all instances together.

    Leases are held by the clock on the wall; the time is shown by the services' clock, as all others are.
    """
    behind = "-" if entry.pending is None else str(entry.pending)
    in_work = "-" if entry.unacknowledged is None else str(entry.unacknowledged)
    if not entry.instances:
        yield [entry.service, "no", "-", behind, in_work, "-", str(entry.dead_letters), *("-",) * 9, entry.why]
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
            ranges_text(one.held),
            ago(0, round(one.held_for_ms * clock_speed)) if one.held else "-",
            behind_by_partition(entry, one.held, one.partitions),
            one.host,
            str(one.pid),
            one.boot_id,
            one.version,
            str(one.handled),
            why,
        ]
