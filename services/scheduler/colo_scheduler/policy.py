"""The scheduler's policy: its limits and waits, and how much each scorer counts. It is checked where it enters."""

from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from colo_common.model.colocation_rules import ColocationRule, check_rules
from colo_common.model.invalid import InvalidInput
from colo_scheduler.cluster.signal_rules import SignalRules
from colo_scheduler.cluster.unmanaged import PROD_ROOM_PCT
from colo_scheduler.load.dynamic_rules import DynamicRules
from colo_scheduler.load.rules import LoadRules
from colo_scheduler.requests.queue import BackoffPolicy
from colo_scheduler.scorers.recent_eviction import EvictionPenaltyPolicy

__all__ = ["NEVER_RISING", "SchedulerPolicy", "Scorer", "ScorerWeights", "WEIGHT_MAX", "check_policy"]


WEIGHT_MAX: Final = 1_000


class Scorer(StrEnum):
    """The name of each scorer, as it stands in policies and explanations."""

    FEWEST_ZONES = "fewest-zones"
    MOST_FREE = "most-free"
    LEAST_ALLOCATED = "least-allocated"
    MOST_ALLOCATED = "most-allocated"
    BALANCED_ALLOCATION = "balanced-allocation"
    BINPACK = "binpack"
    SPREAD = "spread"
    RECENT_EVICTION = "recent-eviction"
    SOFT_TAINTS = "soft-taints"
    LOAD_AWARE = "load-aware"
    DYNAMIC_LOAD = "dynamic-load"
    DEVICES_LEAST_ALLOCATED = "devices-least-allocated"
    DEVICES_MOST_ALLOCATED = "devices-most-allocated"


NEVER_RISING: Final = frozenset(
    {
        Scorer.FEWEST_ZONES,
        Scorer.MOST_FREE,
        Scorer.LEAST_ALLOCATED,
        Scorer.SPREAD,
        Scorer.RECENT_EVICTION,
        Scorer.SOFT_TAINTS,
        Scorer.LOAD_AWARE,
        Scorer.DYNAMIC_LOAD,
        Scorer.DEVICES_LEAST_ALLOCATED,
    }
)
"""Scorers whose score of a node never rises because something is placed there, while the moment of the decision stays the same.

The others prefer nodes that fill up: after a placement such a node may be better than it was.
"""


class ScorerWeights(Struct, frozen=True, kw_only=True):
    """0 to 1000 for each scorer, at least one above 0. The defaults put one zone before two in every case.

    Then a replica with a spread constraint goes where fewer replicas of its job are rather than where more is free; a node with a
    PreferNoSchedule taint that the replica does not tolerate, or that has just evicted work of the class, comes behind its equals,
    however much is free.

        `resource_cpu`, `resource_memory`: the weight of each within least and most allocated and binpack.
    """

    fewest_zones: int = 10
    most_free: int = 1
    least_allocated: int = 0
    most_allocated: int = 0
    balanced_allocation: int = 0
    binpack: int = 0
    spread: int = 4
    recent_eviction: int = 2
    soft_taints: int = 3
    load_aware: int = 0
    dynamic_load: int = 0
    devices_least_allocated: int = 0
    devices_most_allocated: int = 0
    resource_cpu: int = 1
    resource_memory: int = 1

    @property
    def resources(self) -> tuple[int, int]:
        """How much CPU and memory count."""
        return self.resource_cpu, self.resource_memory

    @property
    def active(self) -> tuple[tuple[Scorer, int], ...]:
        """The scorers with a weight above 0, in the order of `Scorer`."""
        pairs = ((scorer, getattr(self, _field(scorer))) for scorer in Scorer)
        return tuple((scorer, weight) for scorer, weight in pairs if weight > 0)

    @property
    def may_rise(self) -> bool:
        """Whether the weighted sum of a node may rise because something is placed there."""
        return any(scorer not in NEVER_RISING for scorer, _ in self.active)

    def validate(self, field: str = "weights") -> None:
        """Raise InvalidInput for the first weight that breaks a rule."""
        for scorer in Scorer:
            _check(getattr(self, _field(scorer)), f"{field}.{scorer}")
        for name in ("resource_cpu", "resource_memory"):
            _check(getattr(self, name), f"{field}.{name}")
        if not any(self.resources):
            raise InvalidInput(f"{field}.resource_cpu", "must be above 0, unless resource_memory is", self.resource_cpu)
        if not self.active:
            raise InvalidInput(field, "at least one weight must be above 0", 0)


def _check(weight: object, field: str) -> None:
    if isinstance(weight, bool) or not isinstance(weight, int) or not 0 <= weight <= WEIGHT_MAX:
        raise InvalidInput(field, f"must be a whole number, 0 to {WEIGHT_MAX}", weight)


def _field(scorer: Scorer) -> str:
    return scorer.value.replace("-", "_")


class SchedulerPolicy(Struct, frozen=True, kw_only=True):
    """The core's limits, waits and weights. Each limit is listed with its effect.

    batch_max: the most requests decided between two looks at the inbox; the rest follow at once.
    quantum: the most equal requests decided in one turn, before an older request of another class has its turn.
    waiting_max: the most waiting requests; more are left out, counted, and asked for again when half of the room is free.
    records_max: the most decisions kept for explanations; the oldest is forgotten.
    over_max: the most finished attempts remembered here (the ledger remembers them longer).
    commit_tries: a request that lost more commits than this in a row waits conflict_wait_ms.
    facts_max_age_ms: an allocatable older than this counts as not fresh (0: never).
    ledger_refresh_ms: the interval at which rows that other schedulers changed are looked for (0: never).
    recheck_ms: work that runs for longer than this is ordered once more about as often, so that a node says again what runs and
        what has ended there, whatever facts the bus has lost (0: never; without ledger_refresh_ms never either).
    assume_ms: a decided place that the ledger has not answered for this time is decided again.
    ask_again_ms: pending requests are asked for once more this time after a shard was taken.
    ask_every_ms: with shards, the interval of asking for pending requests, so that no missed one waits for ever (0: never).
    over_after_ms: a request whose attempt is over is told to the jobs service when it still waits after this time, which is longer
        than a message of a stream takes that is delivered again. A lab's clock makes it longer by as much as it is faster.
    reject_again_ms: the same reasons with other numbers are published again after this time, then twice that, up to 16 times it.
    score_rows: how many of the best nodes are kept for the explanation of a decision.
    weights, prod_weights: how much each scorer counts, for work below prod and for prod work.
    evictions: the score that a node loses for evicting work of a class, and for how long. load: when a node is too busy.
    colocation: which nodes take batch work, and how much of it, by their labels.
    dynamic: load limits by averages and maxima, and the input of the scorer `dynamic_load`.
    prod_room_pct: prod work leaves online work that colo did not place this percentage of its use, now or as p95.
    tie_rotation: of equal nodes the node this many names later is taken; give several schedulers different values.
    """

    batch_max: int = 1_000
    quantum: int = 100
    waiting_max: int = 200_000
    records_max: int = 20_000
    over_max: int = 200_000
    commit_tries: int = 5
    conflict_wait_ms: int = 1_000
    facts_max_age_ms: int = 300_000
    ledger_refresh_ms: int = 30_000
    recheck_ms: int = 600_000
    reject_again_ms: int = 60_000
    assume_ms: int = 30_000
    ask_again_ms: int = 3_000
    ask_every_ms: int = 300_000
    over_after_ms: int = 90_000
    score_rows: int = 5
    prod_room_pct: int = PROD_ROOM_PCT
    tie_rotation: int = 0
    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)
    weights: ScorerWeights = field(default_factory=ScorerWeights)
    prod_weights: ScorerWeights = field(default_factory=lambda: ScorerWeights(load_aware=1))
    evictions: EvictionPenaltyPolicy = field(default_factory=EvictionPenaltyPolicy)
    load: LoadRules = field(default_factory=LoadRules)
    dynamic: DynamicRules = field(default_factory=DynamicRules)
    colocation: tuple[ColocationRule, ...] = ()

    @property
    def signals(self) -> SignalRules:
        """The rules of the node signals that are kept beside free capacity."""
        return SignalRules(
            evictions=self.evictions,
            load=self.load,
            dynamic=self.dynamic,
            follows_batch=self.weights.load_aware > 0,
            follows_dynamic=self.weights.dynamic_load > 0 or self.prod_weights.dynamic_load > 0,
            prod_room_pct=self.prod_room_pct,
        )


_AT_LEAST_ONE = (
    "batch_max",
    "quantum",
    "waiting_max",
    "records_max",
    "over_max",
    "conflict_wait_ms",
    "assume_ms",
    "ask_again_ms",
    "over_after_ms",
)
_AT_LEAST_ZERO = (
    "ask_every_ms",
    "commit_tries",
    "facts_max_age_ms",
    "ledger_refresh_ms",
    "recheck_ms",
    "reject_again_ms",
    "score_rows",
    "tie_rotation",
)


def check_policy(policy: SchedulerPolicy) -> None:
    """Raise InvalidInput for the first value that breaks a rule."""
    for names, least in ((_AT_LEAST_ONE, 1), (_AT_LEAST_ZERO, 0)):
        for name in names:
            if getattr(policy, name) < least:
                raise InvalidInput(f"policy_{name}", f"must be at least {least}", getattr(policy, name))
    if not 100 <= policy.prod_room_pct <= 1_000:
        raise InvalidInput("policy_prod_room_pct", "must be 100 to 1000", policy.prod_room_pct)
    if policy.backoff.first_ms < 1:
        raise InvalidInput("policy_backoff_first_ms", "must be at least 1", policy.backoff.first_ms)
    if policy.backoff.most_ms < policy.backoff.first_ms:
        raise InvalidInput("policy_backoff_most_ms", "must not be below the first", policy.backoff.most_ms)
    for name in ("weights", "prod_weights"):
        weights: ScorerWeights = getattr(policy, name)
        weights.validate(f"policy_{name}")
    try:
        policy.evictions.validate()
    except InvalidInput as error:
        raise InvalidInput(f"policy_evictions_{error.field}", error.rule, error.value) from error
    policy.load.validate("policy_load")
    policy.dynamic.validate("policy_dynamic")
    check_rules(policy.colocation, "policy_colocation")
