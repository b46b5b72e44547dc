"""The command `colo version`."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from colo_gateway.state_replies import ServicesReply

__all__ = ["colo_version", "mixed_versions", "version"]


def colo_version() -> str:
    """The installed version, or "0+unknown" when run from a folder that was never installed."""
    try:
        return installed("colo")
    except PackageNotFoundError:
        return "0+unknown"


def version(*, check: bool = False, api: str | None = None) -> int:
    """Print the version of colo, of Python and of the event schema.

    Args:
        check: Compare with every control service that runs; exit code 1 when versions differ.
        api: Address of the gateway.
    """
    import platform

    own = colo_version()
    print(f"colo {own}, python {platform.python_version()}, events v1")
    if not check:
        return 0

    from colo_cli.answers import answer_as
    from colo_cli.client import Client
    from colo_gateway.state_replies import ServicesReply

    reply = answer_as(Client(api).get("/v1/services"), ServicesReply)
    found = mixed_versions(own, reply)
    for each, users in found.items():
        print(f"{each}: {', '.join(users)}")
    for entry in reply.services:
        if not entry.instances:
            print(f"not known: {entry.service}: {entry.why}")
    if len(found) > 1:
        print(
            f"{len(found)} versions run beside each other, which they may while you upgrade: docs/install.md, Upgrade"
        )
    return 1 if len(found) > 1 or not all(entry.instances for entry in reply.services) else 0


def mixed_versions(own: str, reply: "ServicesReply") -> dict[str, list[str]]:
    """Version -> who has it, each service with the number of its instances; the command line's own version comes first."""
    found: dict[str, list[str]] = {own: ["this command line"]}
    for entry in reply.services:
        counts: dict[str, int] = {}
        for instance in entry.instances:
            counts[instance.version] = counts.get(instance.version, 0) + 1
        for each, count in counts.items():
            found.setdefault(each, []).append(entry.service if count == 1 else f"{entry.service} ({count})")
    return found
