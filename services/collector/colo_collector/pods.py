"""Workloads that others run: Kubernetes pods and containers of an engine, found by the paths of their control groups.

A pod's group names its uid and, by the tree it is in, its QoS class; a kubelet tells the rest (`kubelet_pods.py`). The groups
are the same below every controller, so one hierarchy is listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from colo_collector.discover import Workload
from colo_common.model.invalid import InvalidInput
from colo_common.model.qos import PriorityBand, QosClass, default_band

__all__ = [
    "CONTAINER_ROOTS",
    "POD_ROOTS",
    "Pod",
    "check_pod_roots",
    "container_workloads",
    "pod_workloads",
    "without_nested",
]

POD_ROOTS: Final = (
    "/kubepods",
    "/kubepods.slice",
    "/kubelet/kubepods",
    "/kubelet.slice/kubelet-kubepods.slice",
)
"""Where a kubelet makes its tree: by its own hand or through systemd, at the root or, as in KinD, below `kubelet`."""
_ROOTS_MAX: Final = 16
_WORKLOADS_MAX: Final = 2_000
_TREE: Final = re.compile(r"(?:[A-Za-z0-9_.-]*-)?(burstable|besteffort)(?:\.slice)?", re.ASCII)
_POD: Final = re.compile(
    r"(?:[A-Za-z0-9_.-]*-)?pod([0-9a-f]{8}(?:[_-]?[0-9a-f]{4}){3}[_-]?[0-9a-f]{12})(?:\.slice)?", re.ASCII
)
_SCOPE: Final = re.compile(r"(docker|cri-containerd|crio|libpod|nerdctl|isula)-([0-9a-f]{64})\.scope", re.ASCII)
_ID: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_ENGINE_ROOTS: Final = (
    ("/docker", "docker"),
    ("/system.slice", ""),
    ("/machine.slice", ""),
    ("/default", "containerd"),
)
"""Where engines make the groups of containers that no kubelet started: their own tree, or a scope of systemd."""
CONTAINER_ROOTS: Final = tuple(root for root, _ in _ENGINE_ROOTS)
_SHORT_ID: Final = 12

PodTree = Literal["guaranteed", "burstable", "besteffort"]
_CLASS_OF: Final[Mapping[PodTree, QosClass]] = {
    "guaranteed": QosClass.LSR,
    "burstable": QosClass.LS,
    "besteffort": QosClass.BE,
}
ListDirectories = Callable[[str], Sequence[str]]


class Pod(Struct, frozen=True, kw_only=True):
    """What a kubelet says of a pod; None: it does not say."""

    name: str
    namespace: str
    qos: QosClass | None = None
    band: PriorityBand | None = None


def check_pod_roots(roots: Sequence[str], field: str = "pod_roots") -> None:
    """Raise InvalidInput for too many roots, or one that is not an absolute path without parts "" and ".."."""
    if len(roots) > _ROOTS_MAX:
        raise InvalidInput(field, f"may be at most {_ROOTS_MAX}", len(roots))
    for root in roots:
        if not root.startswith("/") or root == "/" or {"", ".", ".."} & set(root.split("/")[1:]):
            raise InvalidInput(field, 'must begin with "/", be below the root and have no part "", "." or ".."', root)


def pod_workloads(children: ListDirectories, roots: Sequence[str], pods: Mapping[str, Pod]) -> tuple[Workload, ...]:
    """The pods below the roots, by uid; `children` lists the groups of a group. `pods` is what a kubelet says, by uid.

    A pod is named "pod-UID", so that a restarted kubelet or a renamed pod changes nothing. Its class is that of its labels, else of
    its tree: guaranteed LSR, burstable LS, best effort BE. Best effort of others is no batch work of colo's: its band is mid,
    so that what it uses is promised to nobody.
    """
    found: dict[str, Workload] = {}
    for root in roots:
        for tree, path in _trees(children, root):
            for name in children(path):
                match = _POD.fullmatch(name)
                if match is None or len(found) >= _WORKLOADS_MAX:
                    continue
                uid = _uid(match[1])
                known = pods.get(uid)
                qos = _CLASS_OF[tree] if known is None or known.qos is None else known.qos
                band = known.band if known is not None and known.band is not None else _band(qos)
                found.setdefault(
                    uid,
                    Workload(
                        name=f"pod-{uid}",
                        path=f"{path}/{name}",
                        qos=qos,
                        band=band,
                        pod="" if known is None else f"{known.namespace}/{known.name}",
                    ),
                )
    return tuple(found[uid] for uid in sorted(found))


def container_workloads(children: ListDirectories) -> tuple[Workload, ...]:
    """The containers that engines run outside of a kubelet's tree, named "ENGINE-ID", in ascending name; all are of class LS."""
    found: list[Workload] = []
    for root, engine in _ENGINE_ROOTS:
        for name in children(root):
            scope = _SCOPE.fullmatch(name)
            if scope is not None:
                label, identity = scope[1], scope[2]
            elif engine and _ID.fullmatch(name):
                label, identity = engine, name
            else:
                continue
            found.append(
                Workload(
                    name=f"{label}-{identity[:_SHORT_ID]}",
                    path=f"{root}/{name}",
                    qos=QosClass.LS,
                    band=PriorityBand.PROD,
                )
            )
    return tuple(sorted(found, key=lambda one: one.name)[:_WORKLOADS_MAX])


def without_nested(found: Iterable[Workload], listed: Iterable[Workload]) -> tuple[Workload, ...]:
    """The workloads that neither contain nor lie within a listed group, and have a name of their own: nothing counts twice."""
    paths = [one.path for one in listed]
    names = {one.name for one in listed}
    return tuple(
        one
        for one in found
        if one.name not in names and not any(_within(one.path, path) or _within(path, one.path) for path in paths)
    )


def _trees(children: ListDirectories, root: str) -> list[tuple[PodTree, str]]:
    """The three QoS trees below a kubelet's root: guaranteed pods lie in the root itself."""
    names = children(root)
    trees: list[tuple[PodTree, str]] = [("guaranteed", root)] if names else []
    for name in names:
        match = _TREE.fullmatch(name)
        if match is not None:
            trees.append(("burstable" if match[1] == "burstable" else "besteffort", f"{root}/{name}"))
    return trees


def _uid(text: str) -> str:
    """The uid as Kubernetes writes it: systemd has no dashes in names, and pods from files have none at all."""
    plain = text.replace("_", "-")
    return plain if "-" in plain else text


def _band(qos: QosClass) -> PriorityBand:
    return PriorityBand.MID if qos is QosClass.BE else default_band(qos)


def _within(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}/")
