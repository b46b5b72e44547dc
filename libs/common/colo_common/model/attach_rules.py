"""Work that somebody else started: how a job names its control group, and what such a job may ask.

    attach: {cgroup: system.slice/nginx.service}    # below the cgroup root, under v1 below each controller
    attach: {unit: nginx.service, kill_on_stop: true}

Nothing is started, so the task has neither command nor environment; the group exists once, so it has one replica; and only online
work may be attached, because what colo did not start cannot be put below its ceiling.
"""

import re
from typing import Final

from colo_common.model.constraints import Constraints
from colo_common.model.invalid import InvalidInput
from colo_common.model.plain_values import mapping_of, text_of
from colo_common.model.qos import ONLINE_CLASSES, PriorityBand, QosClass
from colo_common.model.workload import AttachSpec, RunSpec, TaskSpec

__all__ = ["attach_of", "check_attach"]

_KEYS: Final = ("cgroup", "unit", "kill_on_stop")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,230}", re.ASCII)
_UNIT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,220}\.(?:service|slice|scope)", re.ASCII)
_PATH_MOST: Final = 4_096


def attach_of(value: object, field: str) -> AttachSpec | None:
    """What the `attach` part of a task says; None without one. Raises InvalidInput with the path and the rule."""
    if value is None:
        return None
    attach = mapping_of(value, field, _KEYS)
    kill_on_stop = attach.get("kill_on_stop", False)
    if not isinstance(kill_on_stop, bool):
        raise InvalidInput(f"{field}.kill_on_stop", "must be true or false", kill_on_stop)
    return AttachSpec(
        cgroup=text_of(attach.get("cgroup", ""), f"{field}.cgroup"),
        unit=text_of(attach.get("unit", ""), f"{field}.unit"),
        kill_on_stop=kill_on_stop,
    )


def check_attach(task: TaskSpec, qos: QosClass, band: PriorityBand, path: str) -> None:
    """Raise InvalidInput when a task that attaches asks for what only a start can give. `path` is that of the task."""
    attach = task.run.attach
    if attach is None:
        return
    _check_name(attach, f"{path}attach")
    _check_alone(task.run, path)
    if task.replicas != 1:
        raise InvalidInput(f"{path}replicas", "must be 1 beside `attach`: the group exists once", task.replicas)
    if qos not in ONLINE_CLASSES or band is not PriorityBand.PROD:
        rule = "must be LSE, LSR, or LS in band prod beside `attach`: only online work can be attached"
        raise InvalidInput("qos", rule, f"{qos.value} in band {band.value}")
    _check_place(task.constraints, path)


def _check_name(attach: AttachSpec, field: str) -> None:
    if bool(attach.cgroup) == bool(attach.unit):
        rule = "must have exactly one of `cgroup` and `unit`"
        raise InvalidInput(field, rule, f"{attach.cgroup} {attach.unit}".strip())
    if attach.unit and not _UNIT.fullmatch(attach.unit):
        rule = "must be a .service, .slice or .scope of systemd; another group is named by `cgroup`"
        raise InvalidInput(f"{field}.unit", rule, attach.unit)
    is_path = all(map(_NAME.fullmatch, attach.cgroup.split("/"))) and len(attach.cgroup) <= _PATH_MOST
    if attach.cgroup and not is_path:
        rule = (
            'must be names of letters, digits and _ . @ - between slashes, below the cgroup root, without a first "/"'
        )
        raise InvalidInput(f"{field}.cgroup", rule, attach.cgroup)


def _check_alone(run: RunSpec, path: str) -> None:
    for name, value in (("command", run.command), ("directory", run.directory), ("env", run.env)):
        if value:
            raise InvalidInput(
                f"{path}{name}", "must not stand beside `attach`: what runs already is not started", value
            )
    if run.limits is not None and run.limits.disk_bytes:
        rule = "must not stand beside `attach`: what runs already has no working directory of colo"
        raise InvalidInput(f"{path}limits.disk", rule, run.limits.disk_bytes)


def _check_place(place: Constraints, path: str) -> None:
    for name, value in (("devices", place.devices), ("huge_pages", place.huge_pages)):
        if value:
            rule = "must not stand beside `attach`: what runs already is given none"
            raise InvalidInput(f"{path}place.{name}", rule, [str(each) for each in value])
