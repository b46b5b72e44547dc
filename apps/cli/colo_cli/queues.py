"""The commands `colo get queues` and `colo get tenants`: what each waits for and holds, and its share of the fleet."""

from typing import TYPE_CHECKING, Final

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.event_lines import print_clock
from colo_cli.output import ListOutput, bytes_text, cpu_text, print_list, print_text, share_text, span_text
from colo_cli.watching import Watch, watched

if TYPE_CHECKING:
    from colo_common.events.fleet import FleetTotals, TenantSummary
    from colo_common.events.requests import QueueSummary

__all__ = ["queues", "tenants"]

_USE: Final = (
    "CPU HELD>",
    "MEM HELD>",
    "CPU WAITING>",
    "+MEM WAITING>",
    "+ONLINE CPU>",
    "+ONLINE MEM>",
    "+MID CPU>",
    "+MID MEM>",
)
_QUEUE_COLUMNS: Final = ("QUEUE", "JOBS>", "WAITING>", "OLDEST>", "RUNNING>", *_USE, "+MAY WAIT>")
_TENANT_COLUMNS: Final = ("TENANT", "JOBS>", "WAITING>", "RUNNING>", *_USE, "+QUEUES")


def queues(*, output: ListOutput = "table", watch: Watch = False, api: str | None = None) -> int:
    """List queues: what waits and runs, and what batch work holds as a share of all that is promised to batch work.

    Args:
        output: table, wide, name, json or yaml.
        watch: List again every two seconds.
        api: Address of the gateway.
    """
    client = Client(api)

    def show() -> int:
        from colo_gateway.state_replies import QueuesReply

        answer = client.pages("/v1/queues", "queues")
        found = answer_as(answer, QueuesReply)
        if print_list(
            answer,
            output,
            _QUEUE_COLUMNS,
            lambda: [_queue_row(each, found.fleet) for each in found.queues],
            "no queues",
        ):
            _print_fleet(found.fleet, found.missing)
            print_clock(client.clock_speed)
        return 0

    return watched(watch, show)


def tenants(*, output: ListOutput = "table", watch: Watch = False, api: str | None = None) -> int:
    """List tenants that have jobs: what waits and runs, and what they hold as a share of all that is promised to batch work.

    Args:
        output: table, wide, name, json or yaml.
        watch: List again every two seconds.
        api: Address of the gateway.
    """
    client = Client(api)

    def show() -> int:
        from colo_gateway.state_replies import TenantsReply

        answer = client.pages("/v1/tenants", "tenants")
        found = answer_as(answer, TenantsReply)
        if print_list(
            answer,
            output,
            _TENANT_COLUMNS,
            lambda: [_tenant_row(each, found.fleet) for each in found.tenants],
            "no tenant has a job now",
        ):
            _print_fleet(found.fleet, found.missing)
            print_clock(client.clock_speed)
        return 0

    return watched(watch, show)


def _queue_row(queue: "QueueSummary", fleet: "FleetTotals | None") -> list[str]:
    oldest = span_text(queue.oldest_wait_ms) if queue.waiting else "-"
    counts = [queue.queue, str(queue.jobs), str(queue.waiting), oldest, str(queue.running)]
    return [*counts, *_use(queue, fleet), str(queue.capacity)]


def _tenant_row(tenant: "TenantSummary", fleet: "FleetTotals | None") -> list[str]:
    counts = [tenant.tenant, str(tenant.jobs), str(tenant.waiting), str(tenant.running)]
    return [*counts, *_use(tenant, fleet), ",".join(tenant.queues)]


def _use(one: "QueueSummary | TenantSummary", fleet: "FleetTotals | None") -> list[str]:
    return [
        f"{cpu_text(one.held_cpu_mcpu)} ({share_text(one.held_cpu_mcpu, fleet.batch_cpu_mcpu if fleet else 0)})",
        f"{bytes_text(one.held_memory_bytes)}"
        f" ({share_text(one.held_memory_bytes, fleet.batch_memory_bytes if fleet else 0)})",
        cpu_text(one.waiting_cpu_mcpu),
        bytes_text(one.waiting_memory_bytes),
        cpu_text(one.online_cpu_mcpu),
        bytes_text(one.online_memory_bytes),
        cpu_text(one.mid_cpu_mcpu),
        bytes_text(one.mid_memory_bytes),
    ]


def _print_fleet(fleet: "FleetTotals | None", missing: tuple[str, ...]) -> None:
    if fleet is not None:
        print()
        print_text(
            f"shares are of what all nodes promise to batch work now: {cpu_text(fleet.batch_cpu_mcpu)} CPU,"
            f" {bytes_text(fleet.batch_memory_bytes)}"
        )
    for sentence in missing:
        print(f"\nnot known: {sentence}")
