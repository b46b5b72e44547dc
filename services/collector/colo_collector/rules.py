"""The operator's taints and rules of a node: parses and checks them, and fits the rules to the machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final, Literal, get_args

from msgspec import structs

from colo_common.model.constraints import Taint
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules
from colo_common.model.topology import NodeTopology, uniform_topology
from colo_common.model.withheld import index_of, resolved_rules

__all__ = ["check_rules", "fitting_rules", "is_label", "labelled_rules", "parse_taints"]

_Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
_EFFECTS: Final[dict[str, _Effect]] = {effect: effect for effect in get_args(_Effect)}
_KEY: Final = re.compile(r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_TAINTS_MOST: Final = 64
_NORMALIZATION: Final = "node.koordinator.sh/cpu-normalization-ratio"
_RATIO: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,6})?", re.ASCII)
_NO_CPUS: Final = CpuSet()
_CPU_LISTS: Final = ("reserved_cpus", "kubelet_reserved_cpus", "system_cpus")


def is_label(key: str, value: str) -> bool:
    """Whether key and value have the form of a Kubernetes label."""
    return bool(_KEY.fullmatch(key) and _VALUE.fullmatch(value))


def parse_taints(texts: Sequence[str], field: str = "taints") -> tuple[Taint, ...]:
    """The taints of texts such as "team=films:NoSchedule" or "spot:NoExecute", in their order.

    Raises InvalidInput, naming the entry, for another form, an unknown effect, or a key and effect that come twice.
    """
    if len(texts) > _TAINTS_MOST:
        raise InvalidInput(field, f"may be at most {_TAINTS_MOST}", len(texts))
    found: list[Taint] = []
    for index, text in enumerate(texts):
        name = f"{field}[{index}]"
        rest, _, effect = text.rpartition(":")
        key, _, value = rest.partition("=")
        if effect not in _EFFECTS:
            raise InvalidInput(name, f'must end in ":" and one of {" ".join(_EFFECTS)}', text)
        if not is_label(key, value):
            raise InvalidInput(name, 'must read "key=value:effect" or "key:effect", key and value as labels are', text)
        if any((key, effect) == (other.key, other.effect) for other in found):
            raise InvalidInput(name, "a key and effect may come once", text)
        found.append(Taint(key=key, value=value, effect=_EFFECTS[effect]))
    return tuple(found)


def check_rules(rules: NodeRules, field: str = "rules") -> None:
    """Raise InvalidInput for rules that are wrong on every machine: a malformed CPU list, a number out of its range."""
    for name in _CPU_LISTS:
        CpuSet.parse(getattr(rules, name), f"{field}_{name}")
    if rules.kubelet_pinned_cpus:
        rule = "must not be set: it is read from kubelet_state; CPUs that the kubelet keeps are kubelet_reserved_cpus"
        raise InvalidInput(f"{field}_kubelet_pinned_cpus", rule, rules.kubelet_pinned_cpus)
    without_lists = structs.replace(rules, reserved_cpus="", kubelet_reserved_cpus="", system_cpus="")
    without_lists.validate(
        uniform_topology(sockets=1, zones_per_socket=1, cpus_per_zone=1, memory_bytes_per_zone=1, threads_per_core=1)
    )


def labelled_rules(rules: NodeRules, labels: Mapping[str, str], assumed: list[str]) -> NodeRules:
    """The rules with the ratio of the label `node.koordinator.sh/cpu-normalization-ratio` ("1.20" is 120 percent, rounded down),
    where the operator set none. What is not a ratio from 1.00 to 5.00 changes nothing: `assumed` says so.
    """
    text = labels.get(_NORMALIZATION, "")
    if not text or rules.cpu_normalization_pct != 100:
        return rules
    ratio = Decimal(text) if _RATIO.fullmatch(text) else Decimal(0)
    if not 1 <= ratio <= 5:
        assumed.append(f"the label {_NORMALIZATION} is {text!r}, not a ratio from 1.00 to 5.00; CPU is not normalized")
        return rules
    return structs.replace(rules, cpu_normalization_pct=int(ratio * 100))


def fitting_rules(rules: NodeRules, topology: NodeTopology, assumed: list[str], pinned: CpuSet = _NO_CPUS) -> NodeRules:
    """The rules with CPU lists in canonical form and without offline CPUs; `assumed` gets a sentence for each shortened list.

    An amount of reserved CPU becomes the list of the CPUs that it is, so that everybody withholds the same ones.
    CPUs that the kernel's command line isolates join `system_cpus`: the kernel moves no thread between them, so that work with
    several of them would run on one, and somebody set them apart for a purpose.
    CPUs that the kubelet `pinned` join `kubelet_reserved_cpus`. The pinned CPUs that the operator did not list are also
    `kubelet_pinned_cpus`, because they come back when the pod ends.
    """
    online = CpuSet.from_iterable(cpu.cpu for cpu in topology.cpus)
    changes = {}
    for name in _CPU_LISTS:
        listed = CpuSet.parse(getattr(rules, name), f"rules_{name}")
        if listed - online:
            assumed.append(f"rules_{name} names the CPUs {listed - online}, which are not online; they are left out")
        if name == "kubelet_reserved_cpus":
            changes["kubelet_pinned_cpus"] = ((pinned - listed) & online).format()
            listed |= pinned
        if name == "system_cpus":
            isolated = CpuSet.parse(topology.isolated, "topology.isolated") & online
            if isolated - listed:
                assumed.append(f"the kernel isolates the CPUs {isolated - listed} (isolcpus); no work is placed there")
            listed |= isolated
        changes[name] = (listed & online).format()
    fitting = structs.replace(rules, **changes)
    resolved = resolved_rules(fitting, index_of(topology.cpus))
    if fitting.reserved_mcpu and not resolved.reserved_cpus:
        assumed.append(
            f"rules_reserved_mcpu is {fitting.reserved_mcpu}, more than this machine has; nothing is reserved"
        )
    return resolved
