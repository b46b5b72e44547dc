"""Reads a Kubernetes Pod or Deployment as the mapping of a colo job file.

What is understood: the name, labels, `replicas`, the label `koordinator.sh/qosClass`, the annotation
`scheduling.koordinator.sh/resource-spec`, `priorityClassName` (koord-prod, koord-mid, koord-batch, koord-free), `nodeSelector`,
`tolerations`, `terminationGracePeriodSeconds`, and of each container `command`, `args`, `env` and `resources` (cpu, memory,
kubernetes.io/batch-cpu, batch-memory, mid-cpu, mid-memory, nvidia.com/gpu). Every other key is named in a note.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from colo_common.model.invalid import InvalidInput
from colo_common.model.job_rules import LIMITS
from colo_common.model.plain_values import mapping_of, text_of
from colo_common.model.qos import PriorityBand, QosClass, parse_band, parse_qos
from colo_common.model.quantity import parse_batch_mcpu, parse_bytes, parse_mcpu

__all__ = ["ManifestJob", "is_manifest", "job_of_manifest"]

QOS_LABEL: Final = "koordinator.sh/qosClass"
SPEC_ANNOTATION: Final = "scheduling.koordinator.sh/resource-spec"
_KINDS: Final = ("Deployment", "Pod")
_TASK: Final = "main"
_CPU: Final = ("cpu", "kubernetes.io/batch-cpu", "kubernetes.io/mid-cpu")
_MEMORY: Final = ("memory", "kubernetes.io/batch-memory", "kubernetes.io/mid-memory")
_GPU: Final = "nvidia.com/gpu"
_DISK: Final = "ephemeral-storage"
_CONTAINERS_MOST: Final = 32
# Without a command only the image knows what runs; colo pulls no image.
_HOLD: Final = ["sleep", "infinity"]
_FOR_EVER_CPU_H: Final = LIMITS.WORK_MAX_MCPU_MS // 3_600_000_000
_BINDS: Final = {"FullPCPUs": "full-pcpus", "SpreadByPCPUs": "spread-by-pcpus", "Default": None, "": None}
_EXCLUSIVES: Final = {"PCPULevel": "pcpu-level", "NUMANodeLevel": "numa-node-level", "None": None, "": None}


class ManifestJob(NamedTuple):
    """The mapping of a job file. `fields` gives the manifest's path for a path of the job file; `notes` name what was left out."""

    job: dict[str, Any]
    fields: dict[str, str]
    notes: list[tuple[str, str]]


class _Part:
    """A mapping of the manifest. A key that is not read when all parts were read is not understood."""

    def __init__(self, value: object, path: str) -> None:
        self.path = path
        self.left: dict[str, Any] = dict(mapping_of({} if value is None else value, path or "manifest"))
        self.parts: list[_Part] = []

    def at(self, key: str) -> str:
        """The path of a key."""
        return f"{self.path}.{key}" if self.path else key

    def take(self, key: str) -> Any:
        """The value of the key, None without one."""
        return self.left.pop(key, None)

    def part(self, key: str) -> _Part:
        """The mapping under the key, an empty one without it."""
        part = _Part(self.take(key), self.at(key))
        self.parts.append(part)
        return part

    def items(self, key: str) -> list[_Part]:
        """The mappings of the list under the key."""
        value = self.take(key)
        if value is None:
            return []
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes)) or len(value) > _CONTAINERS_MOST:
            raise InvalidInput(self.at(key), f"must be a list of at most {_CONTAINERS_MOST}", value)
        parts = [_Part(item, f"{self.at(key)}[{number}]") for number, item in enumerate(value)]
        self.parts.extend(parts)
        return parts

    def unread(self) -> list[str]:
        """The paths of all keys that were not read."""
        return [*map(self.at, self.left), *(path for part in self.parts for path in part.unread())]


def is_manifest(mapping: Mapping[str, Any]) -> bool:
    """Whether the mapping is a Kubernetes object: no job file has these two keys."""
    return "apiVersion" in mapping or "kind" in mapping


def job_of_manifest(mapping: Mapping[str, Any]) -> ManifestJob:
    """Return the job of a Pod or a Deployment. Raises InvalidInput with the path in the manifest."""
    whole = _Part(mapping, "")
    whole.take("apiVersion")
    kind = whole.take("kind")
    if kind not in _KINDS:
        raise InvalidInput("kind", f"must be one of {' '.join(_KINDS)} (or leave it out: then it is a job file)", kind)
    notes: list[tuple[str, str]] = []
    meta, spec = whole.part("metadata"), whole.part("spec")
    pod_meta, pod = meta, spec
    task: dict[str, Any] = {"name": _TASK}
    fields = {"name": "metadata.name"}
    if kind == "Deployment":
        task["replicas"] = spec.left.pop("replicas", 1)
        fields["tasks[0].replicas"] = "spec.replicas"
        template = spec.part("template")
        pod_meta, pod = template.part("metadata"), template.part("spec")
        pod_meta.take("name")
        if spec.take("selector") is not None:
            notes.append((spec.at("selector"), "is ignored: colo knows the replicas of a job by the job's id"))
    labels = _labels(meta) | (_labels(pod_meta) if pod_meta is not meta else {})
    qos = _qos(labels.pop(QOS_LABEL, None), pod_meta, pod, notes)
    job: dict[str, Any] = {"name": meta.take("name"), "qos": qos.value, "labels": labels, "tasks": [task]}
    if (band := _band(pod, qos, notes)) is not None:
        job["band"] = band.value
    place: dict[str, Any] = {}
    _containers(pod, qos, task, place, fields, notes)
    _binding(pod_meta, place, fields)
    _where(pod, place, fields)
    if (grace := pod.take("terminationGracePeriodSeconds")) is not None:
        task["grace"] = grace
    fields["tasks[0].grace"] = pod.at("terminationGracePeriodSeconds")
    if (restart := pod.take("restartPolicy")) in (None, "Always", "OnFailure"):
        task["max_retry"] = LIMITS.RETRY_MAX
    elif restart != "Never":
        raise InvalidInput(pod.at("restartPolicy"), "must be one of Always OnFailure Never", restart)
    if (scheduler := pod.take("schedulerName")) is not None:
        notes.append((pod.at("schedulerName"), f"is ignored: colo's own scheduler places it, not {scheduler}"))
    if place:
        task["place"] = place
    notes.extend((path, "is not understood by colo and ignored") for path in whole.unread())
    return ManifestJob(job, fields, notes)


def _labels(meta: _Part) -> dict[str, str]:
    where = meta.at("labels")
    return {
        name: text_of(text, f"{where}.{name}") for name, text in mapping_of(meta.take("labels") or {}, where).items()
    }


def _qos(label: str | None, meta: _Part, pod: _Part, notes: list[tuple[str, str]]) -> QosClass:
    """The class of the label. A pod without one is LS, as Koordinator treats it, or BE when it requests batch or mid resources."""
    where = f"{meta.at('labels')}.{QOS_LABEL}"
    if label is not None:
        return parse_qos(label, where)
    text = json.dumps(pod.left.get("containers"), default=str)
    qos = QosClass.BE if "kubernetes.io/batch-" in text or "kubernetes.io/mid-" in text else QosClass.LS
    notes.append((where, f"is not given; the class is {qos.value}"))
    return qos


def _band(pod: _Part, qos: QosClass, notes: list[tuple[str, str]]) -> PriorityBand | None:
    """The band of the priority class. Mid resources are requested by work of the band mid alone, which needs no class then."""
    name, where = pod.take("priorityClassName"), pod.at("priorityClassName")
    asks_mid = "kubernetes.io/mid-" in json.dumps(pod.left.get("containers"), default=str)
    if isinstance(name, str) and name.startswith("koord-"):
        band = parse_band(name, where)
        if asks_mid and band is not PriorityBand.MID:
            raise InvalidInput(where, "must be koord-mid: the pod requests mid resources", name)
        return band
    if name is not None:
        notes.append(
            (
                where,
                f"{name} is not a class of colo; the band follows from the {'resources' if asks_mid else 'QoS class'}",
            )
        )
    if asks_mid and qos in (QosClass.LS, QosClass.BE):
        return PriorityBand.MID
    return None


def _containers(
    pod: _Part,
    qos: QosClass,
    task: dict[str, Any],
    place: dict[str, Any],
    fields: dict[str, str],
    notes: list[tuple[str, str]],
) -> None:
    """Requests are summed over the containers; command and environment are those of the first, because a replica is one process."""
    containers = pod.items("containers")
    if not containers:
        raise InvalidInput(pod.at("containers"), "must be a list of at least one container", None)
    cpu_mcpu, memory_bytes, gpus = 0, 0, 0
    cpu_limits: list[int | None] = []
    memory_limits: list[int | None] = []
    disk_limits: list[int | None] = []
    for number, container in enumerate(containers):
        container.take("name")
        if (image := container.take("image")) is not None:
            notes.append((container.at("image"), f"{image} is not pulled: colo runs programs of the machine"))
        resources = container.part("resources")
        requests, limits = resources.part("requests"), resources.part("limits")
        asked, limit = _cpu_mcpu(requests, limits, qos)
        cpu_mcpu += asked
        cpu_limits.append(limit)
        asked, limit = _memory_bytes(requests, limits, qos)
        memory_bytes += asked
        memory_limits.append(limit)
        disk_limits.append(_disk_bytes(requests, limits, notes))
        gpus += int(text_of(_amount(requests, limits, _GPU)[0] or 0, requests.at(_GPU)))
        if number == 0:
            _program(container, task, notes)
            fields["tasks[0].cpu"] = requests.at("cpu")
            fields["tasks[0].memory"] = requests.at("memory")
            fields["tasks[0].limits.cpu"] = limits.at("cpu")
            fields["tasks[0].limits.memory"] = limits.at("memory")
            fields["tasks[0].limits.disk"] = limits.at(_DISK)
        elif container.left:
            notes.append((container.path, "only its resources count: a replica runs the first container's command"))
            container.left.clear()
    if not cpu_mcpu:
        rule = f"must request CPU: {' or '.join(_CPU)}"
        raise InvalidInput(f"{containers[0].at('resources')}.requests", rule, None)
    task["cpu"] = f"{cpu_mcpu}m"
    if memory_bytes:
        task["memory"] = memory_bytes
    # As in Kubernetes: one container without a limit, and the pod has none.
    if None not in cpu_limits:
        task.setdefault("limits", {})["cpu"] = f"{sum(limit or 0 for limit in cpu_limits)}m"
    if None not in memory_limits and memory_bytes:
        task.setdefault("limits", {})["memory"] = sum(limit or 0 for limit in memory_limits)
    if None not in disk_limits:
        task.setdefault("limits", {})["disk"] = sum(limit or 0 for limit in disk_limits)
    if gpus:
        place["devices"] = {"gpu": gpus}


def _program(container: _Part, task: dict[str, Any], notes: list[tuple[str, str]]) -> None:
    command = [*(container.take("command") or ()), *(container.take("args") or ())]
    if not command:
        notes.append(
            (container.at("command"), f"is not given; the replica runs `{' '.join(_HOLD)}` until it is cancelled")
        )
    task["command"] = command or list(_HOLD)
    task["work"] = f"{_FOR_EVER_CPU_H} cpu-h"
    env: dict[str, Any] = {}
    for variable in container.items("env"):
        name = text_of(variable.take("name"), variable.at("name"))
        if "value" in variable.left:
            env[name] = variable.take("value")
    if env:
        task["env"] = env


def _amount(requests: _Part, limits: _Part, name: str) -> tuple[Any, Any]:
    """The request and the limit of a resource; without a request the limit is the request, as in Kubernetes."""
    asked, limit = requests.take(name), limits.take(name)
    return (limit if asked is None else asked), limit


def _cpu_mcpu(requests: _Part, limits: _Part, qos: QosClass) -> tuple[int, int | None]:
    return _summed(requests, limits, qos, {name: parse_mcpu if name == "cpu" else parse_batch_mcpu for name in _CPU})


def _memory_bytes(requests: _Part, limits: _Part, qos: QosClass) -> tuple[int, int | None]:
    return _summed(requests, limits, qos, dict.fromkeys(_MEMORY, parse_bytes))


def _disk_bytes(requests: _Part, limits: _Part, notes: list[tuple[str, str]]) -> int | None:
    """The limit of the disk of one container, if any; a request is noted, because nothing is promised of it."""
    if requests.take(_DISK) is not None:
        notes.append((requests.at(_DISK), "is not promised: only its limit counts"))
    limit = limits.take(_DISK)
    return None if limit is None else parse_bytes(limit, limits.at(_DISK))


def _summed(
    requests: _Part, limits: _Part, qos: QosClass, names: Mapping[str, Callable[[Any, str], int]]
) -> tuple[int, int | None]:
    """Request and limit of one container, over the names of one resource; no limit where one that is requested has none."""
    total, most, is_limited = 0, 0, True
    for name, parse in names.items():
        asked, limit = _amount(requests, limits, name)
        if asked is None:
            continue
        amount = parse(asked, requests.at(name))
        total += amount
        if limit is None:
            is_limited = False
            continue
        found = parse(limit, limits.at(name))
        most += found
        if found != amount and qos.has_own_cpus:
            rule = f"must equal the request: work of class {qos.value} holds what it requests"
            raise InvalidInput(limits.at(name), rule, limit)
    return total, most if is_limited and most else None


def _binding(meta: _Part, place: dict[str, Any], fields: dict[str, str]) -> None:
    annotations = meta.part("annotations")
    text = annotations.take(SPEC_ANNOTATION)
    if text is None:
        return
    where = annotations.at(SPEC_ANNOTATION)
    try:
        wish = _Part(json.loads(text) if isinstance(text, str) else text, where)
    except ValueError as error:
        raise InvalidInput(where, "must be JSON", text) from error
    annotations.parts.append(wish)
    required = wish.take("requiredCPUBindPolicy")
    preferred = wish.take("preferredCPUBindPolicy")
    exclusive = wish.take("preferredCPUExclusivePolicy")
    if required not in (None, "", "Default"):
        place["cpu_bind"] = _word(required, _BINDS, wish.at("requiredCPUBindPolicy"))
        place["cpu_bind_required"] = True
    elif preferred is not None and (bind := _word(preferred, _BINDS, wish.at("preferredCPUBindPolicy"))):
        place["cpu_bind"] = bind
    if exclusive is not None and (own := _word(exclusive, _EXCLUSIVES, wish.at("preferredCPUExclusivePolicy"))):
        place["cpu_exclusive"] = own
    fields["tasks[0].place.cpu_bind"] = wish.at(
        "requiredCPUBindPolicy" if "cpu_bind_required" in place else "preferredCPUBindPolicy"
    )
    fields["tasks[0].place.cpu_exclusive"] = wish.at("preferredCPUExclusivePolicy")


def _word(value: object, words: Mapping[str, str | None], field: str) -> str | None:
    if not isinstance(value, str) or value not in words:
        raise InvalidInput(field, f"must be one of {' '.join(word for word in words if word)}", value)
    return words[value]


def _where(pod: _Part, place: dict[str, Any], fields: dict[str, str]) -> None:
    if (selector := pod.take("nodeSelector")) is not None:
        place["node_labels"] = selector
    fields["tasks[0].place.node_labels"] = pod.at("nodeSelector")
    tolerations = []
    for toleration in pod.items("tolerations"):
        operator = toleration.take("operator") or "Equal"
        if operator not in ("Equal", "Exists"):
            raise InvalidInput(toleration.at("operator"), "must be Equal or Exists", operator)
        found = {key: value for key in ("key", "effect") if (value := toleration.take(key)) is not None}
        value = toleration.take("value")
        if operator == "Equal":
            found["value"] = value or ""
        tolerations.append(found)
    if tolerations:
        place["tolerations"] = tolerations
