"""The rules of the policy for node signals beside free capacity."""

from msgspec import Struct, field

from colo_scheduler.cluster.unmanaged import PROD_ROOM_PCT
from colo_scheduler.load.dynamic_rules import DynamicRules
from colo_scheduler.load.rules import LoadRules
from colo_scheduler.scorers.recent_eviction import EvictionPenaltyPolicy

__all__ = ["SignalRules"]


class SignalRules(Struct, frozen=True, kw_only=True):
    """The policy's rules for signals. `follows_batch`: the load of work below prod is used for its own sake. `follows_dynamic`:
    some work is placed by averages, maxima and arrivals.

    `prod_room_pct`: prod work leaves unmanaged online work so many percent of its use.
    """

    evictions: EvictionPenaltyPolicy = field(default_factory=EvictionPenaltyPolicy)
    load: LoadRules = field(default_factory=LoadRules)
    dynamic: DynamicRules = field(default_factory=DynamicRules)
    follows_batch: bool = False
    follows_dynamic: bool = False
    prod_room_pct: int = PROD_ROOM_PCT
