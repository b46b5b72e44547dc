"""The plans in progress: each gets its steps in turn, after the decisions of waiting requests."""

from collections import deque
from collections.abc import Callable
from typing import Final

from colo_common.events.effects import Reply
from colo_common.events.requests import PlanJob, Refusal
from colo_common.model.invalid import InvalidInput
from colo_scheduler.cluster.cluster import Cluster
from colo_scheduler.planning.plan import Plan, PlanInput, check_plan
from colo_scheduler.policy import SchedulerPolicy

__all__ = ["PLANS_MOST", "Plans"]

PLANS_MOST: Final = 8
_BEGINNINGS_MOST: Final = 4


class _Asked:
    def __init__(self, request: str, ask: PlanJob) -> None:
        self.request = request
        self.ask = ask
        self.plan: Plan | None = None
        self.machines: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = []
        self.changes = 0
        self.beginnings = 0


class Plans:
    """At most PLANS_MOST; a step is one part of bounded size of the plan that was requested first."""

    def __init__(self, cluster: Cluster, policy: SchedulerPolicy) -> None:
        self._cluster = cluster
        self._policy = policy
        self._asked: deque[_Asked] = deque()

    def __len__(self) -> int:
        """The number of plans in progress."""
        return len(self._asked)

    def ask(self, request: str, ask: PlanJob) -> Refusal | None:
        """Take a plan that `step` will answer; a refusal when it breaks a rule or too many are under way."""
        if len(self._asked) >= PLANS_MOST:
            return Refusal(code=503, field="plan", rule=f"{PLANS_MOST} plans are under way, ask again in a moment")
        try:
            check_plan(ask)
        except InvalidInput as error:
            return Refusal(code=400, field=error.field, rule=error.rule, got=error.value)
        self._asked.append(_Asked(request, ask))
        return None

    def step(self, plan_input: Callable[[], PlanInput]) -> list[Reply]:
        """One step; returns the reply when it was the last step of a plan. `plan_input` returns the input of a plan that begins.

        The input of a plan stays as it was when the plan began. Where nodes are new or have other zones than before, the input is
        out of date and the plan begins again, a few times.
        """
        if not self._asked:
            return []
        asked = self._asked[0]
        if asked.plan is None or self._has_changed(asked):
            if asked.beginnings == _BEGINNINGS_MOST:
                self._asked.popleft()
                rule = "nodes came or changed again and again meanwhile, ask again"
                return [Reply(request=asked.request, body=Refusal(code=503, field="plan", rule=rule))]
            asked.beginnings += 1
            asked.machines, asked.changes = self._machines(), self._cluster.capacity_changes
            asked.plan = Plan(self._cluster, plan_input(), asked.ask, self._policy)
        if not asked.plan.step():
            return []
        self._asked.popleft()
        return [Reply(request=asked.request, body=asked.plan.delivered())]

    def _has_changed(self, asked: _Asked) -> bool:
        if len(asked.machines) == len(self._cluster.nodes) and asked.changes == self._cluster.capacity_changes:
            return False
        asked.changes = self._cluster.capacity_changes
        return asked.machines != self._machines()

    def _machines(self) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
        """Every node in its row, with its zones and their sockets."""
        return [(node.name, node.zone_ids, node.sockets) for node in self._cluster.nodes]
