"""The machine that a collector reads, made from its settings: for the service, and for commands that look at the machine once."""

from __future__ import annotations

from colo_collector.bounded_files import BoundedReader
from colo_collector.files import FileReader
from colo_collector.machine import Machine
from colo_collector.settings import CollectorSettings
from colo_common.adapters import core_scheduling
from colo_common.ports import Clock

__all__ = ["machine_of"]


def machine_of(settings: CollectorSettings, clock: Clock) -> Machine:
    """The machine below the settings' root. It has a thread of its own, which `close` ends."""
    return Machine(
        BoundedReader(lambda: FileReader(settings.root), deadline_ms=settings.read_deadline_ms),
        subtree=settings.subtree,
        online=settings.listed_groups(),
        host=settings.host_workloads(),
        labels=settings.labels,
        taints=settings.node_taints(),
        rules=settings.node_rules(),
        device_labels=settings.labels_of_devices(),
        gpu_partitions=settings.groups_of_gpus(),
        admits_online=settings.online,
        device_kinds=settings.kinds_of_devices(),
        attribute_paths=settings.attribute_paths,
        kubelet_state=settings.kubelet_state,
        pod_roots=settings.pod_roots,
        containers=settings.containers,
        clock=clock,
        is_host_mounted=settings.root.rstrip("/") != "",
        lacks_core_scheduling=core_scheduling.lacking(),
    )
