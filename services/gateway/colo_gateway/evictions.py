"""The newest evictions: what was decided and why, and what became of each."""

from collections import OrderedDict
from typing import Final, Literal

from msgspec import Struct

from colo_common.events.enforcement import ReplicaEnded
from colo_common.events.eviction import EvictionFinished, EvictionRequested
from colo_common.events.fact import Fact
from colo_common.events.placement import PlacementsDecided
from colo_common.model.reasons import EndCause

__all__ = ["Eviction", "Evictions"]

_KEPT_MAX: Final = 2_000


class Eviction(Struct, kw_only=True):
    """One eviction: how the attempt ended, when the evictor heard of it (`finished`), and the next place of the replica."""

    requested: EvictionRequested
    ended: ReplicaEnded | None = None
    finished: EvictionFinished | None = None
    again_node: str = ""
    again_at_ms: int | None = None

    @property
    def state(self) -> Literal["leaving", "left", "lost"]:
        """`lost`: the victim did not leave in time, and nobody has heard of its end since."""
        if self.ended is not None:
            return "left"
        if self.finished is None:
            return "leaving"
        return "lost" if self.finished.cause is EndCause.LOST else "left"

    @property
    def took_ms(self) -> int | None:
        """From the decision to the end of the attempt on its node; None before it has ended."""
        if self.ended is not None:
            return max(self.ended.at_ms - self.requested.at_ms, 0)
        return self.finished.took_ms if self.finished is not None else None


class Evictions:
    """The newest 2,000 evictions by id, in the order in which they were decided."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, Eviction] = OrderedDict()
        # The newest eviction of each replica that has no next place yet.
        self._homeless: dict[str, Eviction] = {}
        # Two streams tell of an eviction and of the end of its victim: the end may come first.
        self._early: dict[str, ReplicaEnded] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def note(self, fact: Fact) -> None:
        """Take what a fact says of an eviction; all other facts change nothing."""
        match fact:
            case EvictionRequested():
                self._add(fact)
            case ReplicaEnded() if fact.eviction:
                known = self._by_id.get(fact.eviction)
                if known is not None:
                    known.ended = fact
                else:
                    self._keep_early(fact)
            case EvictionFinished():
                known = self._by_id.get(fact.eviction)
                if known is not None:
                    known.finished = fact
            case PlacementsDecided() if self._homeless:
                for placement in fact.placements:
                    known = self._homeless.get(placement.replica)
                    if known is not None and placement.attempt > known.requested.attempt:
                        known.again_node, known.again_at_ms = placement.node, fact.at_ms
                        del self._homeless[placement.replica]
            case _:
                return

    def newest(self, *, node: str = "", job: str = "", since_ms: int = 0) -> list[Eviction]:
        """The evictions on the node and of the job at or after that time, newest first; an empty filter accepts every value."""
        return [
            each
            for each in reversed(self._by_id.values())
            if (not node or each.requested.node == node)
            and (not job or each.requested.job == job)
            and each.requested.at_ms >= since_ms
        ]

    def find(self, name: str) -> list[Eviction]:
        """The evictions that a person may mean: the one with this id, those whose id begins so, or the newest of this replica."""
        exact = self._by_id.get(name)
        if exact is not None:
            return [exact]
        if "/" in name:
            of_replica = [each for each in reversed(self._by_id.values()) if each.requested.replica == name]
            return of_replica[:1]
        return [each for id_, each in self._by_id.items() if name and id_.startswith(name)]

    def _keep_early(self, fact: ReplicaEnded) -> None:
        self._early[fact.eviction] = fact
        if len(self._early) > _KEPT_MAX:
            del self._early[next(iter(self._early))]

    def _add(self, fact: EvictionRequested) -> None:
        if fact.eviction in self._by_id:
            return
        added = self._by_id[fact.eviction] = Eviction(requested=fact, ended=self._early.pop(fact.eviction, None))
        self._homeless[fact.replica] = added
        if len(self._by_id) > _KEPT_MAX:
            _, dropped = self._by_id.popitem(last=False)
            if self._homeless.get(dropped.requested.replica) is dropped:
                del self._homeless[dropped.requested.replica]
