"""The metrics of the scheduler's core, and a log line where a row of the ledger begins or ends to be a problem."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import structlog

from colo_common.model.reasons import Reason
from colo_common.runtime.metrics import Metrics
from colo_scheduler.cluster.cluster import Cluster
from colo_scheduler.commit.commit import Commits
from colo_scheduler.requests.queue import RequestQueue

__all__ = ["CoreFigures"]

_SHOWN_PROBLEMS: Final = 3


class CoreFigures:
    """The figures of one core, read from its parts; nothing there is changed. `counts` are the core's counters, by name."""

    def __init__(
        self, counts: Counter[str], queue: RequestQueue, commits: Commits, cluster: Cluster, metrics: Metrics
    ) -> None:
        self._counts = counts
        self._queue = queue
        self._commits = commits
        self._cluster = cluster
        self._log = structlog.get_logger("scheduler")
        self._counted: Counter[str] = Counter()
        self._unreadable: Mapping[str, tuple[str, ...]] = {}
        self._disagreeing: Mapping[str, tuple[str, ...]] = {}
        self._outcomes = metrics.counter(
            "colo_scheduler_outcomes_total", "what became of wants, commits, holds and facts", ("outcome",)
        )
        self._waiting = metrics.gauge("colo_scheduler_waiting_replicas", "replicas that wait for a place")
        self._held = metrics.gauge("colo_scheduler_held_attempts", "attempts that hold a place")
        self._disagreeing_rows = metrics.gauge(
            "colo_scheduler_disagreeing_rows", "ledger rows that do not agree with what the node is"
        )
        self._unreadable_rows = metrics.gauge("colo_scheduler_unreadable_rows", "ledger rows that cannot be read")
        self._nodes = metrics.gauge("colo_scheduler_known_nodes", "nodes that are known")

    def update(self) -> None:
        """Bring every metric up to date, and log each row that became unreadable, disagrees with its node, or is right again."""
        for name, count in sorted(self._counts.items()):
            if count > self._counted[name]:
                self._outcomes.labels(name).inc(count - self._counted[name])
                self._counted[name] = count
        self._unreadable = self._logged(self._unreadable, self._commits.unreadable, "readable again")
        self._unreadable_rows.set(len(self._unreadable))
        self._disagreeing = self._logged(self._disagreeing, self._cluster.disagreeing, "agrees again")
        self._disagreeing_rows.set(len(self._disagreeing))
        self._waiting.set(len(self._queue))
        self._held.set(len(self._commits.held))
        self._nodes.set(len(self._cluster.rows))

    def _logged(
        self, before: Mapping[str, tuple[str, ...]], problems: Mapping[str, tuple[str, ...]], ended: str
    ) -> Mapping[str, tuple[str, ...]]:
        """Log the nodes whose problem is another than before; return a copy of the problems, by node."""
        found = dict(problems)
        for name in sorted(found.keys() | before.keys()):
            if found.get(name) != before.get(name):
                why = "; ".join(found.get(name, ())[:_SHOWN_PROBLEMS]) or ended
                self._log.warning(Reason.LEDGER_DISAGREES.value, node=name, why=why)
        return found
