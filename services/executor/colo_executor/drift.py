"""Decides which changes of kernel files by other programs are published."""

from typing import Final

from msgspec.structs import replace

from colo_common.events.effects import Publish
from colo_common.events.enforcement import DriftCorrected, KnobValue
from colo_executor.local import Drift

__all__ = ["DriftReporter"]

_NAMED_MOST: Final = 100
_SENTENCE_MOST: Final = 500
_AGAIN_MS: Final = 3_600_000


class DriftReporter:
    """Publishes every corrected drift; a drift that could not be corrected is published once, until its set of files changes, and
    once more, as a drift of nothing, when it is over. A journal that cannot be written counts as a file that cannot be corrected.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._failed: tuple[str, ...] = ()
        self._observed: tuple[tuple[KnobValue, ...], tuple[str, ...]] = ((), ())
        self._observed_at_ms = 0
        self._left: tuple[KnobValue, ...] = ()
        self._left_at_ms = 0

    def report(self, drift: Drift, now_ms: int) -> list[Publish]:
        """The fact about this drift, or none when only the same failures were found again; one of its own about what is left.

        What is yielded or withheld is published when it changes, each hour, and after a fact about anything else, which readers
        may keep in its place.
        """
        if drift.journal:
            drift = replace(drift, failed=(drift.journal, *drift.failed), journal="")
        left = (*drift.yielded, *drift.withheld)
        before, self._left = self._left, left
        found = self._report(drift, now_ms)
        is_due_again = bool(left) and (bool(found) or now_ms - self._left_at_ms >= _AGAIN_MS)
        if (left == before and not is_due_again) or (not left and (found or drift.observed)):
            return found
        self._left_at_ms = now_ms
        would = Drift(knobs=left, observed=True, writers=drift.writers)
        return [*found, self._published(would, now_ms, "yielded:")]

    def _report(self, drift: Drift, now_ms: int) -> list[Publish]:
        if drift.observed:
            return self._observed_drift(drift, now_ms)
        was_observed, self._observed = self._observed != ((), ()), ((), ())
        failed_before, self._failed = self._failed, drift.failed
        if not drift.knobs and drift.failed == failed_before and not was_observed:
            return []
        return [self._published(drift, now_ms)]

    def _observed_drift(self, drift: Drift, now_ms: int) -> list[Publish]:
        """What is only observed is published when it changes, and each hour: readers may keep no longer history."""
        self._failed = ()
        before, self._observed = self._observed, (drift.knobs, drift.failed)
        if self._observed == before and now_ms - self._observed_at_ms < _AGAIN_MS:
            return []
        self._observed_at_ms = now_ms
        return [self._published(drift, now_ms)]

    def _published(self, drift: Drift, now_ms: int, what: str = "") -> Publish:
        knobs = drift.knobs[:_NAMED_MOST]
        named = {knob.path for knob in knobs}
        fact = DriftCorrected(
            at_ms=now_ms,
            node=self._node,
            count=len(drift.knobs) + len(drift.failed),
            knobs=knobs,
            failed=tuple(sentence[:_SENTENCE_MOST] for sentence in drift.failed[: _NAMED_MOST - len(knobs)]),
            observed=drift.observed,
            writers=tuple(writer for writer in drift.writers if writer.path in named),
        )
        return Publish(fact=fact, id=f"executor:drift:{what}{self._node}:{now_ms}")
