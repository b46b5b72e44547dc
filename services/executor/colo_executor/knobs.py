"""The values of kernel files: the text that sets one, what a file shows, and when both are the same."""

from typing import Final

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_executor.device_access import access_writes, check_rules, rules_in
from colo_executor.knob_table import (
    FENCE,
    KNOB_FILES,
    PAGE_BYTES,
    PERIOD_US,
    QUOTA_MIN_US,
    UNLIMITED,
    WEIGHT_LEAST,
    WEIGHT_MOST,
    Knob,
    Unit,
    check_number,
)

__all__ = [
    "agrees",
    "holds",
    "mcpu_of_weight",
    "quota_us",
    "text_of",
    "value_of",
    "weight_v1",
    "weight_v2",
    "writes_of",
]

_V1_UNLIMITED_BYTES: Final = 1 << 62
_DEFAULT_SHARES: Final = 1_024
_LEAST_WEIGHT_V2: Final = 1
_DEFAULT_WEIGHT_V2: Final = 100
_MOST_WEIGHT_V2: Final = 10_000
_SELF_FREEZING: Final = "freezer.self_freezing"


def quota_us(mcpu: int) -> int:
    """The quota for PERIOD_US that gives `mcpu`: mcpu x period // 1000, at least QUOTA_MIN_US (koordinator cfsQuota: 2000)."""
    return max(QUOTA_MIN_US, mcpu * PERIOD_US // 1_000)


def weight_v1(mcpu: int) -> int:
    """cpu.shares of a request: clamp(mcpu x 1024 // 1000, 2, 262144), as in koordinator's batch_resource.go."""
    return max(WEIGHT_LEAST, min(WEIGHT_MOST, mcpu * 1_024 // 1_000))


def weight_v2(shares: int) -> int:
    """cpu.weight of v1 shares on the kernel's own scale: shares x 100 / 1024 to the nearest, from 1 to 10000.

    So the default of either version is the other's (linux: sched_weight_to_cgroup). A request of one CPU weighs as much as a group
    beside it that nobody gave a weight. Container runtimes have rules of their own, see `colo_collector.pod_weights`.
    """
    weight = (shares * _DEFAULT_WEIGHT_V2 + _DEFAULT_SHARES // 2) // _DEFAULT_SHARES
    return max(_LEAST_WEIGHT_V2, min(_MOST_WEIGHT_V2, weight))


def mcpu_of_weight(version: int, weight: int) -> int:
    """The request (mcpu) that has this weight, as a file of that cgroup version shows it: under v2 to the nearest 10."""
    shares = int(value_of(Knob.CPU_WEIGHT, version, str(weight)))
    return max(1, -(-shares * 1_000 // 1_024))


def text_of(knob: Knob, version: int, value: int | str) -> str:
    """The text that sets the file to `value`.

    Raises InvalidInput, whose field is the knob, for text where a number belongs, or the reverse, and for a number outside the
    knob's range.
    """
    if KNOB_FILES[knob].unit in (Unit.CPUS, Unit.ZONES):
        if not isinstance(value, str):
            raise InvalidInput(knob.value, 'must be a kernel list such as "0-3,8"', value)
        return CpuSet.parse(value, knob.value).format()
    if knob is Knob.DEVICES:
        return check_rules(str(value), knob.value)
    number = check_number(knob, version, value)
    word = KNOB_FILES[knob].word(version)
    text = word if word and number == UNLIMITED else str(number)
    match knob:
        case Knob.CPU_WEIGHT:
            return text if version == 1 else str(weight_v2(number))
        case Knob.CPU_QUOTA if version == 2:
            return f"{text} {PERIOD_US}"
        case _:
            return text


def writes_of(knob: Knob, file_name: str, text: str, before: str) -> tuple[tuple[str, str], ...]:
    """File and text of each write that makes the file show `text`: one, but for rules of devices under v1."""
    if file_name == _SELF_FREEZING:
        return (("freezer.state", "FROZEN" if text == "1" else "THAWED"),)
    return access_writes(before, text) if knob is Knob.DEVICES and file_name != FENCE else ((file_name, text),)


def value_of(knob: Knob, version: int, shown: str) -> int | str:
    """The value that a file shows, in the knob's unit: the reverse of `text_of`. Raises ValueError for what is no number.

    Of a weight under v2 it is the kernel's own number for it, the nearest to weight x 1024 / 100. Its least, and the 0 that an idle
    group shows, count as the least.
    """
    if not KNOB_FILES[knob].is_number:
        return shown
    if knob is Knob.CPU_WEIGHT and version == 2:
        weight = int(shown)
        if weight <= _LEAST_WEIGHT_V2:
            return WEIGHT_LEAST
        return (weight * _DEFAULT_SHARES + _DEFAULT_WEIGHT_V2 // 2) // _DEFAULT_WEIGHT_V2
    return UNLIMITED if shown == "max" else int(shown)


def holds(knob: Knob, version: int, value: int | str, shown: int | str) -> bool:
    """Whether a file whose value was read as `shown` holds `value`, when the kernel's rounding is taken for the same."""
    try:
        return value == shown or agrees(knob, version, text_of(knob, version, value), text_of(knob, version, shown))
    except InvalidInput:
        # The kernel shows what may not be written, such as a quota for another period.
        return False


def agrees(knob: Knob, version: int, wrote: str, shown: str) -> bool:
    """Whether the file, read back as `shown`, holds what was written.

    The kernel rounds memory down to a page and v1 shows "unlimited" as a number near 2^63; every other value reads as written.
    """
    wrote, shown = wrote.strip(), shown.strip()
    if wrote == shown:
        return True
    row = KNOB_FILES[knob]
    if knob is Knob.DEVICES:
        return rules_in(wrote) == rules_in(shown)
    if row.unit is Unit.BYTES and wrote == "-1":
        return shown.isdigit() and int(shown) >= _V1_UNLIMITED_BYTES
    if row.unit is Unit.BYTES and row.controller == "memory" and shown.isdigit():
        # Pages may be larger than 4 KiB; the limit must not be above the written value, and near to it.
        return wrote.isdigit() and 0 <= int(wrote) - int(shown) < 16 * PAGE_BYTES
    return False
