"""The SLO of latencies that declare none: that of the colocation policy for this node's labels, else the collector's setting."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from colo_common.events.policy import PolicyChanged
from colo_common.model.colocation_policy import ColocationPolicy

__all__ = ["FollowedLatencySlo", "SetLatencySlo"]


class SetLatencySlo(Struct, frozen=True, kw_only=True):
    """Effect: judge by this SLO from now on. `revision` is that of the policy which gives it, 0: the collector's setting."""

    slo_ms: int
    revision: int = 0
    since_ms: int = 0


class FollowedLatencySlo:
    """The newest policy. Before one arrives, and where it gives no value for this node, the setting counts."""

    def __init__(self, setting_ms: int) -> None:
        self._setting_ms = setting_ms
        self._revision = 0
        self._document = ColocationPolicy()
        self._given_ms: int | None = None

    def follow(self, event: PolicyChanged) -> None:
        """Take the document unless its revision is no higher. Raises InvalidInput for one that contradicts itself."""
        if event.revision > self._revision:
            event.policy.validate()
            self._revision, self._document = event.revision, event.policy

    def changed(self, labels: Mapping[str, str], now_ms: int) -> SetLatencySlo | None:
        """The SLO for a node with these labels, when it is another one than the last call gave."""
        given_ms = self._document.values_of(labels).online_latency_slo_ms
        if given_ms == self._given_ms:
            return None
        self._given_ms = given_ms
        if given_ms is None:
            return SetLatencySlo(slo_ms=self._setting_ms)
        return SetLatencySlo(slo_ms=given_ms, revision=self._revision, since_ms=now_ms)
