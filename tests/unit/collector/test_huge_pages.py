"""Huge pages of a zone from the kernel's counters."""

import pytest

from colo_collector.huge_pages import huge_page_paths, huge_pages_of_zone
from colo_common.model.constraints import HugePages

GIB = 1 << 30
ZONE = "/sys/devices/system/node/node1/hugepages/hugepages-{}kB/nr_hugepages"


def read(
    texts: dict[str, str], memory_bytes: int = 64 * GIB, zone: int | None = 1
) -> tuple[tuple[HugePages, ...], list[str]]:
    refused: list[str] = []
    return huge_pages_of_zone(zone, memory_bytes, texts, refused), refused


def test_pages_are_listed_by_size_and_sizes_without_pages_are_not() -> None:
    found, refused = read({ZONE.format(2048): "1024\n", ZONE.format(1048576): "3\n", ZONE.format(64): "0\n"})
    assert found == (HugePages(page_bytes=2 << 20, total_bytes=2 * GIB), HugePages(page_bytes=GIB, total_bytes=3 * GIB))
    assert refused == []


def test_a_machine_without_zones_tells_them_for_itself() -> None:
    path = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    assert path in huge_page_paths(())
    assert read({path: "1\n"}, zone=None)[0] == (HugePages(page_bytes=2 << 20, total_bytes=2 << 20),)
    assert ZONE.format(2048) in huge_page_paths((0, 1))


@pytest.mark.parametrize("text", ["", "many", "-1", "1 2", str(1 << 70), "32769"])
def test_an_absurd_count_is_named_and_the_other_sizes_stay(text: str) -> None:
    found, refused = read({ZONE.format(2048): text, ZONE.format(1048576): "1"})
    assert [pages.page_bytes for pages in found] == [GIB]
    (sentence,) = refused
    assert sentence.startswith(ZONE.format(2048))
    assert sentence.endswith("; these huge pages are left out")
