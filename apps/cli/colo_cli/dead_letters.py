"""The commands `colo dead-letters list`, `show`, `replay` and `drop`."""

import json
import sys

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.output import Output, ago, bytes_text, print_data, print_table
from colo_common.model.printable import printable

__all__ = ["drop", "list_", "replay", "show"]


def list_(
    *, after: int = 0, limit: int = 50, service: str = "", output: Output = "table", api: str | None = None
) -> int:
    """List messages that a service could not handle, oldest first.

    Args:
        after: Only dead letters after this number.
        limit: The most dead letters to list, 1 to 200.
        service: Only dead letters of this service.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = Client(api).get("/v1/dead-letters", after=after or None, limit=limit, service=service)
    if output != "table":
        print_data(answer, output)
        return 0
    from colo_gateway.dead_letter_replies import DeadLetterList

    reply = answer_as(answer, DeadLetterList)
    rows = [
        [
            str(each.seq),
            each.service,
            each.subject,
            bytes_text(each.size_bytes),
            f"{ago(each.at_ms, reply.now_ms)} ago",
            each.reason,
        ]
        for each in reply.dead_letters
    ]
    print_table(["NUMBER>", "SERVICE", "SUBJECT", "SIZE>", "WHEN", "WHY"], rows, "no dead letters")
    if reply.after is not None:
        print(f"there are more: colo dead-letters list --after {reply.after}")
    return 0


def show(seq: int, /, *, output: Output = "table", api: str | None = None) -> int:
    """Show why a message could not be handled, and the whole message.

    Args:
        seq: The number of the letter.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    answer = Client(api).get(f"/v1/dead-letters/{seq}")
    if output != "table":
        print_data(answer, output)
        return 0
    from colo_gateway.dead_letter_replies import DeadLetterDetail

    letter = answer_as(answer, DeadLetterDetail)
    entry = letter.entry
    where = f"{entry.stream} {entry.stream_seq}" if entry.stream else "a part of a message"
    print(f"{entry.seq}: {entry.service} could not handle {entry.subject}")
    print(f"  why: {entry.reason}")
    print(f"  message: {bytes_text(entry.size_bytes)}, {where}")
    if letter.lost:
        print(f"  cannot be replayed: it {letter.lost}")
    for name, value in sorted(letter.headers.items()):
        print(f"  {name}: {value}")
    print(_body(answer["text"]) if letter.is_text else f"hex {letter.text}")
    return 0


def replay(*seq: int, api: str | None = None) -> int:
    """Publish messages again, to everybody who hears their subjects, and remove their dead letters. Repeating it is harmless.

    Args:
        seq: The numbers of the dead letters, in the order in which they are published.
        api: Address of the gateway.
    """
    return _each("POST", seq, "/replay", api)


def drop(*seq: int, api: str | None = None) -> int:
    """Remove dead letters for good.

    Args:
        seq: The numbers of the dead letters.
        api: Address of the gateway.
    """
    return _each("DELETE", seq, "", api)


def _each(method: str, numbers: tuple[int, ...], action: str, api: str | None) -> int:
    """Do the same with each letter and stop at the first that is refused; what was done before it stays done."""
    if not numbers:
        sys.stderr.write("colo: give the number of at least one letter; colo dead-letters list shows them\n")
        return 2
    from colo_gateway.dead_letter_replies import DeadLetterDone

    client = Client(api)
    for number in numbers:
        done = answer_as(client.call(method, f"/v1/dead-letters/{number}{action}"), DeadLetterDone)
        print(f"{done.seq} {done.done}: {done.subject}")
    return 0


def _body(text: str) -> str:
    """JSON indented, anything else line by line; what a terminal would obey is written as numbers."""
    try:
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = text.replace("\r\n", "\n")
    return printable(text, keeps="\n\t")
