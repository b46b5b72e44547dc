"""The story of a job: its newest events in sentences, for the job's detail and for the log of a refused transition."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct

from colo_common.events.requests import StoryLine
from colo_common.model.invalid import InvalidInput
from colo_common.model.lifecycle import REPLICA
from colo_common.model.reasons import EndCause

__all__ = [
    "JOB_LINES",
    "PAGE_LINES",
    "SHOWN_LINES",
    "Line",
    "Moved",
    "check_moves",
    "drop_oldest",
    "merged",
    "next_seq",
    "tail",
]

# Lines kept of the job and its tasks, and of the replicas of one page. They are stored with the row they belong to.
JOB_LINES: Final = 60
PAGE_LINES: Final = 24
# Lines of a reply.
SHOWN_LINES: Final = 300

_TAIL_LINES: Final = 12
_CHARACTERS: Final = 240


#: The target state and the event of each row of the replica table.
_ROWS: Final = {row.id: (row.target, row.event) for row in REPLICA.transitions}

#: A function from a replica's number in its page to its id.
Naming = Callable[[int], str]


class Moved(Struct, frozen=True, array_like=True, gc=False):
    """A move of a replica along the replica table. It is rendered when the story is read, because most lines are never read.

    `member` is the replica's number in its page, `row` the id of the table's row, `why` the end of the sentence after the node.
    """

    member: int
    attempt: int
    row: str
    previous: str
    node: str
    why: str

    def sentence(self, name: Naming) -> str:
        """The move as a sentence."""
        state, event = _ROWS[self.row]
        place = f" on {self.node}" if self.node else ""
        return f"{name(self.member)}#{self.attempt} {self.previous} -> {state} ({event}{place}{self.why})"


class Line(Struct, frozen=True, array_like=True, gc=False):
    """One line of a story. `seq` counts the lines of the job and orders lines with the same time."""

    at_ms: int
    seq: int
    what: str | Moved

    def sentence(self, name: Naming) -> str:
        """The line as a sentence of at most 240 characters."""
        what = self.what if isinstance(self.what, str) else self.what.sentence(name)
        return what if len(what) <= _CHARACTERS else what[: _CHARACTERS - 3] + "..."


def next_seq(stories: Iterable[list[Line]]) -> int:
    """The number of the next line of a job with these stories."""
    return max((line.seq for story in stories for line in story), default=-1) + 1


def merged(stories: Iterable[tuple[Sequence[Line], Naming]]) -> tuple[StoryLine, ...]:
    """The newest SHOWN_LINES lines of all stories, in order. Each story comes with the names of its replicas."""
    lines = sorted(((line.seq, line, name) for story, name in stories for line in story), key=lambda entry: entry[0])
    return tuple(StoryLine(at_ms=line.at_ms, what=line.sentence(name)) for _, line, name in lines[-SHOWN_LINES:])


def tail(story: Sequence[Line], name: Naming) -> str:
    """The newest lines of a story as one text."""
    return "\n".join(f"  {line.at_ms} {line.sentence(name)}" for line in story[-_TAIL_LINES:])


def drop_oldest(story: list[Line], most: int) -> None:
    """Drop the oldest lines above `most`. The first line stays, and evictions stay until they are half of the story."""
    while len(story) > most:
        at = 1
        while at < most // 2 and _is_eviction(story[at]):
            at += 1
        del story[at]


def _is_eviction(line: Line) -> bool:
    return isinstance(line.what, Moved) and EndCause.EVICTED.value in line.what.why


def check_moves(story: Iterable[Line], members: int, field: str) -> None:
    """Raise InvalidInput for a move of a replica that is not in the page, or along a row that is not in the replica table."""
    for line in story:
        if isinstance(line.what, str):
            continue
        if line.what.row not in _ROWS:
            raise InvalidInput(field, "has a line of an unknown transition", line.what.row)
        if not 0 <= line.what.member < members:
            raise InvalidInput(field, f"has a line of a replica that is not among its {members}", line.what.member)
