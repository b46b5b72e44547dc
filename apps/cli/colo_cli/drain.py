"""The command `colo drain NODE`."""

import urllib.parse
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from cyclopts import Parameter

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.output import bytes_text, counted, cpu_text, print_data, print_table, print_text
from colo_cli.restrictions import As, Output, ask_to_restrict, print_changes

if TYPE_CHECKING:
    from colo_gateway.restrictions.preview import DrainPreview

__all__ = ["drain", "print_preview", "print_unmet"]

_SHOWN_MOST: Final = 100


def drain(
    node: str,
    /,
    *,
    dry_run: bool = False,
    unmet: Annotated[bool, Parameter(negative=())] = False,
    batch_only: bool = False,
    grace: str | None = None,
    reason: str = "",
    for_: str | None = None,
    by: As = "",
    output: Output = "table",
    api: str | None = None,
) -> int:
    """Cordon a node and let what runs there leave in order, each with its grace; the eviction budget holds.

    Again shows how far it is: what is still to leave, or that nothing is left. `colo uncordon` ends it.

    Args:
        node: The node's name.
        dry_run: Only show what would leave and where it would fit now; nothing changes.
        unmet: Only show what the node does not meet any more, and what would find no other place, each with the reason; nothing
            changes.
        batch_only: Online work stays, and new online work may come.
        grace: The time between SIGTERM and SIGKILL for all; without it, each replica's own.
        reason: Why, in a line; everybody who asks about the node reads it.
        for_: The time after which it ends by itself, such as 2h; without it, until `colo uncordon`.
        by: Who asks; COLO_USER or your user name when absent.
        output: table, json or yaml.
        api: Address of the gateway.
    """
    client = Client(api)
    path = f"/v1/nodes/{urllib.parse.quote(node, safe='')}/drain"
    from colo_gateway.restrictions.preview import DrainPreview

    answer = client.get(path, batch_only="true" if batch_only else "")
    preview = answer_as(answer, DrainPreview)
    if unmet:
        left = tuple([each for each in preview.leaving if each.unmet or not each.fits_on])
        preview = msgspec.structs.replace(preview, leaving=left)
    if dry_run or unmet:
        if output != "table":
            print_data(msgspec.to_builtins(preview), output)
        elif unmet:
            print_unmet(preview)
        else:
            print_preview(preview, "would leave")
            print("nothing was changed")
        return 0
    fields = {"reason": reason, "by": by, "grace": grace, "batch_only": batch_only, "for": for_}
    done = ask_to_restrict(api, "drain", "node", node, **fields)
    if output != "table":
        print_data({**done.answer, "leaving": msgspec.to_builtins(preview.leaving)}, output)
        return 0
    print_changes(done, f"node {node} is being drained already", output)
    print_preview(preview, "to leave" if done.reply.changes else "still to leave")
    return 0


def print_preview(preview: "DrainPreview", what: str) -> None:
    """Print what leaves and what stays, and what the preview could not ask."""
    leaving = preview.leaving
    if not leaving:
        of_batch = " batch" if preview.batch_only else ""
        if preview.partial:
            print(f"no{of_batch} replica is among those that were read{_staying(preview)}; {preview.partial}")
        else:
            print(f"drained: no{of_batch} replica is on the node" + _staying(preview))
        return
    print(f"{counted(len(leaving), 'replica')} {what}" + _staying(preview))
    rows = [
        [
            each.replica,
            each.state,
            each.band.value,
            cpu_text(each.cpu_mcpu),
            bytes_text(each.memory_bytes),
            each.fits_on or "waits",
            each.unmet or "-",
        ]
        for each in leaving[:_SHOWN_MOST]
    ]
    print_table(["REPLICA", "STATE", "BAND", "CPU>", "MEMORY>", "WOULD GO TO", "UNMET"], rows, "")
    if len(leaving) > _SHOWN_MOST:
        print(f"and {len(leaving) - _SHOWN_MOST} more; --output json lists them")
    if preview.partial:
        print(preview.partial)


def print_unmet(preview: "DrainPreview") -> None:
    """Print, for each replica, what the node lacks or why it would wait elsewhere."""
    rows = preview.leaving
    if not rows:
        what = "what was read of it" if preview.partial else "what runs there"
        print(f"nothing: the node meets {what}, and all of it would find another place now")
        if preview.partial:
            print(preview.partial)
        return
    for each in rows[:_SHOWN_MOST]:
        waits = f"would wait: {each.waits_for or 'no other node takes it now'}"
        place = f"would go to {each.fits_on}" if each.fits_on else waits
        print_text(f"{each.replica}: {'; '.join(filter(None, (each.unmet, place)))}")
    if len(rows) > _SHOWN_MOST:
        print(f"and {len(rows) - _SHOWN_MOST} more; --output json lists them")
    if preview.partial:
        print(preview.partial)


def _staying(preview: "DrainPreview") -> str:
    return f"; {counted(preview.staying, 'replica')} of online work may stay" if preview.staying else ""
