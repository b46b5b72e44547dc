"""Finds the control group that a job wants to be attached to: by its path, or by the systemd unit that owns it."""

import contextlib
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from colo_common.model.placement import Placement
from colo_common.model.workload import AttachSpec
from colo_executor.attach import AttachRefused, attach_refusal, is_cleared_above, is_own_group
from colo_executor.cgroup import CgroupTree
from colo_executor.group_dirs import DIR_FLAGS, groups_in
from colo_executor.online import is_online
from colo_executor.process.online_groups import group_of_this_process
from colo_executor.process.settings import ProcessPolicy
from colo_executor.process.systemd_units import SystemdUnits

__all__ = ["checked_path", "path_of"]

_GROUPS_MOST: Final = 65_536
_DEPTH_MOST: Final = 16


def checked_path(
    placement: Placement, policy: ProcessPolicy, tree: CgroupTree, units: SystemdUnits | None, attached: Iterable[str]
) -> str:
    """The path of the group that the placement may be attached to, which need not be there. `tree` is any of this machine.

    Raises AttachRefused with the rule; `attached` are the groups that are attached already.
    """
    if not is_online(placement):
        raise AttachRefused("attach: only online work can be attached, LSE, LSR and LS in band prod")
    attach, own = placement.run.attach or AttachSpec(), policy.subtree
    skips = partial(is_own_group, own=own)
    path = path_of(attach, tree.hierarchy.mounts["cpu"], units, skips)
    here = group_of_this_process(policy.proc_root, "cpu" if tree.version == 1 else "")
    kept = [each for each in policy.unmanaged if each.cpus or each.clear_of_own_cpus]
    if refusal := attach_refusal(path, placement.tenant, policy.attach, own, here, attached, kept):
        raise AttachRefused(refusal)
    if placement.qos.has_own_cpus and (above := is_cleared_above(path, kept)):
        raise AttachRefused(f"{path} is in {above}, which process_unmanaged keeps off the CPUs of such work")
    return path


def path_of(attach: AttachSpec, mount: str, units: SystemdUnits | None, skips: Callable[[str], bool]) -> str:
    """The path of the group below the cgroup root, which need not be there.

    A unit is asked of systemd; where none runs, it is the one group of that name under the controller at `mount`, but for the top
    groups that it `skips`. Raises AttachRefused for a unit without a group, or of whose name there are several; CgroupError where
    systemd does not answer.
    """
    if not attach.unit:
        return attach.cgroup
    if units is not None:
        path = units.group_of(attach.unit)
        if not path:
            raise AttachRefused(f"attach.unit: systemd runs no unit {attach.unit} on this node")
        return path
    found = _named(mount, attach.unit, skips)
    if not found:
        raise AttachRefused(f"attach.unit: there is no control group of the name {attach.unit} on this node")
    if len(found) > 1:
        several = ", ".join(found[:3])
        raise AttachRefused(f"attach.unit: {attach.unit} may be {several} here; name one of them by attach.cgroup")
    return found[0]


def _named(mount: str, name: str, skips: Callable[[str], bool]) -> list[str]:
    """The paths of the groups of that name. No link is followed."""
    found: list[str] = []
    waiting = [("", 0)]
    seen = 0
    while waiting:
        above, depth = waiting.pop()
        for child in _children(mount, above):
            seen += 1
            path = f"{above}/{child}" if above else child
            if not above and skips(child):
                continue
            if child == name:
                found.append(path)
            if depth < _DEPTH_MOST and seen < _GROUPS_MOST:
                waiting.append((path, depth + 1))
    return sorted(found)


def _children(mount: str, group: str) -> list[str]:
    with contextlib.ExitStack() as stack:
        fd = os.open(mount, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, fd)
        try:
            for part in group.split("/") if group else []:
                fd = os.open(part, DIR_FLAGS, dir_fd=fd)
                stack.callback(os.close, fd)
            return groups_in(fd)
        except OSError:
            # A group that was removed meanwhile has none.
            return []
