"""What a node lacks, in words."""

import pytest

from colo_common.model.reasons import SENTENCES, Reason
from colo_common.model.shortage import LOAD_UNITS, most_text, shortage_text

GIB = 1 << 30


@pytest.mark.parametrize(
    ("reason", "unit", "need", "have", "zone", "text"),
    [
        (Reason.ZONE_FIT_SHORT, "mcpu", 4_000, 2_800, 1, "1.2 CPU short in zone 1 of node-07 (2.8 of 4)"),
        (Reason.BATCH_CPU_SHORT, "mcpu", 1_000, 999, None, "0.001 CPU short in node-07 (0.999 of 1)"),
        (Reason.CPU_SHORT, "mcpu", 4_000_000, 0, None, "4000 CPU short in node-07 (0 of 4000)"),
        (
            Reason.BATCH_MEMORY_SHORT,
            "bytes",
            2 * GIB,
            GIB // 2,
            None,
            "1.5Gi of memory short in node-07 (512Mi of 2Gi)",
        ),
        (
            Reason.MEMORY_SHORT,
            "bytes",
            GIB,
            GIB - 1,
            0,
            "1 byte of memory short in zone 0 of node-07 (1023.99Mi of 1Gi)",
        ),
        (
            Reason.HUGE_PAGES_SHORT,
            "bytes",
            6 << 20,
            2 << 20,
            1,
            "4Mi of huge pages short in zone 1 of node-07 (2Mi of 6Mi)",
        ),
        (Reason.ZONE_FIT_SHORT, "bytes", 4096, 0, 1, "4Ki of memory short in zone 1 of node-07 (0 of 4Ki)"),
        (
            Reason.ZONE_FIT_SHORT,
            "huge-page-bytes",
            8,
            0,
            1,
            "8 bytes of huge pages short in zone 1 of node-07 (0 of 8 bytes)",
        ),
        (Reason.CPUS_SHORT, "cpus", 4, 3, None, "1 CPU of its own short in node-07 (3 of 4)"),
        (Reason.CPUS_SHORT, "cpus", 4, 2, 0, "2 CPUs of its own short in zone 0 of node-07 (2 of 4)"),
        (Reason.DEVICE_SHORT, "gpu", 2, 0, 1, "2 gpu short in zone 1 of node-07 (0 of 2)"),
        (Reason.RESERVATION_SHORT, "mcpu", 1_500, 1_000, None, "0.5 CPU short in node-07 (1 of 1.5)"),
        (Reason.LOAD_OVER_THRESHOLD, "cpu-load-pct", 65, 71, None, "CPU load 71 % of 65 % in node-07"),
        (
            Reason.LOAD_OVER_THRESHOLD,
            "memory-load-1d-pct",
            75,
            80,
            None,
            "memory load (highest of a day) 80 % of 75 % in node-07",
        ),
        (Reason.BATCH_REPLICAS_MOST, "batch-replicas", 2, 2, None, "2 of 2 batch replicas in node-07"),
        (Reason.TAINT_NOT_TOLERATED, "condition", 1, 0, None, f"node-07: {SENTENCES[Reason.TAINT_NOT_TOLERATED]}"),
        # What is said by an amount that is enough is a matter of how it lies.
        (Reason.DEVICE_SHORT, "gpu", 1, 1, 0, f"zone 0 of node-07: {SENTENCES[Reason.DEVICE_SHORT]}"),
        ("a-later-reason", "condition", 1, 0, None, "node-07: a-later-reason"),
    ],
)
def test_the_text_of_a_nearest_miss_names_the_shortage_and_the_place(
    reason: str, unit: str, need: int, have: int, zone: int | None, text: str
) -> None:
    assert shortage_text(node="node-07", reason=reason, need=need, have=have, unit=unit, zone=zone) == text


@pytest.mark.parametrize(
    ("reason", "unit", "need", "have", "text"),
    [
        (Reason.BATCH_CPU_SHORT, "mcpu", 60_000, 16_000, "a machine has 16 CPU at most (n1), it needs 60"),
        (Reason.MEMORY_SHORT, "bytes", 9 * GIB, 8 * GIB, "a machine has 8Gi of memory at most (n1), it needs 9Gi"),
        (Reason.CPUS_SHORT, "cpus", 17, 15, "a machine has 15 CPUs of its own at most (n1), it needs 17"),
        (Reason.DEVICE_UNKNOWN, "gpu", 1, 0, "no machine has any gpu, it needs 1"),
        (
            Reason.DEVICE_SHORT,
            "of memory on one gpu",
            900 * GIB,
            80 * GIB,
            "a machine has 80Gi of memory on one gpu at most (n1), it needs 900Gi",
        ),
        (Reason.HUGE_PAGES_SHORT, "bytes", 4096, 0, "no machine has any huge pages, it needs 4Ki"),
    ],
)
def test_what_no_machine_has_enough_of(reason: str, unit: str, need: int, have: int, text: str) -> None:
    assert most_text(node="n1", reason=reason, need=need, have=have, unit=unit) == text


def test_every_unit_of_load_names_its_resource() -> None:
    assert all(words.startswith(("CPU load", "memory load")) for words in LOAD_UNITS.values())
