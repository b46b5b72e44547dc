"""The host applications of a node: processes outside of pods, listed in the form of Koordinator's `host-application-config`.

Source: koordinator-sh/koordinator (apis/configuration/slo_controller_config.go, pkg/koordlet/util/host_application.go). There the
directory of a kubelet's base is that of its cgroup driver; here a first part that ends in .slice, .scope or .service stands below
the slices of systemd.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from colo_collector.discover import Workload, check_group, check_path
from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import QosClass, check_pair, default_band, parse_band, parse_qos

__all__ = ["host_applications"]

_CHARACTERS_MAX: Final = 65_536
_CHARACTERS_SHOWN: Final = 80
_APPLICATIONS_MAX: Final = 256
_DIRECTORIES: Final = {QosClass.BE: "/host-best-effort"}
_LATENCY_SENSITIVE: Final = "/host-latency-sensitive"
_UNITS: Final = (".slice", ".scope", ".service")
_BASES: Final = {
    "": ("", ""),
    "CgroupRoot": ("", ""),
    "Kubepods": ("/kubepods", "/kubepods.slice"),
    "KubepodsBurstable": ("/kubepods/burstable", "/kubepods.slice/kubepods-burstable.slice"),
    "KubepodsBesteffort": ("/kubepods/besteffort", "/kubepods.slice/kubepods-besteffort.slice"),
}
"""The directory of a base where a kubelet makes groups itself, and where systemd does."""


class _Path(Struct, forbid_unknown_fields=True):
    base: Literal["", "CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort"] = ""
    parent: str = field(name="parentDir", default="")
    relative: str = field(name="relativePath", default="")


class _Application(Struct, forbid_unknown_fields=True):
    name: str
    priority: str = ""
    qos: str = ""
    path: _Path | None = field(name="cgroupPath", default=None)
    strategy: dict[str, object] | None = None


class _Selector(Struct, forbid_unknown_fields=True):
    labels: dict[str, str] = field(name="matchLabels", default_factory=dict)


class _NodeConfig(Struct, forbid_unknown_fields=True):
    name: str = ""
    selector: _Selector = field(name="nodeSelector", default_factory=_Selector)
    applications: list[_Application] = field(default_factory=list)


class _Config(Struct, forbid_unknown_fields=True):
    applications: list[_Application] = field(default_factory=list)
    nodes: list[_NodeConfig] = field(name="nodeConfigs", default_factory=list)


def host_applications(
    text: str, labels: Mapping[str, str], subtree: str, listed: Sequence[Workload], name: str = "host_applications"
) -> tuple[Workload, ...]:
    """The workloads of `{"applications": [...], "nodeConfigs": [...]}`; "" lists none.

    The applications of the first of `nodeConfigs` whose labels the node has come in place of the others. One without a class is LS,
    one without a priority has the band of its class; by the band its use counts as online or as batch work. One without
    `cgroupPath` is in `/host-latency-sensitive/NAME` or `/host-best-effort/NAME`. `strategy` is read and not followed. Raises
    InvalidInput, naming the entry, for other text and for a group that one of `listed` or the executor counts already.
    """
    if not text:
        return ()
    if len(text) > _CHARACTERS_MAX:
        raise InvalidInput(name, f"must be at most {_CHARACTERS_MAX} characters", len(text))
    try:
        config = msgspec.json.decode(text, type=_Config)
    except msgspec.MsgspecError as error:
        rule = f"must be the JSON of Koordinator's host-application-config: {error}"
        raise InvalidInput(name, rule, text[:_CHARACTERS_SHOWN]) from error
    # Every part is checked, also what is meant for other nodes: one document is given to all of them.
    found = _applications(config.applications, subtree, listed, f"{name}.applications")
    is_found = False
    for index, node in enumerate(config.nodes):
        own = _applications(node.applications, subtree, listed, f"{name}.nodeConfigs[{index}].applications")
        if not is_found and all(labels.get(key) == value for key, value in node.selector.labels.items()):
            found, is_found = own, True
    return found


def _applications(
    entries: Sequence[_Application], subtree: str, listed: Sequence[Workload], where: str
) -> tuple[Workload, ...]:
    if len(entries) > _APPLICATIONS_MAX:
        raise InvalidInput(where, f"may be at most {_APPLICATIONS_MAX}", len(entries))
    found = list(listed)
    for index, entry in enumerate(entries):
        one = _workload(entry, f"{where}[{index}]")
        check_group(one, subtree, found, f"{where}[{index}]")
        found.append(one)
    return tuple(found[len(listed) :])


def _workload(entry: _Application, where: str) -> Workload:
    qos = parse_qos(entry.qos, f"{where}.qos") if entry.qos else QosClass.LS
    band = parse_band(entry.priority, f"{where}.priority") if entry.priority else default_band(qos)
    check_pair(qos, band, f"{where}.priority")
    path = entry.path
    if path is None:
        whole = f"{_DIRECTORIES.get(qos, _LATENCY_SENSITIVE)}/{entry.name}"
    else:
        parts = [part.strip("/") for part in (path.parent, path.relative) if part.strip("/")]
        is_systemd = bool(parts) and parts[0].split("/")[0].endswith(_UNITS)
        whole = "/".join([_BASES[path.base][is_systemd], *parts])
    workload = Workload(name=entry.name, path=whole, qos=qos, band=band)
    check_path(workload, where if path is None else f"{where}.cgroupPath")
    return workload
