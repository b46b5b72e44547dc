"""The command `colo get restrictions`, and what the commands that restrict share: who asks, and what was done."""

import getpass
import json
import os
import urllib.parse
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from cyclopts import Parameter

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.event_lines import print_clock
from colo_cli.failure import Failure
from colo_cli.output import Format, ListOutput, Output, ago, print_data, print_list, span_text
from colo_cli.watching import Watch, watched

if TYPE_CHECKING:
    from colo_common.events.restriction import RestrictionChange, RestrictionList
    from colo_common.model.restriction import Restriction

__all__ = [
    "Answered",
    "As",
    "Output",
    "ask_to_lift",
    "ask_to_restrict",
    "done_text",
    "print_changes",
    "read_answer",
    "restriction_line",
    "restrictions",
    "who_asks",
]

_AUDIT_SHOWN: Final = 10
_DONE: Final = {"cordon": "cordoned", "drain": "drained", "pause": "paused", "quiesce": "quiesced"}
As = Annotated[str, Parameter(name="--as")]


class Answered(NamedTuple):
    """What the gateway answered: `answer` as it came, for JSON and YAML, and `reply`, what it says."""

    answer: Any
    reply: "RestrictionList"


def restrictions(*, output: ListOutput = "table", watch: Watch = False, api: str | None = None) -> int:
    """List what operators forbid now, who and why, and the newest changes.

    Args:
        output: table, wide, name, json or yaml.
        watch: List again every two seconds.
        api: Address of the gateway.
    """
    client = Client(api)
    return watched(watch, lambda: _show(client, output))


def _show(client: Client, output: ListOutput) -> int:
    answer, reply = read_answer(client.get("/v1/restrictions"))
    now_ms = reply.now_ms
    rows = [
        [
            each.kind.value
            + (" (batch only)" if each.batch_only else "")
            + (" (evicts)" if each.evicts else "")
            + (" (with what runs)" if each.suspends else ""),
            f"{each.scope.value} {each.target}".strip(),
            each.by or "-",
            each.reason or "-",
            f"{ago(each.since_ms, now_ms)} ago",
            "when lifted" if each.until_ms is None else f"in {span_text(max(0, each.until_ms - now_ms))}",
        ]
        for each in reply.restrictions
    ]
    columns = ["RESTRICTION", "TARGET", "BY", "WHY", "SINCE", "ENDS"]
    is_table = print_list(answer, output, columns, lambda: rows, "nothing is restricted")
    if is_table and reply.restrictions:
        print_clock(client.clock_speed)
    if is_table and reply.audit:
        print("\nchanges, newest first:")
        for change in reply.audit[:_AUDIT_SHOWN]:
            print(f"  {ago(change.at_ms, now_ms)} ago: {done_text(change)}")
    return 0


def read_answer(answer: Any) -> Answered:
    """The gateway's answer to a question about restrictions, or to a change of them."""
    from colo_common.events.restriction import RestrictionList

    return Answered(answer, answer_as(answer, RestrictionList))


def who_asks(given: str) -> str:
    """Who asks: --as, COLO_USER, or the name of the operating system's user; "" when nobody knows."""
    name = given or os.environ.get("COLO_USER", "")
    if name:
        return name
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def ask_to_restrict(api: str | None, kind: str, scope: str, target: str = "", /, **fields: Any) -> Answered:
    """Put a restriction in force; fields that are None or empty are left out. The reply of the gateway."""
    given = {"kind": kind, "scope": scope, "target": target, **fields, "by": who_asks(fields.get("by", ""))}
    body = json.dumps({name: value for name, value in given.items() if value not in (None, "", False)}).encode()
    return read_answer(Client(api).call("POST", "/v1/restrictions", body, **{"Content-Type": "application/json"}))


def ask_to_lift(api: str | None, kinds: tuple[str, ...], scope: str, target: str, *, by: str, reason: str) -> Answered:
    """Lift these kinds of restriction from a target. The reply of the gateway."""
    query = {"kind": ",".join(kinds), "scope": scope, "target": target, "by": who_asks(by), "reason": reason}
    return read_answer(Client(api).call("DELETE", f"/v1/restrictions?{urllib.parse.urlencode(query)}"))


def print_changes(answered: Answered, nothing: str, output: Format) -> None:
    """Print what was done, or the sentence for nothing to do."""
    if output != "table":
        print_data(answered.answer, output)
        return
    for change in answered.reply.changes:
        print(done_text(change))
    if not answered.reply.changes:
        print(nothing)


def done_text(change: "RestrictionChange") -> str:
    """One change in plain words: "node n1 cordoned by ana: kernel upgrade, until it is lifted"."""
    each = change.restriction
    what = f"{each.scope.value} {each.target}".strip()
    by = f" by {change.by}" if change.by else ""
    why = f": {change.reason}" if change.reason else ""
    if change.action == "expired":
        return f"{what}: the {each.kind.value} is over, its time has passed"
    if change.action == "lifted":
        return f"{what}: {each.kind.value} lifted{by}{why}"
    changed = " (changed)" if change.action == "changed" else ""
    return f"{what} {_kind_text(each)}{by}{why}{_end_text(each)}{changed}"


def restriction_line(each: "Restriction") -> str:
    """A restriction in force in plain words: "cordoned by ana: kernel upgrade"."""
    by = f" by {each.by}" if each.by else ""
    return f"{_kind_text(each)}{by}" + (f": {each.reason}" if each.reason else "")


def _kind_text(each: "Restriction") -> str:
    running = " with what runs" if each.suspends else ""
    return _DONE[each.kind.value] + (" of batch work" if each.batch_only else "") + running


def _end_text(each: "Restriction") -> str:
    if each.until_ms is None:
        return ""
    return f", for {span_text(each.until_ms - each.since_ms)}"


def one_of(kinds: dict[str, str]) -> tuple[str, str]:
    """The scope and the name of the one that is given. Raises Failure for none or several."""
    given = [(scope, name) for scope, name in kinds.items() if name]
    if len(given) != 1:
        raise Failure(f"give exactly one of {', '.join(kinds)}", 2)
    return given[0]
