"""The commands `colo cordon NODE` and `colo uncordon NODE`."""

from colo_cli.restrictions import As, Output, ask_to_lift, ask_to_restrict, print_changes

__all__ = ["cordon", "uncordon"]


def cordon(
    node: str,
    /,
    *,
    reason: str = "",
    for_: str | None = None,
    by: As = "",
    output: Output = "table",
    api: str | None = None,
) -> int:
    """Give a node no new work; what runs there stays. Again changes nothing.

    Args:
        node: The node's name.
        reason: Why, in a line; everybody who asks about the node reads it.
        for_: The time after which it ends by itself, such as 30m; without it, until `colo uncordon`.
        by: Who asks; COLO_USER or your user name when absent.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = ask_to_restrict(api, "cordon", "node", node, reason=reason, by=by, **{"for": for_})
    print_changes(answer, f"node {node} is cordoned already", output)
    return 0


def uncordon(node: str, /, *, reason: str = "", by: As = "", output: Output = "table", api: str | None = None) -> int:
    """Let a node take new work again: ends a cordon and a drain. Replicas that have left do not come back by themselves.

    Args:
        node: The node's name.
        reason: Why, in a line.
        by: Who asks; COLO_USER or your user name when absent.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = ask_to_lift(api, ("cordon", "drain"), "node", node, by=by, reason=reason)
    print_changes(answer, f"node {node} is not cordoned", output)
    return 0
