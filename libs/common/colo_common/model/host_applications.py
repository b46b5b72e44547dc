"""Host applications: groups of processes outside of pods and of colo, whose use counts by QoS class and priority band.

The form is Koordinator's `host-application-config`. Source: koordinator-sh/koordinator
(apis/configuration/slo_controller_config.go, pkg/koordlet/util/host_application.go). There the directory of a kubelet's base is
that of its cgroup driver; here a first part that ends in .slice, .scope or .service stands below the slices of systemd.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.node_selector import Selector, selects
from colo_common.model.qos import PriorityBand, QosClass, check_pair, default_band, parse_band, parse_qos

__all__ = [
    "HostApplication",
    "HostApplicationOverride",
    "HostApplications",
    "application_of",
    "check_group_path",
    "check_group_name",
    "path_of_unit",
    "read_host_applications",
]

_CHARACTERS_MAX: Final = 65_536
_CHARACTERS_SHOWN: Final = 80
_APPLICATIONS_MAX: Final = 256
_OVERRIDES_MAX: Final = 256
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_UNIT: Final = re.compile(r"[A-Za-z0-9:_.@\\-]{1,240}\.(?:service|slice)", re.ASCII)
_PATH_MOST: Final = 1_024
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


class HostApplication(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One group. `path` is below every controller's mount point, from "/" on; by its band it counts as online or batch work."""

    name: str
    path: str
    qos: QosClass = QosClass.LS
    band: PriorityBand = PriorityBand.PROD

    def text(self) -> str:
        """For people: "nginx=/system.slice/nginx.service:LS prod"."""
        return f"{self.name}={self.path}:{self.qos.value} {self.band.value}"

    def validate(self, field: str) -> None:
        """Raise InvalidInput for a name or a path that no group has, or a band that the class may not have."""
        check_group_name(self.name, field)
        check_group_path(self.path, field)
        check_pair(self.qos, self.band, f"{field}.band")


class HostApplicationOverride(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The applications of the nodes that the selector selects, in place of the general ones."""

    name: str = ""
    selector: Selector = Selector()
    applications: tuple[HostApplication, ...] = ()


class HostApplications(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The applications of every node, and those of nodes with certain labels."""

    applications: tuple[HostApplication, ...] = ()
    overrides: tuple[HostApplicationOverride, ...] = ()

    def of(self, labels: Mapping[str, str], match: Literal["first", "last"] = "first") -> tuple[HostApplication, ...]:
        """The applications of a node with these labels; `match`: which of several overrides that select it counts."""
        ordered = self.overrides if match == "first" else reversed(self.overrides)
        found = next((each.applications for each in ordered if selects(each.selector, labels)), None)
        return self.applications if found is None else found

    def texts(self) -> dict[str, str]:
        """The place of each entry in the document ("applications[0]") and its text for people, by place."""
        found = {f"applications[{number}]": each.text() for number, each in enumerate(self.applications)}
        for number, override in enumerate(self.overrides):
            place = f"overrides[{number}]"
            found[f"{place}.name"] = override.name or "-"
            found[f"{place}.selector"] = override.selector.text()
            found |= {f"{place}.applications[{at}]": each.text() for at, each in enumerate(override.applications)}
        return found

    def validate(self, field: str) -> None:
        """Raise InvalidInput for the first entry that makes no sense, or whose use would count twice."""
        _check_all(self.applications, f"{field}.applications")
        if len(self.overrides) > _OVERRIDES_MAX:
            raise InvalidInput(f"{field}.overrides", f"must be at most {_OVERRIDES_MAX}", len(self.overrides))
        for number, each in enumerate(self.overrides):
            each.selector.validate(f"{field}.overrides[{number}].selector")
            _check_all(each.applications, f"{field}.overrides[{number}].applications")


def _check_all(applications: Sequence[HostApplication], field: str) -> None:
    if len(applications) > _APPLICATIONS_MAX:
        raise InvalidInput(field, f"may be at most {_APPLICATIONS_MAX}", len(applications))
    for number, each in enumerate(applications):
        each.validate(f"{field}[{number}]")
        for other in applications[:number]:
            if each.name == other.name:
                raise InvalidInput(f"{field}[{number}]", "a name may come once", each.name)
            if f"{each.path}/".startswith(f"{other.path}/") or f"{other.path}/".startswith(f"{each.path}/"):
                raise InvalidInput(
                    f"{field}[{number}]", f"must be neither within {other.path} nor around it", each.path
                )


def check_group_name(name: str, field: str) -> None:
    """Raise InvalidInput for a name that no group has."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(field, "the name must be of letters, digits and . _ -", name[:_CHARACTERS_SHOWN])


def check_group_path(path: str, field: str) -> None:
    """Raise InvalidInput for a path below the controllers that no group has."""
    parts = path.split("/")
    if not path.startswith("/") or path == "/" or "\0" in path or {"", ".", ".."} & set(parts[1:]):
        rule = 'the path must begin with "/", be below the root and have no part "", "." or ".."'
        raise InvalidInput(field, rule, path[:_CHARACTERS_SHOWN])
    if len(path) > _PATH_MOST:
        raise InvalidInput(field, f"the path must have at most {_PATH_MOST} characters", path[:_CHARACTERS_SHOWN])


def path_of_unit(unit: str, field: str) -> str:
    """The group of a unit of systemd: a service lies in system.slice, a slice within those that its name names.

    "nginx.service" is /system.slice/nginx.service, "web-blue.slice" is /web.slice/web-blue.slice. A service with another `Slice=`
    is given by its path.
    """
    if not _UNIT.fullmatch(unit):
        raise InvalidInput(
            field, "must be a .service or .slice of systemd; another group is given by its path", unit[:80]
        )
    if unit.endswith(".service"):
        return f"/system.slice/{unit}"
    parts = unit.removesuffix(".slice").split("-")
    if "" in parts:
        raise InvalidInput(field, "a slice has no empty part between its dashes", unit[:80])
    return "/" + "/".join("-".join(parts[: count + 1]) + ".slice" for count in range(len(parts)))


def application_of(name: str, qos: str, band: str, path: str, field: str, band_field: str = "band") -> HostApplication:
    """An application; one without a class is LS, one without a band has that of its class, one without a path is in
    `/host-latency-sensitive/NAME` or `/host-best-effort/NAME`. Raises InvalidInput that names the field.
    """
    known = parse_qos(qos, f"{field}.qos") if qos else QosClass.LS
    of = parse_band(band, f"{field}.{band_field}") if band else default_band(known)
    check_pair(known, of, f"{field}.{band_field}")
    check_group_name(name, field)
    return HostApplication(
        name=name, path=path or f"{_DIRECTORIES.get(known, _LATENCY_SENSITIVE)}/{name}", qos=known, band=of
    )


# ---- Koordinator's form


class _Path(Struct, forbid_unknown_fields=True):
    base: Literal["", "CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort"] = ""
    parent: str = msgspec.field(name="parentDir", default="")
    relative: str = msgspec.field(name="relativePath", default="")


class _Application(Struct, forbid_unknown_fields=True):
    name: str
    priority: str = ""
    qos: str = ""
    path: _Path | None = msgspec.field(name="cgroupPath", default=None)
    strategy: dict[str, object] | None = None


class _Selector(Struct, forbid_unknown_fields=True):
    labels: dict[str, str] = msgspec.field(name="matchLabels", default_factory=dict)


class _NodeConfig(Struct, forbid_unknown_fields=True):
    name: str = ""
    selector: _Selector = msgspec.field(name="nodeSelector", default_factory=_Selector)
    applications: list[_Application] = msgspec.field(default_factory=list)


class _Config(Struct, forbid_unknown_fields=True):
    applications: list[_Application] = msgspec.field(default_factory=list)
    nodes: list[_NodeConfig] = msgspec.field(name="nodeConfigs", default_factory=list)


def read_host_applications(text: str, name: str) -> HostApplications:
    """Read `{"applications": [...], "nodeConfigs": [...]}`, Koordinator's `host-application-config`. The first of `nodeConfigs`
    whose labels a node has counts. `strategy` is read and not followed. Raises InvalidInput, naming the entry, for other text.
    """
    if len(text) > _CHARACTERS_MAX:
        raise InvalidInput(name, f"must be at most {_CHARACTERS_MAX} characters", len(text))
    try:
        config = msgspec.json.decode(text, type=_Config)
    except msgspec.MsgspecError as error:
        rule = f"must be the JSON of Koordinator's host-application-config: {error}"
        raise InvalidInput(name, rule, text[:_CHARACTERS_SHOWN]) from error
    return HostApplications(
        applications=_applications(config.applications, f"{name}.applications"),
        overrides=tuple(
            HostApplicationOverride(
                name=node.name,
                selector=Selector(labels=node.selector.labels),
                applications=_applications(node.applications, f"{name}.nodeConfigs[{index}].applications"),
            )
            for index, node in enumerate(config.nodes)
        ),
    )


def _applications(entries: Sequence[_Application], field: str) -> tuple[HostApplication, ...]:
    if len(entries) > _APPLICATIONS_MAX:
        raise InvalidInput(field, f"may be at most {_APPLICATIONS_MAX}", len(entries))
    return tuple(_application(entry, f"{field}[{index}]") for index, entry in enumerate(entries))


def _application(entry: _Application, field: str) -> HostApplication:
    path, whole = entry.path, ""
    if path is not None:
        parts = [part.strip("/") for part in (path.parent, path.relative) if part.strip("/")]
        is_systemd = bool(parts) and parts[0].split("/")[0].endswith(_UNITS)
        whole = "/".join([_BASES[path.base][is_systemd], *parts])
        check_group_path(whole, f"{field}.cgroupPath")
    return application_of(entry.name, entry.qos, entry.priority, whole, field, "priority")
