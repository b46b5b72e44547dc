"""Reads the `place` part of a task in a job file into Constraints.

place:
  node_labels: {disk: ssd}
  node_selector: [{key: zone, operator: In, values: [a, b]}, {key: spot, operator: DoesNotExist}]  # NotIn Exists Gt Lt
  tolerations: [{key: spot}, {key: team, value: films, effect: NoSchedule}]
  cpu_policy: exclusive            # none numa exclusive immovable
  cpu_bind: full-pcpus             # full-pcpus spread-by-pcpus
  cpu_bind_required: true
  cpu_exclusive: pcpu-level        # none pcpu-level numa-node-level
  numa_policy: single-numa-node    # none best-effort restricted single-numa-node
  numa_exclusive: required         # preferred required
  huge_pages: {2Mi: 1Gi}
  devices: {gpu: 2}                # or {gpu: {core_pct: 50, memory: 8Gi}}, or whole devices with conditions:
    # gpu: {count: 4, labels: {model: H100}, scope: pcie, exclusive: pcie-level}   # node numa-node pcie
    # gpu: {count: 4, partition: {policy: honor, bandwidth: 200Gi}}                # prefer honor best
  joint_devices: {kinds: [gpu, nic], scope: pcie, required: true}                  # numa-node pcie
  reservation: night
  spread: true
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeVar, cast

from colo_common.model.constraints import (
    UNCONSTRAINED,
    Constraints,
    CpuBind,
    CpuExclusive,
    CpuPolicy,
    DeviceExclusive,
    DeviceRequest,
    DeviceScope,
    HugePages,
    JointDevices,
    NumaExclusive,
    NumaPolicy,
    PartitionPolicy,
    PartitionWish,
    Toleration,
)
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_selector import requirements_of
from colo_common.model.plain_values import mapping_of, text_of
from colo_common.model.quantity import parse_bytes

__all__ = ["constraints_of"]

_KEYS: Final = (
    "node_labels", "node_selector", "tolerations", "cpu_policy", "cpu_bind", "cpu_bind_required", "cpu_exclusive", "numa_policy",
    "numa_exclusive", "huge_pages", "devices", "joint_devices", "reservation", "spread",
)  # fmt: skip
_DEVICE_KEYS: Final = ("count", "core_pct", "memory", "memory_pct", "labels", "scope", "exclusive", "partition")
_PARTITION_KEYS: Final = ("policy", "bandwidth")
_JOINT_KEYS: Final = ("kinds", "scope", "required")
_TOLERATION_KEYS: Final = ("key", "value", "effect")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NUMBER_MOST: Final = 1 << 53
_LIST_MOST: Final = 100

_Word = TypeVar("_Word", bound=StrEnum)


def constraints_of(value: object, field: str = "place") -> Constraints:
    """Return the constraints that a mapping describes; UNCONSTRAINED for None.

    Raises InvalidInput with the path and the rule. `check_constraints` checks whether the constraints agree with each other.
    """
    if value is None:
        return UNCONSTRAINED
    place = mapping_of(value, field, _KEYS, most=_LIST_MOST)
    return Constraints(
        node_labels=_labels(place.get("node_labels"), f"{field}.node_labels"),
        node_requirements=requirements_of(place.get("node_selector"), f"{field}.node_selector"),
        tolerations=_tolerations(place.get("tolerations"), f"{field}.tolerations"),
        cpu_policy=_word(place, "cpu_policy", CpuPolicy.DEFAULT, field),
        cpu_bind=_word(place, "cpu_bind", CpuBind.DEFAULT, field),
        cpu_bind_required=_flag(place, "cpu_bind_required", field),
        cpu_exclusive=_word(place, "cpu_exclusive", CpuExclusive.NONE, field),
        numa_policy=_word(place, "numa_policy", NumaPolicy.NONE, field),
        numa_exclusive=_word(place, "numa_exclusive", NumaExclusive.DEFAULT, field),
        huge_pages=_huge_pages(place.get("huge_pages"), f"{field}.huge_pages"),
        devices=_devices(place.get("devices"), f"{field}.devices"),
        joint_devices=_joint(place.get("joint_devices"), f"{field}.joint_devices"),
        reservation=text_of(place.get("reservation", ""), f"{field}.reservation"),
        spread=_flag(place, "spread", field),
    )


def _word(place: Mapping[str, Any], key: str, default: _Word, field: str) -> _Word:
    value = place.get(key)
    if value is None:
        return default
    known = {_plain(word.value): word for word in type(default)}
    if not isinstance(value, str) or _plain(value) not in known:
        raise InvalidInput(f"{field}.{key}", f"must be one of {' '.join(word.value for word in type(default))}", value)
    return known[_plain(value)]


def _plain(word: str) -> str:
    """The word without case and separators, so that FullPCPUs, full-pcpus and full_pcpus compare equal."""
    return word.replace("-", "").replace("_", "").lower()


def _flag(place: Mapping[str, Any], key: str, field: str) -> bool:
    value = place.get(key, False)
    if not isinstance(value, bool):
        raise InvalidInput(f"{field}.{key}", "must be true or false", value)
    return value


def _labels(value: object, field: str) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    labels = mapping_of(value, field, most=_LIST_MOST)
    return tuple(sorted((name, text_of(text, f"{field}.{name}")) for name, text in labels.items()))


def _tolerations(value: object, field: str) -> tuple[Toleration, ...]:
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)) or len(value) > _LIST_MOST:
        raise InvalidInput(field, f"must be a list of at most {_LIST_MOST} tolerations", value)
    found = []
    for number, item in enumerate(value):
        where = f"{field}[{number}]"
        toleration = mapping_of(item, where, _TOLERATION_KEYS, most=_LIST_MOST)
        effect = toleration.get("effect", "")
        if effect not in ("", *_EFFECTS):
            raise InvalidInput(f"{where}.effect", f"must be one of {' '.join(_EFFECTS)}", effect)
        text = toleration.get("value")
        found.append(
            Toleration(
                key=text_of(toleration.get("key", ""), f"{where}.key"),
                value=None if text is None else text_of(text, f"{where}.value"),
                effect=cast(Any, effect),
            )
        )
    return tuple(found)


def _huge_pages(value: object, field: str) -> tuple[HugePages, ...]:
    if value is None:
        return ()
    pages: dict[int, int] = {}
    for size, amount in mapping_of(value, field, most=_LIST_MOST).items():
        page_bytes = parse_bytes(size, f"{field}.{size}")
        if page_bytes in pages:
            raise InvalidInput(f"{field}.{size}", "is a page size that is asked for already under another name", size)
        pages[page_bytes] = parse_bytes(amount, f"{field}.{size}")
    return tuple(HugePages(page_bytes=size, total_bytes=pages[size]) for size in sorted(pages))


def _devices(value: object, field: str) -> tuple[DeviceRequest, ...]:
    if value is None:
        return ()
    found = []
    for kind, asked in sorted(mapping_of(value, field, most=_LIST_MOST).items()):
        where = f"{field}.{kind}"
        if not isinstance(asked, Mapping):
            found.append(DeviceRequest(kind=kind, count=_number(asked, where)))
            continue
        share = mapping_of(asked, where, _DEVICE_KEYS, most=_LIST_MOST)
        memory = share.get("memory")
        found.append(
            DeviceRequest(
                kind=kind,
                count=_number(share.get("count", 0), f"{where}.count"),
                core_pct=_number(share.get("core_pct", 0), f"{where}.core_pct"),
                memory_bytes=0 if memory is None else parse_bytes(memory, f"{where}.memory"),
                memory_pct=_number(share.get("memory_pct", 0), f"{where}.memory_pct"),
                labels=_labels(share.get("labels"), f"{where}.labels"),
                scope=_word(share, "scope", DeviceScope.NODE, where),
                exclusive=_word(share, "exclusive", DeviceExclusive.NONE, where),
                partition=_partition(share.get("partition"), f"{where}.partition"),
            )
        )
    return tuple(found)


def _partition(value: object, field: str) -> PartitionWish | None:
    if value is None:
        return None
    wish = {"policy": value} if isinstance(value, str) else mapping_of(value, field, _PARTITION_KEYS, most=_LIST_MOST)
    bandwidth = wish.get("bandwidth")
    return PartitionWish(
        policy=_word(wish, "policy", PartitionPolicy.HONOR, field),
        bandwidth_bytes_per_s=0 if bandwidth is None else parse_bytes(bandwidth, f"{field}.bandwidth"),
    )


def _joint(value: object, field: str) -> JointDevices | None:
    if value is None:
        return None
    joint = mapping_of(value, field, _JOINT_KEYS, most=_LIST_MOST)
    kinds = joint.get("kinds")
    if not isinstance(kinds, Sequence) or isinstance(kinds, (str, bytes)) or len(kinds) > _LIST_MOST:
        raise InvalidInput(f"{field}.kinds", "must be a list of kinds that stand in `devices`", kinds)
    return JointDevices(
        kinds=tuple(text_of(kind, f"{field}.kinds[{number}]") for number, kind in enumerate(kinds)),
        scope=_word(joint, "scope", DeviceScope.PCIE, field),
        required=_flag(joint, "required", field),
    )


def _number(value: object, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _NUMBER_MOST:
        raise InvalidInput(field, "must be a whole number, not negative", value)
    return value
