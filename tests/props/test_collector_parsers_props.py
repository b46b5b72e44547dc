"""Whatever a file holds.

A parser of the collector answers with values in their bounds or with an InvalidInput that names the file.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_collector.business import values_of
from colo_collector.device_rules import parse_device_labels, parse_gpu_partitions
from colo_collector.devices import parse_device_kinds
from colo_collector.hierarchy import parse_controllers, parse_hierarchy, parse_self_cgroup
from colo_collector.kernel_text import cpu_list, flat_keyed, single_count
from colo_collector.kubelet import pinned_cpus, read_checkpoint
from colo_collector.node_detail import read_node
from colo_collector.parse_cgroup import parse_cpu_usage_ns, parse_group_memory, parse_throttled_us
from colo_collector.parse_detail import (
    parse_block_io,
    parse_memory_events,
    parse_memory_split,
    parse_numa_stat,
    parse_periods,
    parse_task_count,
)
from colo_collector.parse_proc import parse_boot_id, parse_cpuinfo, parse_meminfo, parse_stat, parse_zone_meminfo
from colo_collector.parse_psi import parse_pressure
from colo_collector.parse_tasks import (
    parse_diskstats,
    parse_involuntary_switches,
    parse_loadavg,
    parse_network,
    parse_run_queues,
    parse_schedstat,
    parse_task_ids,
)
from colo_collector.resctrl import monitor_files, read_monitors, resctrl_capabilities
from colo_collector.reserved_cpus import reservation_rules
from colo_collector.rules import parse_taints
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import UNRULED

PARSERS: dict[str, Callable[[str], object]] = {
    "block_io": lambda text: parse_block_io("f", text),
    "boot_id": parse_boot_id,
    "controllers": lambda text: parse_controllers("f", text),
    "cpu_list": lambda text: cpu_list("f", text),
    "cpu_usage": lambda text: parse_cpu_usage_ns("f", text),
    "cpuinfo": parse_cpuinfo,
    "device_kinds": lambda text: parse_device_kinds((text,)),
    "device_labels": lambda text: parse_device_labels((text,)),
    "diskstats": parse_diskstats,
    "flat_keyed": lambda text: flat_keyed("f", text),
    "gpu_partitions": lambda text: parse_gpu_partitions((text,)),
    "group_memory": lambda text: parse_group_memory("f", "1", "g", text),
    "hierarchy": lambda text: parse_hierarchy(text, "0::/", text),
    "kubelet": read_checkpoint,
    "loadavg": parse_loadavg,
    "meminfo": parse_meminfo,
    "memory_events": lambda text: parse_memory_events("f", text),
    "memory_split": lambda text: parse_memory_split("f", text),
    "metric": lambda text: values_of(text, "up"),
    "network": parse_network,
    "numa_stat": lambda text: parse_numa_stat("f", text),
    "periods": lambda text: parse_periods("f", text),
    "pinned": pinned_cpus,
    "pressure": parse_pressure,
    "reservation": lambda text: reservation_rules(text, UNRULED),
    "run_queues": parse_run_queues,
    "schedstat": lambda text: parse_schedstat("f", text),
    "self_cgroup": parse_self_cgroup,
    "single_count": lambda text: single_count("f", text),
    "stat": parse_stat,
    "switches": lambda text: parse_involuntary_switches("f", text),
    "taints": lambda text: parse_taints((text,)),
    "task_count": lambda text: parse_task_count("f", text),
    "task_ids": lambda text: parse_task_ids("f", text),
    "throttled": lambda text: parse_throttled_us("f", text),
    "zone_meminfo": lambda text: parse_zone_meminfo(0, text, "f"),
}

# Bytes as a file may have them, and lines that look like the kernel's until they do not.
WORDS = st.sampled_from(
    ["cpu", "cpu0", "0", "1", "-1", "18446744073709551616", "anon", "N0=1", "N0=", "8:0", "rbytes=1", "Read", "Total",
     "some", "full", "avg10=0.00", "avg60=0.00", "avg300=1e9", "total=5", "oom_kill", "MemTotal:", "kB", "eth0:", "sda",
     "oom_kill_disable", "hierarchical_total=1", "up", "up{a=\"b\"}", "NaN", "+Inf", "0-3", "0-", "version", "Node"]
)  # fmt: skip
LINES = st.lists(st.lists(WORDS, max_size=16).map(" ".join), max_size=6).map("\n".join)
TEXTS = st.binary(max_size=200).map(lambda data: data.decode("utf-8", "replace")) | st.text(max_size=120) | LINES


@pytest.mark.parametrize("name", PARSERS)
@given(text=TEXTS)
def test_a_parser_refuses_with_a_field_or_answers(name: str, text: str) -> None:
    try:
        PARSERS[name](text)
    except InvalidInput as error:
        # What is refused is named, and the message is bounded however long the text is.
        assert error.field  # noqa: PT017
        assert len(str(error)) < 2_000  # noqa: PT017


@given(
    texts=st.dictionaries(st.sampled_from(["schedstat", "loadavg", "diskstats", "net/dev", "vmstat", "stat"]), TEXTS)
)
def test_a_node_whose_files_are_absurd_has_a_reading_all_the_same(texts: dict[str, str]) -> None:
    faults: list[str] = []
    read_node({f"/proc/{name}": text for name, text in texts.items()}, (), faults)
    assert len(faults) <= len(texts)


@given(names=st.lists(st.text(max_size=12) | st.just("mon_L3_00"), max_size=5), text=TEXTS, mounts=TEXTS)
def test_resctrl_whose_files_are_absurd_says_what_it_lacks(names: list[str], text: str, mounts: str) -> None:
    files = monitor_files("", names)
    faults: list[str] = []
    reading = read_monitors(files, {file.path: text for file in files}, 0, faults)
    assert len(reading.values) + len(faults) <= len(files)
    found = resctrl_capabilities({"/proc/filesystems": text, "/proc/cpuinfo": text}, mounts)
    assert [one.present for one in found] == [not one.detail.startswith("skipped: ") for one in found]
