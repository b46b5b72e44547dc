"""The settings of the evictor."""

from colo_common.model.invalid import InvalidInput
from colo_common.runtime.settings import Common
from colo_evictor.policy import EvictorPolicy

__all__ = ["EvictorSettings"]


class EvictorSettings(Common, frozen=True, kw_only=True):
    """The values of EvictorPolicy, set as COLO_EVICTOR_POLICY_..."""

    policy: EvictorPolicy = EvictorPolicy()

    def validate(self) -> None:
        """Raise InvalidInput when the policy contradicts itself, or a time is negative."""
        if self.forget_node_ms < 0:
            raise InvalidInput("forget_node_ms", "must not be negative", self.forget_node_ms)
        self.policy.validate()
