"""What happened to a job, in sentences, newest kept: for people who ask why, and for the text of a refused transition."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from colo_common.events.requests import StoryLine

__all__ = ["JOB_LINES", "PAGE_LINES", "SHOWN_LINES", "Line", "add_line", "merged", "next_seq", "tail"]

# Lines kept of the job and its tasks, and of the replicas of one page. They are stored with the row they belong to.
JOB_LINES: Final = 60
PAGE_LINES: Final = 24
# Lines of an answer.
SHOWN_LINES: Final = 300

_TAIL_LINES: Final = 12
_CHARACTERS: Final = 240


class Line(Struct, frozen=True, array_like=True):
    """One line; `seq` counts the lines of the job and orders those of one moment."""

    at_ms: int
    seq: int
    what: str


def add_line(story: list[Line], most: int, line: Line) -> None:
    """Append a line, cut to 240 characters, and forget the oldest above `most`; the first (how it began) always stays."""
    story.append(Line(line.at_ms, line.seq, _cut(line.what)))
    if len(story) > most:
        del story[1 : len(story) - most + 1]


def next_seq(stories: Iterable[list[Line]]) -> int:
    """The number of the next line of a job with these stories."""
    return max((line.seq for story in stories for line in story), default=-1) + 1


def merged(stories: Iterable[list[Line]]) -> tuple[StoryLine, ...]:
    """All lines as they happened, the newest SHOWN_LINES of them."""
    lines = sorted((line for story in stories for line in story), key=lambda line: line.seq)
    return tuple(StoryLine(at_ms=line.at_ms, what=line.what) for line in lines[-SHOWN_LINES:])


def tail(story: list[Line]) -> str:
    """The newest lines as one text."""
    return "\n".join(f"  {line.at_ms} {line.what}" for line in story[-_TAIL_LINES:])


def _cut(what: str) -> str:
    return what if len(what) <= _CHARACTERS else what[: _CHARACTERS - 3] + "..."
