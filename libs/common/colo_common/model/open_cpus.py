"""Own CPUs of LSE and LSR work on which processes of others may run, in words: what is the case, and what to do."""

from collections.abc import Sequence
from typing import Final

__all__ = ["close_cpus_text", "open_cpus_text"]

_NAMED_MOST: Final = 3
_NO_GROUP: Final = "/"


def open_cpus_text(cpus: str, groups: Sequence[str]) -> str:
    """Whose processes may run there: "processes of user.slice may run on CPUs 2-3, which LSE or LSR work has as its own"."""
    names = ["no group" if each == _NO_GROUP else each for each in groups]
    more = len(names) - _NAMED_MOST
    whose = ", ".join(names[:_NAMED_MOST]) + (f" and {more} more" if more > 0 else "")
    return f"processes of {whose} may run on CPUs {cpus}, which LSE or LSR work has as its own"


def close_cpus_text(groups: Sequence[str]) -> str:
    """How the executor is told to keep these groups off such CPUs, wherever it runs: by its setting, or by the chart's value."""
    name = (
        "name {} with clear_of_own_cpus: true in process_unmanaged of the node's executor "
        "(in Kubernetes executor.unmanaged of the chart), and start it again"
    )
    if _NO_GROUP not in groups:
        return name.format("these groups")
    return "start those of no group in one" + (f", and {name.format('the groups')}" if len(groups) > 1 else "")
