"""The command `colo get harm`: what online services felt in the last ten minutes."""

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.event_lines import moment, print_clock
from colo_cli.output import Output, counted, print_data, print_table, print_text, span_text

__all__ = ["harm"]


def harm(*, node: str = "", limit: int = 10, output: Output = "table", api: str | None = None) -> int:
    """Show what online services felt in the last ten minutes: the fleet, the worst nodes, the longest spells.

    Example: `colo get harm --node node-03`.

    Args:
        node: Only this node.
        limit: At most so many nodes, 1 to 1000.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = Client(api).get("/v1/harm", node=node, limit=limit)
    if output != "table":
        print_data(answer, output)
        return 0
    from colo_gateway.harm_reply import HarmReply

    reply = answer_as(answer, HarmReply)
    fleet = reply.fleet
    print_text(f"Online harm: {fleet.sentence}")
    print_text(f"({fleet.definition})", indent=1)
    print_clock(reply.clock_speed)
    if fleet.unmeasured_sentence:
        print_text(f"({fleet.unmeasured_sentence})", indent=1)
    since_ms = fleet.known_since_ms
    if since_ms is not None and since_ms > reply.now_ms - fleet.window_ms:
        print_text(f"(the gateway hears samples since {moment(since_ms)}; what was felt before is not known)", indent=1)
    if reply.latency.sentence:
        print_text(f"Latency SLO: {reply.latency.sentence}")
    for one in reply.latency.worst:
        if one.above:
            print_text(
                f"  {one.node}: {one.workload} broke it in {one.above} of {one.samples} values ({one.violation_pct}%)"
            )
    print()
    rows = [
        [
            each.node,
            "-" if each.harm_ratio is None else f"{each.harm_ratio * 100:.3f}%",
            span_text(each.harmed_ms),
            span_text(each.lived_ms),
            span_text(each.longest_ms),
        ]
        for each in reply.nodes
    ]
    print_table(["NODE", "HARM>", "HARMED>", "SEEN>", "LONGEST>"], rows, "no samples yet")
    if (more := reply.total - len(reply.nodes)) > 0:
        print(f"and {counted(more, 'node')} more (--limit shows more)")
    if reply.spells:
        print("\nLongest spells:")
    for spell in reply.spells:
        print_text(f"  {moment(spell.from_ms)}  {spell.sentence}", indent=14)
    return 0
