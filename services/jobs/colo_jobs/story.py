"""What happened to a job, in sentences, newest kept: for people who ask why, and for the text of a refused transition."""

from collections.abc import Iterable
from typing import Final

from colo_common.events.requests import StoryLine

__all__ = ["JOB_LINES", "PAGE_LINES", "SHOWN_LINES", "add_line", "merged", "tail"]

# Lines kept of the job and its tasks, and of the replicas of one page. They are stored with the row they belong to.
JOB_LINES: Final = 60
PAGE_LINES: Final = 24
# Lines of an answer.
SHOWN_LINES: Final = 300

_TAIL_LINES: Final = 12
_CHARACTERS: Final = 240


def add_line(story: list[StoryLine], most: int, at_ms: int, what: str) -> None:
    """Append a line and forget the oldest above `most`. The first line (how it began) always stays."""
    story.append(StoryLine(at_ms=at_ms, what=what[:_CHARACTERS]))
    if len(story) > most:
        del story[1 : len(story) - most + 1]


def merged(stories: Iterable[list[StoryLine]]) -> tuple[StoryLine, ...]:
    """All lines in order of time, the newest SHOWN_LINES of them; lines of one moment keep the order of their stories."""
    lines = sorted((line for story in stories for line in story), key=lambda line: line.at_ms)
    return tuple(lines[-SHOWN_LINES:])


def tail(story: list[StoryLine]) -> str:
    """The newest lines as one text."""
    return "\n".join(f"  {line.at_ms} {line.what}" for line in story[-_TAIL_LINES:])
