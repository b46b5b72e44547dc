"""The commands `colo policy show|check|diff|apply|rollback`: how much is promised where, as one document."""

import urllib.parse
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.job_files import read_text
from colo_cli.output import (
    Format,
    Output,
    ago,
    bytes_text,
    counted,
    cpu_text,
    print_data,
    print_table,
    print_text,
    span_text,
)
from colo_cli.restrictions import As, who_asks

if TYPE_CHECKING:
    from colo_common.events.policy import NodePreview, PolicyPreview, PolicyReply
    from colo_gateway.policy.replies import KeyShown, PolicyCheck, PolicyShown

__all__ = ["apply", "check", "diff", "rollback", "show"]

_NODES_SHOWN = 10
_HISTORY_SHOWN = 5
File = Annotated[str, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)]


def show(*, output: Output = "table", api: str | None = None) -> int:
    """Show the policy in force: each key with the service that owns it and whether that follows it, and the changes before.

    Args:
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = Client(api).call("GET", "/v1/policy")
    if output != "table":
        print_data(answer, output)
        return 0
    _print_shown(_shown(answer))
    return 0


def check(*, file: File, output: Output = "table", api: str | None = None) -> int:
    """Read a policy file and show what it would change, by a replay of the last minutes; nothing changes.

    The file is colo's own form, Koordinator's slo-controller-config, or openFuyao's ConfigMaps.

    Args:
        file: The policy file (YAML or JSON); "-" reads standard input.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = _asked(Client(api), file)
    if output != "table":
        print_data(answer, output)
        return 0
    found = _checked(answer)
    print_text(f"{file} is a policy in the form of {found.form}")
    _print_keys(found.keys)
    print()
    _print_differences(found)
    _print_preview(found.preview)
    return 0


def diff(*, file: File, output: Output = "table", api: str | None = None) -> int:
    """Show what a policy file would change in the document in force. Ends with 1 when there is a difference.

    Args:
        file: The policy file (YAML or JSON); "-" reads standard input.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = _asked(Client(api), file)
    found = _checked(answer)
    if output != "table":
        print_data({"revision": found.revision, "differences": answer["differences"]}, output)
    else:
        _print_differences(found)
    return 1 if found.differences else 0


def apply(
    *,
    file: File,
    reason: str = "",
    expected: int | None = None,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    by: As = "",
    output: Output = "table",
    api: str | None = None,
) -> int:
    """Put a policy file in force; services follow it within a sample, without a restart.

    Args:
        file: The policy file (YAML or JSON); "-" reads standard input.
        reason: Why, in a line; it stands in the history.
        expected: The revision that the file was made from; refused when another one is in force.
        dry_run: Only show what it would change, as `colo policy check` does.
        by: Who asks; COLO_USER or your user name when absent.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    if dry_run:
        return check(file=file, output=output, api=api)
    query: dict[str, Any] = {"by": who_asks(by), "reason": reason}
    if expected is not None:
        query["expected"] = expected
    body = read_text(file).encode()
    answer = Client(api).call("PUT", _path("/v1/policy", query), body, **{"Content-Type": "application/yaml"})
    return _print_done(answer, f"{file} is in force already", output)


def rollback(
    *, to: int | None = None, reason: str = "", by: As = "", output: Output = "table", api: str | None = None
) -> int:
    """Put an earlier policy in force again, as a new revision.

    Args:
        to: The revision; the one before the present one when absent. 0 is no policy: the settings of the services alone.
        reason: Why, in a line.
        by: Who asks; COLO_USER or your user name when absent.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    query: dict[str, Any] = {"by": who_asks(by), "reason": reason}
    if to is not None:
        query["revision"] = to
    answer = Client(api).call("POST", _path("/v1/policy/rollback", query), b"")
    return _print_done(answer, "that policy is in force already", output)


def _path(path: str, query: dict[str, Any]) -> str:
    given = {name: value for name, value in query.items() if value != ""}
    return f"{path}?{urllib.parse.urlencode(given)}" if given else path


def _asked(client: Client, file: str) -> dict[str, Any]:
    body = read_text(file).encode()
    answer: dict[str, Any] = client.call("POST", "/v1/policy/check", body, **{"Content-Type": "application/yaml"})
    return answer


def _shown(answer: dict[str, Any]) -> "PolicyShown":
    from colo_gateway.policy.replies import PolicyShown

    return answer_as(answer, PolicyShown)


def _checked(answer: dict[str, Any]) -> "PolicyCheck":
    from colo_gateway.policy.replies import PolicyCheck

    return answer_as(answer, PolicyCheck)


def _print_done(answer: dict[str, Any], nothing: str, output: Format) -> int:
    if output != "table":
        print_data(answer, output)
        return 0
    shown = _shown(answer)
    if not shown.reply.changed:
        print(nothing)
        return 0
    current = shown.reply.current
    print(f"policy revision {current.revision} is in force" + _by(current.by, current.reason))
    for key in shown.keys:
        if not key.in_force:
            print_text(f"not in force: {key.key} ({key.owner}): {key.why}", colour="yellow")
    return 0


def _by(by: str, reason: str) -> str:
    return (f", by {by}" if by else "") + (f": {reason}" if reason else "")


def _print_shown(shown: "PolicyShown") -> None:
    reply: PolicyReply = shown.reply
    current = reply.current
    if not current.revision:
        print_text(
            "no policy was applied: the settings of the services count; `colo policy apply -f FILE` puts one in force"
        )
        return
    age = ago(current.at_ms, reply.now_ms)
    print_text(f"revision {current.revision} since {age}{_by(current.by, current.reason)}")
    if reply.followed is None:
        print_text("whether overcommit follows it is not known: it does not answer", colour="yellow")
    elif reply.followed != current.revision:
        print_text(f"overcommit still follows revision {reply.followed}", colour="yellow")
    if current.policy.overrides:
        print_text(f"of several overrides that select a node the {current.policy.match} one counts")
    _print_keys(shown.keys)
    if len(reply.history) > 1:
        print("\nbefore, newest first:")
        for each in reply.history[1 : _HISTORY_SHOWN + 1]:
            print_text(f"  revision {each.revision}, {ago(each.at_ms, reply.now_ms)} ago{_by(each.by, each.reason)}")


def _print_keys(keys: "tuple[KeyShown, ...]") -> None:
    rows = [[key.key, key.value, key.owner, "yes" if key.in_force else f"no: {key.why}"] for key in keys]
    print_table(["KEY", "VALUE", "OWNER", "IN FORCE"], rows, "it gives no key: the settings of the services count")


def _print_differences(found: "PolicyCheck") -> None:
    rows = [[each.place, each.old, each.new] for each in found.differences]
    print_table(["CHANGES", f"REVISION {found.revision}", "THIS FILE"], rows, f"the same as revision {found.revision}")


def _over_text(row: "NodePreview") -> str:
    """The CPU and memory by which the holds of batch work would exceed the new promise, "-" for none."""
    parts = [cpu_text(row.over_mcpu)] if row.over_mcpu else []
    return ", ".join([*parts, *([bytes_text(row.over_memory_bytes)] if row.over_memory_bytes else [])]) or "-"


def _mid_text(row: "NodePreview") -> str:
    """The promise of the mid tier now and under the new policy, "-" where it does not change."""
    now, would = (row.mid_cpu_mcpu, row.mid_memory_bytes), (row.would_mid_cpu_mcpu, row.would_mid_memory_bytes)
    first, second = (f"{cpu_text(each[0])}/{bytes_text(each[1])}" for each in (now, would))
    return "-" if now == would else f"{first} -> {second}"


def _print_preview(preview: "PolicyPreview | None") -> None:
    print()
    if preview is None:
        print_text("no preview: overcommit does not answer now", colour="yellow")
        return
    cpu = f"{cpu_text(preview.batch_cpu_mcpu)} -> {cpu_text(preview.would_cpu_mcpu)} CPU"
    memory = f"{bytes_text(preview.batch_memory_bytes)} -> {bytes_text(preview.would_memory_bytes)}"
    print_text(f"batch work on {counted(preview.nodes, 'fresh node')}: {cpu}, {memory}; {preview.changing} change")
    tier = (preview.mid_cpu_mcpu, preview.mid_memory_bytes)
    would_tier = (preview.would_mid_cpu_mcpu, preview.would_mid_memory_bytes)
    if any((*tier, *would_tier)):
        cpu, memory = (f"{cpu_text(each[0])} CPU, {bytes_text(each[1])}" for each in (tier, would_tier))
        print_text(f"the mid tier: {cpu} -> {memory}")
    if preview.nodes < preview.of_nodes:
        print_text(f"computed for {preview.nodes} of {preview.of_nodes} nodes, evenly taken by name")
    if preview.over:
        print_text(
            f"on {counted(preview.over, 'node')} batch work holds more than would be promised, and could be evicted",
            colour="yellow",
        )
    if preview.beginning:
        print_text(
            f"on {counted(preview.beginning, 'node')} another estimator would begin: it has no past, and expects nothing beyond "
            "the newest use until it has seen enough"
        )
    if preview.unmeasured:
        print_text(
            f"not in these numbers: the use of {', '.join(preview.unmeasured)}. A host application is measured once it is "
            "declared; until then its use is part of the system's",
            colour="yellow",
        )
    if preview.samples:
        print_text(f"replayed: {counted(preview.samples, 'sample')} of the last {span_text(preview.window_ms)}")
    rows = [
        [
            row.node,
            row.override or "defaults",
            cpu_text(row.batch_cpu_mcpu),
            cpu_text(row.would_cpu_mcpu),
            cpu_text(row.least_mcpu),
            cpu_text(row.would_least_mcpu),
            bytes_text(row.batch_memory_bytes),
            bytes_text(row.would_memory_bytes),
            _over_text(row),
            _mid_text(row),
            ", ".join(
                f"{each.zone}: {cpu_text(each.batch_cpu_mcpu)} -> {cpu_text(each.would_cpu_mcpu)}" for each in row.zones
            ),
        ]
        for row in preview.listed[:_NODES_SHOWN]
    ]
    if rows:
        columns = [
            "NODE",
            "BY",
            "CPU>",
            "WOULD BE>",
            "LEAST>",
            "WOULD BE>",
            "MEMORY>",
            "WOULD BE>",
            "OVER>",
            "MID",
            "CPU BY ZONE",
        ]
        print_table(columns, rows, "")
        if preview.changing > len(rows):
            print_text(f"and {preview.changing - len(rows)} more: -o json lists {len(preview.listed)}")
