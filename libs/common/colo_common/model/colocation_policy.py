"""The colocation policy as one document: what is promised to batch work on which node, as data that an operator changes.

The document has defaults for the cluster and overrides for the nodes that a selector selects; of several that select a node the
first or the last one counts, as the document says. A value that it does not give is the one of the service's settings.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from msgspec import Struct, structs

from colo_common.model.estimator_rules import (
    ESTIMATOR_NAMES,
    LOOKING_AHEAD,
    check_estimator,
    check_history,
    check_horizon,
)
from colo_common.model.host_applications import HostApplications
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_selector import Selector, selects
from colo_common.model.slo import check_latency_slo

__all__ = [
    "KEYS",
    "ColocationPolicy",
    "UnfollowedKey",
    "PolicyKey",
    "PolicyOverride",
    "PolicyValues",
    "differences",
]

OVERRIDES_MOST: Final = 1_000
PAIR_MARGIN_PCT: Final = 5
"""So far below the share of a node at which batch work is evicted the share that may be promised has to stay."""
_NUMBER_MOST: Final = 1 << 53
_NAME_MOST: Final = 63
_TEXT_MOST: Final = 200


class PolicyKey(NamedTuple):
    """A key of the document: the service that owns it, its kind (the unit of a number, or `flag` or `choice`), and what it does.

    `choices` are the words of a choice. `not_in_force` says why no service follows it; "" when its owner does.
    """

    owner: str
    kind: Literal["flag", "pct", "mcpu", "bytes", "ms", "count", "choice"]
    says: str
    choices: tuple[str, ...] = ()
    not_in_force: str = ""


_CALCULATE: Final = ("usage", "request", "maxUsageRequest")
KEYS: Final[Mapping[str, PolicyKey]] = {
    "enabled": PolicyKey(
        "overcommit", "flag", "false: nothing is promised beyond what is held, and no batch work is placed"
    ),
    "cpu_reclaim_pct": PolicyKey("overcommit", "pct", "the share of CPU that all work may use together"),
    "memory_reclaim_pct": PolicyKey("overcommit", "pct", "the share of memory that all work may use together"),
    "cpu_policy": PolicyKey("overcommit", "choice", "how the CPU of online work counts", _CALCULATE),
    "memory_policy": PolicyKey("overcommit", "choice", "how the memory of online work counts", _CALCULATE),
    "reservation": PolicyKey("overcommit", "choice", "how reservations count together", ("max", "sum")),
    "ramp_ms": PolicyKey("overcommit", "ms", "how long new online work counts with more than its use"),
    "node_reserved_cpu_mcpu": PolicyKey("overcommit", "mcpu", "kept for the system of a node"),
    "node_reserved_memory_bytes": PolicyKey("overcommit", "bytes", "kept for the system of a node"),
    "online_reserve_cpu_mcpu": PolicyKey("overcommit", "mcpu", "kept for online work of a node when it uses less"),
    "online_reserve_memory_bytes": PolicyKey("overcommit", "bytes", "kept for online work of a node when it uses less"),
    "third_party_cpu_mcpu": PolicyKey("overcommit", "mcpu", "promised to another system on a node"),
    "third_party_memory_bytes": PolicyKey("overcommit", "bytes", "promised to another system on a node"),
    "batch_cpu_most_pct": PolicyKey("overcommit", "pct", "no more of the CPU is promised"),
    "batch_memory_most_pct": PolicyKey("overcommit", "pct", "no more of the memory is promised"),
    "mid_mode": PolicyKey("overcommit", "choice", "how much the mid tier gets", ("off", "reclaimable", "static")),
    "mid_cpu_most_pct": PolicyKey("overcommit", "pct", "no more of the CPU is given to the mid tier"),
    "mid_memory_most_pct": PolicyKey("overcommit", "pct", "no more of the memory is given to the mid tier"),
    "mid_unallocated_pct": PolicyKey("overcommit", "pct", "reclaimable: so much of what nobody requests, too"),
    "mid_margin_pct": PolicyKey("overcommit", "pct", "reclaimable: added to the expected peak of online work"),
    "mid_static_cpu_pct": PolicyKey("overcommit", "pct", "static: the share of the CPU"),
    "mid_static_memory_pct": PolicyKey("overcommit", "pct", "static: the share of the memory"),
    "estimator": PolicyKey("overcommit", "choice", "what is expected of online work beyond its use", ESTIMATOR_NAMES),
    "estimator_horizon_ms": PolicyKey("overcommit", "ms", "periodic, dsp: so far ahead the largest use is expected"),
    "estimator_history_ms": PolicyKey("overcommit", "ms", "periodic, dsp: so far back is looked at"),
    "batch_replicas_most": PolicyKey("scheduler", "count", "so many batch replicas on a node"),
    "cpu_evict_pct": PolicyKey("evictor", "pct", "batch work leaves at this use of CPU"),
    "memory_evict_pct": PolicyKey("evictor", "pct", "batch work leaves at this use of memory"),
    "online_latency_slo_ms": PolicyKey("collector", "ms", "the SLO of a latency of online work that declares none"),
}
"""Every key of the document, in the order in which it is shown."""


class PolicyValues(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The values of KEYS; None: not given."""

    enabled: bool | None = None
    cpu_reclaim_pct: int | None = None
    memory_reclaim_pct: int | None = None
    cpu_policy: str | None = None
    memory_policy: str | None = None
    reservation: str | None = None
    ramp_ms: int | None = None
    node_reserved_cpu_mcpu: int | None = None
    node_reserved_memory_bytes: int | None = None
    online_reserve_cpu_mcpu: int | None = None
    online_reserve_memory_bytes: int | None = None
    third_party_cpu_mcpu: int | None = None
    third_party_memory_bytes: int | None = None
    batch_cpu_most_pct: int | None = None
    batch_memory_most_pct: int | None = None
    mid_mode: str | None = None
    mid_cpu_most_pct: int | None = None
    mid_memory_most_pct: int | None = None
    mid_unallocated_pct: int | None = None
    mid_margin_pct: int | None = None
    mid_static_cpu_pct: int | None = None
    mid_static_memory_pct: int | None = None
    estimator: str | None = None
    estimator_horizon_ms: int | None = None
    estimator_history_ms: int | None = None
    batch_replicas_most: int | None = None
    cpu_evict_pct: int | None = None
    memory_evict_pct: int | None = None
    online_latency_slo_ms: int | None = None

    @property
    def given(self) -> dict[str, bool | int | str]:
        """The values that are given, in the order of KEYS."""
        return {name: value for name in KEYS if (value := getattr(self, name)) is not None}

    def over(self, general: "PolicyValues") -> "PolicyValues":
        """These values, and the general ones where this has none."""
        return structs.replace(general, **self.given)

    def validate(self, field: str) -> None:
        """Raise InvalidInput for the first value that is out of its range."""
        for name, value in self.given.items():
            key = KEYS[name]
            if name == "estimator":
                check_estimator(str(value), f"{field}.{name}")
            elif key.kind == "choice" and value not in key.choices:
                raise InvalidInput(f"{field}.{name}", f"must be one of {', '.join(key.choices)}", value)
            if key.owner == "evictor" and value == 0:
                raise InvalidInput(
                    f"{field}.{name}", "must be 1 to 100: at 0 all batch work would leave for ever", value
                )
            if name == "estimator_horizon_ms":
                check_horizon(int(value), f"{field}.{name}")
            if name == "estimator_history_ms":
                check_history(int(value), f"{field}.{name}")
            if name == "online_latency_slo_ms":
                check_latency_slo(int(value), f"{field}.{name}")
            if key.kind == "pct" and not 0 <= int(value) <= 100:
                raise InvalidInput(f"{field}.{name}", "must be 0 to 100", value)
            if key.kind in ("mcpu", "bytes", "ms", "count") and not 0 <= int(value) < _NUMBER_MOST:
                raise InvalidInput(f"{field}.{name}", "must not be negative, nor above 2^53", value)

    def check_pairs(self, field: str) -> None:
        """Raise InvalidInput where more may be promised than the share at which batch work leaves, less a margin."""
        for resource in ("cpu", "memory"):
            promised, evict = getattr(self, f"{resource}_reclaim_pct"), getattr(self, f"{resource}_evict_pct")
            if promised is not None and evict is not None and promised > evict - PAIR_MARGIN_PCT:
                rule = (
                    f"must be at most {resource}_evict_pct - {PAIR_MARGIN_PCT} = {evict - PAIR_MARGIN_PCT}: "
                    "what is placed up to the one would be evicted by the other"
                )
                raise InvalidInput(f"{field}.{resource}_reclaim_pct", rule, promised)

    def check_outlook(self, field: str, estimator: str | None) -> None:
        """Raise InvalidInput where these values say how far to look and `estimator`, which counts with them, does not look."""
        if estimator in LOOKING_AHEAD:
            return
        for name in ("estimator_horizon_ms", "estimator_history_ms"):
            if getattr(self, name) is not None:
                rule = (
                    f"needs the estimator {' or '.join(LOOKING_AHEAD)} in the same document: others do not look ahead"
                )
                raise InvalidInput(f"{field}.{name}", rule, estimator or "no estimator")


class PolicyOverride(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Values for the nodes that the selector selects; what it does not give is as in the defaults."""

    name: str = ""
    selector: Selector = Selector()
    values: PolicyValues = PolicyValues()


class UnfollowedKey(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key of another system's document that is understood and that no service follows: whose it would be, and why not."""

    key: str
    value: str
    owner: str
    why: str


class ColocationPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The document. `match` says which of several overrides that select a node counts; the others do not apply to it at all.

    `unfollowed` are keys of another system's document that change nothing here. `host_applications` are those of the nodes, owned
    by the collector; None: each collector's setting counts. A list that is there and empty declares that there are none.
    """

    match: Literal["first", "last"] = "last"
    defaults: PolicyValues = PolicyValues()
    overrides: tuple[PolicyOverride, ...] = ()
    unfollowed: tuple[UnfollowedKey, ...] = ()
    host_applications: HostApplications | None = None

    def override_of(self, labels: Mapping[str, str]) -> PolicyOverride | None:
        """The override that counts for a node with these labels."""
        ordered = self.overrides if self.match == "first" else reversed(self.overrides)
        return next((each for each in ordered if selects(each.selector, labels)), None)

    def values_of(self, labels: Mapping[str, str]) -> PolicyValues:
        """The values for a node with these labels."""
        override = self.override_of(labels)
        return self.defaults if override is None else override.values.over(self.defaults)

    def validate(self) -> None:
        """Raise InvalidInput for the first value that makes no sense; its field is the place in the document."""
        self.defaults.validate("defaults")
        self.defaults.check_pairs("defaults")
        self.defaults.check_outlook("defaults", self.defaults.estimator)
        if len(self.overrides) > OVERRIDES_MOST:
            raise InvalidInput("overrides", f"must be at most {OVERRIDES_MOST}", len(self.overrides))
        for number, override in enumerate(self.overrides):
            field = f"overrides[{number}]"
            if len(override.name) > _NAME_MOST:
                raise InvalidInput(f"{field}.name", f"must have at most {_NAME_MOST} characters", override.name[:80])
            override.selector.validate(f"{field}.selector")
            override.values.validate(field)
            merged = override.values.over(self.defaults)
            merged.check_pairs(field)
            override.values.check_outlook(field, merged.estimator)
        if self.host_applications is not None:
            self.host_applications.validate("host_applications")


def differences(old: ColocationPolicy, new: ColocationPolicy) -> list[tuple[str, str, str]]:
    """What the new document changes: (place, old value, new value), "-" for none. Overrides are compared by their number."""
    before, after = _flat(old), _flat(new)
    return [
        (place, before.get(place, "-"), after.get(place, "-"))
        for place in dict.fromkeys((*before, *after))
        if before.get(place) != after.get(place)
    ]


def _flat(policy: ColocationPolicy) -> dict[str, str]:
    found = {f"defaults.{name}": _text(value) for name, value in policy.defaults.given.items()}
    if policy.overrides:
        found["match"] = policy.match
    for number, override in enumerate(policy.overrides):
        place = f"overrides[{number}]"
        found[f"{place}.name"] = override.name or "-"
        found[f"{place}.selector"] = override.selector.text()
        found |= {f"{place}.{name}": _text(value) for name, value in override.values.given.items()}
    if policy.host_applications is not None:
        declared = policy.host_applications.texts() or {"applications": "none"}
        found |= {f"host_applications.{place}": text for place, text in declared.items()}
    return found


def _text(value: bool | int | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)[:_TEXT_MOST]
