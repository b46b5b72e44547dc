"""What an operator may set of the scheduler's process."""

from msgspec import Struct, field

from colo_common.runtime.settings import Common
from colo_scheduler.policy import Policy, check_policy

__all__ = ["Settings"]


class Settings(Struct, frozen=True, kw_only=True):
    """The common settings and the policy (keys `policy_...`)."""

    common: Common = field(default_factory=Common)
    policy: Policy = field(default_factory=Policy)

    def validate(self) -> None:
        """Raise InvalidInput for a value that breaks a rule."""
        check_policy(self.policy)
