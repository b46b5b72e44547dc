"""What nobody knows any more: the values that files of others held before, of which the only record was a journal that is lost."""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from colo_executor.cgroup import CgroupError
from colo_executor.journal import JournalFile
from colo_executor.journal_lines import UnknownImages
from colo_executor.process.tier import Tier
from colo_executor.unit_properties import unit_property_at

__all__ = ["UnknownValues"]

_NAMED_MOST: Final = 256
_CONTROLLERS: Final = "cgroup.subtree_control"


class UnknownValues:
    """Notes them once, when groups of an earlier executor are found of which the journal has nothing; says them with `restore`.

    `managed` names the files and properties that the node's policy keeps: what an executor with this policy has changed. One with
    another policy may have changed others, and what was attached by a job is not known either.
    """

    def __init__(
        self, tier: Tier, journal: JournalFile, state_dir: str, managed: Callable[[], Collection[str]]
    ) -> None:
        self._tier = tier
        self._journal = journal
        self._state_dir = state_dir
        self._managed = managed
        self._is_noted = False

    def note(self) -> bool:
        """Journal what is unknown, before a first write makes a value of colo's look like one from before. True when any is new."""
        why = "" if self._is_noted else self._why()
        if not why:
            return False
        self._is_noted = True
        try:
            managed = self._managed()
        except (CgroupError, OSError):
            # A pattern whose groups cannot be told now.
            managed = ()
        known = self._journal.state.pre_images
        root = (_CONTROLLERS,) if self._tier.tree.version == 2 else ()
        paths = [path for path in sorted({*root, *managed}) if path not in known and self._shown(path) is not None]
        self._journal.note(UnknownImages(why=why, paths=tuple(paths)))
        return True

    def remarks(self) -> list[str]:
        """One sentence for the start, none where all is known."""
        unknown = self._journal.state.unknown
        if not unknown.paths:
            return []
        count = len(unknown.paths)
        return [
            f"the journal {unknown.why}: what {count} files of others held before is not known; restore names and leaves them"
        ]

    def left(self, unknown: UnknownImages, *, is_new: bool) -> list[str]:
        """One sentence with each file of `unknown`, the journal's before it was emptied, and what it holds now; none without one.

        `is_new`: found by this restore, which then knows of no file at all that it should have put back.
        """
        shown = ((path, self._shown(path)) for path in unknown.paths)
        found = [f"{path} ({_value(text)})" for path, text in shown if text is not None]
        if not found and not is_new:
            return []
        return [
            f"the journal in {self._state_dir} {unknown.why}: what colo changed in groups of others is not known and stays, unless "
            f"this is run again with the state directory that the executor had{_listed(found)}"
        ]

    def _why(self) -> str:
        if self._tier.lost:
            first, *more = self._tier.lost
            others = f" (and {len(more)} more groups)" if more else ""
            return f"did not know of {first}{others}, which are colo's"
        has_groups = self._journal.damaged_lines and self._journal.state.created
        return f"had {self._journal.damaged_lines} damaged lines" if has_groups else ""

    def _shown(self, path: str) -> str | None:
        """What the file holds, None where there is none. A property is its unit's, whose file is named beside it."""
        if not path or unit_property_at(path) is not None:
            return None
        try:
            return self._tier.shown(path).strip()
        except (CgroupError, OSError):
            return None


def _value(text: str) -> str:
    return f"holds {text}" if text else "is empty"


def _listed(found: Iterable[str]) -> str:
    names = list(found)
    if not names:
        return ""
    more = f", and {len(names) - _NAMED_MOST} more" if names[_NAMED_MOST:] else ""
    return f". Left as they are, with values that may be colo's: {', '.join(names[:_NAMED_MOST])}{more}"
