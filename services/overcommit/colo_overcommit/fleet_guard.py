"""Whether this service may believe what its clock and its ears say: when ages count, when holds are known, how many may be lost."""

from collections import deque
from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from colo_common.model.freshness import FreshnessPolicy
from colo_common.model.holds_gate import HoldsGate
from colo_common.model.invalid import InvalidInput

__all__ = ["NO_GUARD", "FleetGuard", "GuardPolicy"]

# Losses further apart than this are not at once.
_AT_ONCE_MS: Final = 60_000


class GuardPolicy(Struct, frozen=True, kw_only=True):
    """`beat_ms`: how often the core wants to be woken, so that a longer pause shows; 0: pauses are not looked for.

    `pause_ms`: without any event for this long the process stood still or its clock was set forward, and nobody has aged.
    `lost_most_pct` and `lost_most_nodes`: more nodes than both within a minute are not declared lost. Where `lost_most_nodes` are
    more than half of the fleet, half counts: where all are silent there is no other node to go to, and waiting costs nothing.
    `needs_holds`: nothing is promised before the scheduler's holds are listed.

    `together_ms` and `together_most_pct`: nodes that fell silent within this time, more than this share of the fleet (and more than
    `lost_most_nodes`, or half), are given twice the time of a lost node: enough to find another server of the bus.
    """

    beat_ms: int = 2_000
    pause_ms: int = 5_000
    lost_most_pct: int = 33
    lost_most_nodes: int = 5
    needs_holds: bool = True
    together_ms: int = 5_000
    together_most_pct: int = 10

    def validate(self) -> None:
        """Raise InvalidInput for a share that is no percentage or a pause that is no longer than a beat."""
        if not 0 <= self.lost_most_pct <= 100:
            raise InvalidInput("fleet_lost_most_pct", "must be from 0 to 100", self.lost_most_pct)
        if not 0 <= self.together_most_pct <= 100:
            raise InvalidInput("fleet_together_most_pct", "must be from 0 to 100", self.together_most_pct)
        if self.lost_most_nodes < 0:
            raise InvalidInput("fleet_lost_most_nodes", "must not be negative", self.lost_most_nodes)
        if self.beat_ms and self.pause_ms <= self.beat_ms:
            raise InvalidInput("pause_ms", f"must be above the beat of {self.beat_ms} ms", self.pause_ms)

    def are_few(self, count: int, fleet: int, most_pct: int) -> bool:
        """Whether so many nodes are no more than this share of the fleet, or no more than `lost_most_nodes` and half of it."""
        return count <= min(self.lost_most_nodes, fleet // 2) or count * 100 <= most_pct * fleet


#: Every age counts and every loss is declared: for a core that is driven event by event.
NO_GUARD: Final = GuardPolicy(beat_ms=0, pause_ms=0, lost_most_pct=100, needs_holds=False, together_most_pct=100)


class FleetGuard:
    """Counts the time in which a silence of nodes means something, and withholds losses of too many nodes at once.

    `watched_ms` is the service's time without the spans in which it was deaf or stood still; ages are differences of it.
    """

    def __init__(self, policy: GuardPolicy) -> None:
        policy.validate()
        self.policy = policy
        self.holds = HoldsGate(is_open=not policy.needs_holds)
        #: The silent nodes of which none is declared lost, because they are too many; none: no alarm.
        self.withheld: set[str] = set()
        self._fleet = 0
        self.suspended_ms = 0
        self._is_reachable = True
        self._seen_ms: int | None = None
        self._lost: deque[int] = deque()

    def watched_ms(self, now_ms: int) -> int:
        """The time by which ages are counted."""
        return now_ms - self.suspended_ms

    def passes(self, now_ms: int) -> None:
        """Note that time has come to `now_ms`; called before every event is handled."""
        if self._seen_ms is not None:
            gap_ms = now_ms - self._seen_ms
            if not self._is_reachable:
                self.suspended_ms += max(gap_ms, 0)
            elif self.policy.beat_ms and gap_ms > self.policy.pause_ms:
                self.suspended_ms += gap_ms - self.policy.beat_ms
        self._seen_ms = now_ms

    def hears(self, is_reachable: bool) -> None:
        """Note whether messages flow. No node ages while they do not."""
        self._is_reachable = is_reachable

    def deadline_ms(self, due_ms: int | None) -> int | None:
        """When the core needs a Wake, given when the next node is due by `watched_ms`; earlier by the beat."""
        due = [] if due_ms is None or not self._is_reachable else [due_ms + self.suspended_ms]
        if self.policy.beat_ms and self._seen_ms is not None:
            due.append(self._seen_ms + self.policy.beat_ms)
        return min(due, default=None)

    @property
    def is_deaf(self) -> bool:
        """Whether no message can arrive now."""
        return not self._is_reachable

    def may_lose(self, losing: Collection[str], last_ms: Mapping[str, int], stale_after_ms: int, now_ms: int) -> bool:
        """Whether these nodes may be declared lost now; otherwise all silent nodes are withheld.

        `last_ms` has the time of the last sample of every node that is not lost, also of those that other instances publish: two
        instances with half of a silent fleet each withhold it as one does. All that are late count, because what silences a fleet
        may take some seconds.
        """
        at_ms = self.watched_ms(now_ms)
        while self._lost and at_ms - self._lost[0] >= _AT_ONCE_MS:
            self._lost.popleft()
        silent = {node for node, node_ms in last_ms.items() if at_ms - node_ms >= stale_after_ms}
        self._fleet = len(last_ms) + len(self._lost)
        if self.policy.are_few(len(silent) + len(self._lost), self._fleet, self.policy.lost_most_pct):
            self.withheld.clear()
            self._lost.extend([at_ms] * len(losing))
            return True
        self.withheld = silent
        return False

    def received(self, node: str) -> None:
        """Note that a sample of the node arrived."""
        self.withheld.discard(node)

    def lost_elsewhere(self, node: str, now_ms: int) -> None:
        """Note that another instance declared the node lost now."""
        self.withheld.discard(node)
        self._lost.append(self.watched_ms(now_ms))

    def given_more_time(
        self, losing: Collection[str], last_ms: Mapping[str, int], freshness: FreshnessPolicy, watched_ms: int
    ) -> set[str]:
        """Of the nodes that would be lost now those that are given twice the time, because many others fell silent with them.

        `last_ms` has the time of the last sample of every node that is not lost.
        """
        silent = {node: at_ms for node, at_ms in last_ms.items() if watched_ms - at_ms >= freshness.stale_after_ms}
        together = self.fell_silent_together(silent, len(last_ms))
        most_ms = 2 * freshness.lost_after_ms
        return {node for node in losing if node in together and watched_ms - silent[node] < most_ms}

    def fell_silent_together(self, last_ms: Mapping[str, int], fleet: int) -> set[str]:
        """Which of these nodes, given with the time of the last sample of each, fell silent at one moment with many others.

        One moment is `together_ms`, many are more than `together_most_pct` of the fleet and more than `lost_most_nodes` or half of
        it. A server of the bus that stands still, or a network that is cut, silences its nodes between two of their samples;
        machines fail one by one.
        """
        ordered = sorted(last_ms, key=lambda node: (last_ms[node], node))
        found: set[str] = set()
        first = 0
        for end, node in enumerate(ordered):
            while last_ms[node] - last_ms[ordered[first]] > self.policy.together_ms:
                first += 1
            count = end - first + 1
            if not self.policy.are_few(count, fleet, self.policy.together_most_pct):
                found.update(ordered[first : end + 1])
        return found

    def problem(self) -> str:
        """Why this service is not ready; "" when nothing is withheld."""
        if not self.holds.is_open:
            return "nothing is promised before the scheduler has listed what is held"
        if self.withheld:
            return (
                f"{len(self.withheld)} of {self._fleet} nodes are silent, too many at once: none is declared lost, "
                "look at the network and at the bus"
            )
        return ""
