"""The settings of the collector."""

from __future__ import annotations

import socket
from typing import Final

from msgspec import Struct, field

from colo_collector.business import MetricRule, parse_business_metrics
from colo_collector.device_rules import DeviceLabel, parse_device_labels, parse_gpu_partitions
from colo_collector.devices import KindRule, parse_device_kinds
from colo_collector.discover import Workload, parse_online_groups
from colo_collector.host_applications import host_applications
from colo_collector.kubelet_access import KubeletAccess, check_access
from colo_collector.pods import POD_ROOTS, check_pod_roots
from colo_collector.policy import CollectorPolicy, Threshold
from colo_collector.reserved_cpus import reservation_rules
from colo_collector.rules import check_rules, is_label, parse_taints
from colo_common.events.subjects import encode_node
from colo_common.model.constraints import Taint
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_name import node_name
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.topology import DevicePartition
from colo_common.runtime.settings import Common

__all__ = ["PERIOD_MS_MIN", "CollectorSettings"]

PERIOD_MS_MIN: Final = 100
_PERIOD_MS_MAX: Final = 60_000
_LABELS_MAX: Final = 64
_LABEL_MAX: Final = 253
_ATTRIBUTE_ROOTS: Final = ("/sys/", "/dev/")


def _this_host() -> str:
    return node_name(socket.gethostname())


class CollectorSettings(Struct, frozen=True, kw_only=True):
    """`period_ms` is in the service's clock, but never below 100 ms of real time. `root` stands for "/" of the machine. A
    file whose read takes longer than `read_deadline_ms` counts as missing.

    `host_applications` is Koordinator's `host-application-config`.

    `subtree` is the executor's group below every controller. `online_groups` are "name=/path" or "name=/path:CLASS", the path
    below the controllers. `online` False admits batch work only. `taints` are "key=value:effect" or "key:effect", `rules` are those
    of NodeRules. `device_labels` are "gpu:model=H100" or "gpu/0-3:model=H100", `gpu_partitions` groups of GPUs such as
    "0-3:score=1:bandwidth=200Gi". The topology is published again every `topology_again_ms`.

    Pods are looked for below `pod_roots`, containers of engines where `containers` is set. `kubelet_url` is the kubelet's port
    on this node, "" for none.

    Pressure marks are percent of `pressure_window_ms`; an upper mark of 0 switches the signal off. `kubelet_state` is the
    checkpoint file of a kubelet's static CPU policy, "" for none.
    """

    common: Common = field(default_factory=Common)
    node: str = field(default_factory=_this_host)
    period_ms: int = 1_000
    root: str = "/"
    read_deadline_ms: int = 500
    subtree: str = "colo"
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    rules: NodeRules = UNRULED
    device_labels: tuple[str, ...] = ()
    gpu_partitions: tuple[str, ...] = ()
    device_kinds: tuple[str, ...] = ()
    attribute_paths: dict[str, str] = field(default_factory=dict)
    reservation: str = ""
    online: bool = True
    kubelet_state: str = ""
    pod_roots: tuple[str, ...] = POD_ROOTS
    containers: bool = True
    kubelet_url: str = ""
    kubelet_token_file: str = ""
    kubelet_ca_file: str = ""
    kubelet_period_ms: int = 10_000
    online_groups: tuple[str, ...] = ()
    host_applications: str = ""
    topology_again_ms: int = 3_600_000
    business_metrics: tuple[str, ...] = ()
    business_period_ms: int = 5_000
    business_timeout_ms: int = 2_000
    online_latency_slo_ms: int = 100
    pressure_window_ms: int = 10_000
    pressure_triggers: bool = True
    cpu_some_above_pct: int = 60
    cpu_some_below_pct: int = 40
    memory_full_above_pct: int = 10
    memory_full_below_pct: int = 5
    io_full_above_pct: int = 40
    io_full_below_pct: int = 20

    def validate(self) -> None:
        """Raise InvalidInput for the first value that breaks its rule."""
        encode_node(self.node)
        if not PERIOD_MS_MIN <= self.period_ms <= _PERIOD_MS_MAX:
            raise InvalidInput("period_ms", f"must be {PERIOD_MS_MIN} to {_PERIOD_MS_MAX}", self.period_ms)
        if not 10 <= self.read_deadline_ms <= _PERIOD_MS_MAX:
            raise InvalidInput("read_deadline_ms", f"must be 10 to {_PERIOD_MS_MAX}", self.read_deadline_ms)
        if not self.root.startswith("/") or ".." in self.root.split("/"):
            raise InvalidInput("root", 'must be absolute and have no part ".."', self.root)
        if self.kubelet_state and (not self.kubelet_state.startswith("/") or ".." in self.kubelet_state.split("/")):
            raise InvalidInput("kubelet_state", 'must be absolute and have no part ".."', self.kubelet_state)
        if len(self.labels) > _LABELS_MAX:
            raise InvalidInput("labels", f"may be at most {_LABELS_MAX}", len(self.labels))
        for name, value in self.labels.items():
            if not name or max(len(name), len(value)) > _LABEL_MAX:
                raise InvalidInput("labels", f"a name is 1 to {_LABEL_MAX} characters, a value at most as many", name)
        parse_taints(self.taints)
        check_rules(self.node_rules())
        self.kinds_of_devices()
        if len(self.attribute_paths) > _LABELS_MAX:
            raise InvalidInput("attribute_paths", f"may be at most {_LABELS_MAX}", len(self.attribute_paths))
        for name, path in self.attribute_paths.items():
            if not is_label(name, ""):
                raise InvalidInput("attribute_paths", "a name must be as that of a label", name)
            if not path.startswith(_ATTRIBUTE_ROOTS) or ".." in path.split("/"):
                raise InvalidInput(f"attribute_paths.{name}", 'must be below /sys or /dev and have no part ".."', path)
        check_pod_roots(self.pod_roots)
        check_access(self.kubelet())
        for name in ("business_period_ms", "business_timeout_ms"):
            if not PERIOD_MS_MIN <= getattr(self, name) <= _PERIOD_MS_MAX:
                raise InvalidInput(name, f"must be {PERIOD_MS_MIN} to {_PERIOD_MS_MAX}", getattr(self, name))
        self.metric_rules()
        self.labels_of_devices()
        self.groups_of_gpus()
        self.host_workloads()
        self.policy().validate()

    def node_taints(self) -> tuple[Taint, ...]:
        """The operator's taints. Raises InvalidInput that names the entry."""
        return parse_taints(self.taints)

    def labels_of_devices(self) -> tuple[DeviceLabel, ...]:
        """The operator's labels of devices. Raises InvalidInput that names the entry."""
        return parse_device_labels(self.device_labels)

    def kubelet(self) -> KubeletAccess:
        """Where the node's kubelet is and how it is asked."""
        return KubeletAccess(
            url=self.kubelet_url,
            token_file=self.kubelet_token_file,
            ca_file=self.kubelet_ca_file,
            period_ms=self.kubelet_period_ms,
        )

    def metric_rules(self) -> tuple[MetricRule, ...]:
        """The metrics that workloads offer. Raises InvalidInput that names the entry."""
        return parse_business_metrics(self.business_metrics, self.online_latency_slo_ms)

    def node_rules(self) -> NodeRules:
        """The operator's rules, with what `reservation` reserves. Raises InvalidInput that names the field."""
        return reservation_rules(self.reservation, self.rules)

    def kinds_of_devices(self) -> tuple[KindRule, ...]:
        """The operator's table of device kinds. Raises InvalidInput that names the entry."""
        return parse_device_kinds(self.device_kinds)

    def groups_of_gpus(self) -> tuple[DevicePartition, ...]:
        """The operator's groups of GPUs. Raises InvalidInput that names the entry."""
        return parse_gpu_partitions(self.gpu_partitions)

    def listed_groups(self) -> tuple[Workload, ...]:
        """The workloads of `online_groups`. Raises InvalidInput that names the entry."""
        return parse_online_groups(self.online_groups, self.subtree)

    def host_workloads(self) -> tuple[Workload, ...]:
        """The host applications, which a policy may replace. Raises InvalidInput that names the entry."""
        return host_applications(self.host_applications, self.labels, self.subtree, self.listed_groups())

    def policy(self) -> CollectorPolicy:
        """The core's policy: pressure marks, their window, and when the topology is published again."""
        marks = (
            Threshold(signal="cpu_some", above_pct=self.cpu_some_above_pct, below_pct=self.cpu_some_below_pct),
            Threshold(signal="memory_full", above_pct=self.memory_full_above_pct, below_pct=self.memory_full_below_pct),
            Threshold(signal="io_full", above_pct=self.io_full_above_pct, below_pct=self.io_full_below_pct),
        )
        return CollectorPolicy(
            window_ms=self.pressure_window_ms,
            topology_again_ms=self.topology_again_ms,
            online_latency_slo_ms=self.online_latency_slo_ms,
            thresholds=tuple(one for one in marks if one.above_pct != 0),
        )
