"""The command `colo get audit`: who changed something, or was not let in."""

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.event_lines import moment
from colo_cli.output import Output, print_data, print_table

__all__ = ["audit"]


def audit(
    *,
    who: str = "",
    refused: bool = False,
    before: int = 0,
    limit: int = 50,
    output: Output = "table",
    api: str | None = None,
) -> int:
    """List who changed something through the gateway, or was not let in, newest first; 90 days are kept.

    Args:
        who: Only requests of this name.
        refused: Only what was refused.
        before: Only entries before this number.
        limit: At most so many, 1 to 500.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = Client(api).get(
        "/v1/audit", who=who, refused="true" if refused else None, before=before or None, limit=limit
    )
    if output != "table":
        print_data(answer, output)
        return 0
    from colo_gateway.audit_replies import AuditReply

    reply = answer_as(answer, AuditReply)
    rows = [
        [
            str(each.seq),
            moment(each.at_ms),
            each.who,
            each.address,
            f"{each.method} {each.path}",
            str(each.status),
            each.job or each.node or each.tenant,
            each.reason + (f" ({each.alike} more like it before)" if each.alike else ""),
        ]
        for each in reply.entries
    ]
    headings = ["NUMBER>", "WHEN", "WHO", "FROM", "REQUEST", "STATUS>", "ABOUT", "REFUSED BECAUSE"]
    print_table(headings, rows, "nothing was changed or refused")
    if reply.before is not None:
        print(f"there are more: colo get audit --before {reply.before}")
    return 0
