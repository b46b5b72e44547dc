"""What a person meant who types the words of another tool: the command of colo that does it."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

__all__ = ["HINTS", "hint_of"]

#: The first words of a command that is not there -> the commands that do what these words do elsewhere (kubectl, docker, nomad).
HINTS: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("alloc",): ("colo get job JOB", "colo explain job JOB"),
    ("apply",): ("colo submit -f FILE",),
    ("create",): ("colo submit -f FILE", "colo reserve -f FILE"),
    ("delete",): ("colo cancel JOB", "colo unreserve NAME"),
    ("describe",): ("colo get node NODE", "colo explain job JOB"),
    ("eval",): ("colo explain job JOB",),
    ("events",): ("colo watch", "colo history --since 10m"),
    ("explain", "node"): ("colo explain overcommit NODE",),
    ("explain", "harm"): ("colo get harm",),
    ("get", "all"): ("colo status",),
    ("get", "events"): ("colo history --since 10m", "colo watch"),
    ("get", "pods"): ("colo get jobs", "colo get job JOB"),
    ("get", "replicas"): ("colo get job JOB", "colo get node NODE"),
    ("get", "pod"): ("colo get job JOB",),
    ("job",): ("colo get job JOB", "colo explain job JOB"),
    ("kill",): ("colo cancel JOB",),
    ("list",): ("colo get jobs", "colo get nodes"),
    ("logs",): ("colo history job JOB", "colo explain job JOB"),
    ("ls",): ("colo get jobs", "colo get nodes"),
    ("nodes",): ("colo get nodes",),
    ("ps",): ("colo get jobs",),
    ("queues",): ("colo get queues",),
    ("run",): ("colo submit -f FILE",),
    ("start",): ("colo submit -f FILE", "colo resume NAME"),
    ("stop",): ("colo cancel JOB", "colo pause NAME", "colo quiesce"),
    ("suspend",): ("colo pause NAME",),
    ("tenants",): ("colo get tenants",),
    ("top",): ("colo get nodes --sort cpu", "colo status"),
    ("unpause",): ("colo resume NAME",),
    ("why",): ("colo explain job JOB", "colo explain overcommit NODE"),
}
_EXPLAINED: Final = ("job", "overcommit", "eviction", "reservation")
_OF_A_FILE: Final = ("submit", "plan", "reserve", "fits")
_OF_A_SCOPE: Final = ("pause", "resume")
_FILES: Final = (".yaml", ".yml", ".json")


def hint_of(words: Sequence[str]) -> str:
    """A line that begins with a line break and names the commands that may be meant; "" when nobody can tell."""
    named = [word for word in words if not word.startswith("-")]
    for size in (2, 1):
        if (meant := HINTS.get(tuple(named[:size]))) is not None:
            return f"\n  here it is {' or '.join(f'`{each}`' for each in meant)}"
    if words[:1] == ["explain"] and len(named) == 2 and named[1] not in _EXPLAINED:
        return f"\n  of a job it is `colo explain job {named[1]}`"
    if words[:1] and words[0] in _OF_A_SCOPE and len(named) == 3 and named[1] in ("node", "job", "queue"):
        return f"\n  it is `colo {words[0]} --{named[1]} {named[2]}`"
    if "--json" in words:
        return "\n  JSON is `-o json`"
    if words[:1] and words[0] in _OF_A_FILE and len(words) == 2 and PurePath(words[1]).suffix in _FILES:
        return f"\n  a file is named with -f: `colo {words[0]} -f {words[1]}`"
    return ""
