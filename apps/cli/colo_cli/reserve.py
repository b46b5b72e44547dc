"""The commands `colo reserve`, `colo unreserve`, `colo get reservations` and `colo explain reservation`."""

import json
import sys
import urllib.parse
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.holds import holds_text
from colo_cli.job_files import read_file
from colo_cli.output import ListOutput, Output, bytes_text, cpu_text, print_data, print_list, span_text
from colo_cli.plan import print_refusals
from colo_cli.watching import Watch, watched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colo_common.events.requests import ReservationDetail
    from colo_common.model.reservation import LabelRule, OwnerTerm

__all__ = ["reservation", "reservations", "reserve", "unreserve"]

_ENDED = ("Succeeded", "Failed")
_COLUMNS = (
    "RESERVATION", "PHASE", "NODE", "CPU>", "MEMORY>", "CPU LEFT>", "MEMORY LEFT>", "OWNERS>", "ENDS IN>",
)  # fmt: skip


def reserve(
    *,
    file: Annotated[str, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)],
    output: Output = "table",
    api: str | None = None,
) -> int:
    """Hold a place for owners who come later. The same file again changes nothing.

    Args:
        file: The reservation file (YAML or JSON); "-" reads standard input.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    from colo_common.events.requests import ReservationDetail
    from colo_common.model.reservation_file import reservation_from_mapping

    mapping = read_file(file, "reservation", reservation_from_mapping)
    body = json.dumps(mapping, default=str).encode()
    answer = Client(api).call("POST", "/v1/reservations", body, **{"Content-Type": "application/json"})
    held = answer_as(answer, ReservationDetail)
    if output != "table":
        print_data(answer, output)
    else:
        sys.stdout.write(f"{held.spec.name} {held.phase}\n")
    return 0


def unreserve(name: str, /, *, api: str | None = None) -> int:
    """Forget a reservation: its place is free again, its owners keep what they hold.

    Args:
        name: The reservation's name.
        api: Address of the gateway.
    """
    from colo_common.events.requests import ReservationDetail

    answer = Client(api).call("DELETE", f"/v1/reservations/{urllib.parse.quote(name, safe='')}")
    forgotten = answer_as(answer, ReservationDetail)
    sys.stdout.write(f"{forgotten.spec.name} was {forgotten.phase}\n")
    return 0


def reservations(
    *,
    phase: str = "",
    offset: int = 0,
    limit: int = 100,
    output: ListOutput = "table",
    watch: Watch = False,
    api: str | None = None,
) -> int:
    """List reservations by name.

    Args:
        phase: Only these phases (Pending, Available, Succeeded, Failed), separated by commas.
        offset: The number of reservations to leave out.
        limit: The most reservations to list, 1 to 1000.
        output: table, wide, name, json or yaml.
        watch: List again every two seconds.
        api: Address of the gateway.
    """
    client = Client(api)

    def show() -> int:
        from colo_common.events.requests import ReservationList

        answer = client.pages("/v1/reservations", "reservations", limit, phase=phase, offset=offset)
        found = answer_as(answer, ReservationList)
        rows = [_row(each) for each in found.reservations]
        more = found.total - offset - len(rows)
        if print_list(answer, output, _COLUMNS, lambda: rows, "no reservations") and more > 0:
            print(f"and {more} more")
        return 0

    return watched(watch, show)


def _row(each: "ReservationDetail") -> list[str]:
    return [
        each.spec.name,
        each.phase + (f" ({each.reason})" if each.reason else ""),
        each.node or "-",
        cpu_text(each.spec.request.cpu_mcpu),
        bytes_text(each.spec.request.memory_bytes),
        cpu_text(each.left.cpu_mcpu),
        bytes_text(each.left.memory_bytes),
        str(len(each.owners)),
        _ends(each),
    ]


def reservation(name: str, /, *, output: Output = "table", api: str | None = None) -> int:
    """Show what a reservation holds and its users, or what it waits for.

    Args:
        name: The reservation's name.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    from colo_common.events.requests import ReservationDetail

    answer = Client(api).get(f"/v1/reservations/{urllib.parse.quote(name, safe='')}")
    if output != "table":
        print_data(answer, output)
        return 0
    detail = answer_as(answer, ReservationDetail)
    spec = detail.spec
    reason = f" ({detail.reason})" if detail.reason else ""
    where = f" on {detail.node}" if detail.node else ""
    is_over = detail.phase in _ENDED
    ends = "" if is_over else ", never ends" if detail.expires_at_ms is None else f", ends in {_ends(detail)}"
    print(f"{spec.name}: {detail.phase}{reason}{where}{ends}")
    once = "for one use" if spec.allocate_once else "used again and again"
    print(f"  for {_owners(spec.owners)}; policy {spec.policy.value}; {once}")
    if detail.place.zones and not is_over:
        print(f"  reserved: {holds_text(detail.place)}")
    if detail.phase == "Available":
        print(f"  left: {holds_text(detail.left)}")
    for use in detail.owners:
        amounts = f"{cpu_text(use.cpu_mcpu)} CPU, {bytes_text(use.memory_bytes)}"
        print(f"  used by {use.replica} (attempt {use.attempt}): {amounts}")
    print_refusals(detail.counts, detail.nearest, never=detail.never)
    return 0


def _ends(each: "ReservationDetail") -> str:
    if each.phase in _ENDED:
        return "-"
    return "never" if each.expires_at_ms is None else span_text(max(0, each.expires_at_ms - each.now_ms))


def _owners(terms: "Sequence[OwnerTerm]") -> str:
    found = []
    for term in terms:
        job, replica = term.controller, term.object
        parts = [f"job {job.name or job.uid or 'of any name'}"] if job is not None else []
        parts += [f"replica {replica.name or replica.uid or 'of any name'}"] if replica is not None else []
        parts += [_rule_text(rule) for rule in term.labels]
        found.append(" and ".join(parts) or "everybody")
    return " or ".join(found) or "nobody"


def _rule_text(rule: "LabelRule") -> str:
    """A rule about a label as a selector says it: disk=ssd,nvme, disk!=hdd, disk, !disk."""
    values = ",".join(rule.values)
    match rule.operator:
        case "In":
            return f"{rule.key}={values}"
        case "NotIn":
            return f"{rule.key}!={values}"
        case "Exists":
            return rule.key
        case "DoesNotExist":
            return f"!{rule.key}"
