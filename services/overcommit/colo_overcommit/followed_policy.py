"""The policy of each node: the settings of the service, with what the colocation policy says for the node's labels."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from colo_common.events.policy import PolicyChanged
from colo_common.model.colocation_policy import KEYS, ColocationPolicy, PolicyValues
from colo_overcommit.policy import OvercommitPolicy

__all__ = ["FollowedPolicy", "policy_under"]

#: Keys of the document that are fields of OvercommitPolicy under another name.
_NAMES: Final = {"enabled": "is_enabled"}
_OWN: Final = tuple(name for name, key in KEYS.items() if key.owner == "overcommit" and not key.not_in_force)


def policy_under(base: OvercommitPolicy, values: PolicyValues) -> OvercommitPolicy:
    """The settings, with each value that the document gives in place of theirs."""
    given = values.given
    return replace(base, **{_NAMES.get(name, name): given[name] for name in _OWN if name in given})


class FollowedPolicy:
    """The newest document, and the policies that follow from it. Before one arrives the settings alone count."""

    def __init__(self, base: OvercommitPolicy) -> None:
        self.base = base
        self.revision = 0
        self.at_ms = 0
        """When the document was applied."""
        self.document = ColocationPolicy()
        # Nodes of one override share their policy.
        self._under: dict[PolicyValues, OvercommitPolicy] = {}

    def take(self, event: PolicyChanged) -> bool:
        """Follow this document; False, and nothing changes, unless its revision is higher. Raises InvalidInput for one that
        contradicts itself.
        """
        if event.revision <= self.revision:
            return False
        event.policy.validate()
        self.revision, self.document, self.at_ms = event.revision, event.policy, event.at_ms
        self._under.clear()
        return True

    def given_of(self, labels: Mapping[str, str]) -> frozenset[str]:
        """The fields of OvercommitPolicy that the document gives for a node with these labels."""
        given = self.document.values_of(labels).given
        return frozenset(_NAMES.get(name, name) for name in _OWN if name in given)

    @property
    def learns(self) -> bool:
        """Whether some policy learns from samples."""
        values = (PolicyValues(), self.document.defaults, *(each.values for each in self.document.overrides))
        return any(policy_under(self.base, each.over(self.document.defaults)).learns for each in values)

    def of(self, labels: Mapping[str, str]) -> OvercommitPolicy:
        """The policy for a node with these labels."""
        values = self.document.values_of(labels)
        found = self._under.get(values)
        if found is None:
            found = self._under[values] = policy_under(self.base, values)
        return found
