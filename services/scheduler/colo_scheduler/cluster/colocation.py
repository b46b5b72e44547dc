"""The rules of a node as they count: its operator's, the cluster's by label, and the colocation policy's; the strictest holds."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from colo_common.events.node import NodeTopologyReported
from colo_common.events.policy import PolicyChanged
from colo_common.model.colocation_policy import ColocationPolicy
from colo_common.model.colocation_rules import ColocationRule, ruled
from colo_common.model.node_rules import NodeRules

__all__ = ["NodeColocation"]


class NodeColocation:
    """Combines the reports of nodes with the rules, and again when an operator applies another policy."""

    def __init__(self, rules: Sequence[ColocationRule]) -> None:
        """`rules` are those of the settings."""
        self._rules = rules
        self._revision = 0
        self._policy = ColocationPolicy()
        # The operator's own rules of each node: the report that the cluster keeps has the combined ones.
        self._own: dict[str, NodeRules] = {}

    def combine(self, report: NodeTopologyReported) -> NodeTopologyReported:
        """The report with the rules that count; nothing is kept of it."""
        return replace(report, rules=self._combined(report))

    def keep(self, report: NodeTopologyReported) -> None:
        """Keep the operator's own rules of a report that the cluster took."""
        self._own[report.node] = report.rules

    def follow(self, event: PolicyChanged, reports: Iterable[NodeTopologyReported]) -> Iterator[NodeTopologyReported]:
        """The reports, of those that were combined, whose rules are others under the new policy; none for an older revision.

        Raises InvalidInput for a policy that contradicts itself.
        """
        if event.revision <= self._revision:
            return
        event.policy.validate()
        self._revision, self._policy = event.revision, event.policy
        known = {report.node: report for report in reports}
        self._own = {node: rules for node, rules in self._own.items() if node in known}
        for node, rules in self._own.items():
            report = known[node]
            combined = self._combined(replace(report, rules=rules))
            if combined != report.rules:
                yield replace(report, rules=combined)

    def _combined(self, report: NodeTopologyReported) -> NodeRules:
        rules = ruled(report.rules, report.labels, self._rules)
        if not self._revision:
            return rules
        values = self._policy.values_of(report.labels)
        limits = [most for most in (rules.batch_replicas_most, values.batch_replicas_most) if most is not None]
        return replace(
            rules,
            is_colocated=rules.is_colocated and values.enabled is not False,
            batch_replicas_most=min(limits, default=None),
        )
