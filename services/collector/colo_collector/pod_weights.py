"""By which rule a kubelet and its container runtime turned CPU requests into cpu.weight, as the groups of their pods show it.

Under cgroup v2 a request of one CPU was 39, and is 100 since runc 1.3.2 and crun 1.23; a kubelet and its runtime may differ. A
group without a request of its own weighs 100. Guaranteed pods show it: their limit, which a file has, is their request.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct

from colo_collector.pods import POD_ROOTS, pod_workloads
from colo_common.model.qos import QosClass

__all__ = ["PodWeights", "linear_weight", "pod_weights", "quadratic_weight", "rule_of"]

_SHARES_LEAST: Final = 2
_SHARES_MOST: Final = 262_144
_WEIGHT_MOST: Final = 10_000
_LOOKED_AT_MOST: Final = 64
_UNKNOWN: Final = "another rule"

Read = Callable[[str], str | None]
ListDirectories = Callable[[str], Sequence[str]]


class PodWeights(Struct, frozen=True, kw_only=True):
    """The rules of most pods and of most of their containers, "" where none with a CPU limit that is its request was found."""

    of_pods: str = ""
    of_containers: str = ""

    def text(self) -> str:
        """One sentence, without its full stop, for whoever compares weights."""
        if not self.of_pods and not self.of_containers:
            return "no guaranteed pod shows it"
        rules = (("pods", self.of_pods), ("containers", self.of_containers))
        return ", ".join(f"{what} by {rule}" for what, rule in rules if rule)


def linear_weight(shares: int) -> int:
    """cpu.weight as runc before 1.3.2 and crun before 1.23 write it, rounded down: 1024 gives 39. No shares (0) give 0."""
    if shares == 0:
        return 0
    return 1 + max(0, shares - _SHARES_LEAST) * 9_999 // 262_142


def quadratic_weight(shares: int) -> int:
    """cpu.weight as runc from 1.3.2 and crun from 1.23 write it, rounded up: 1024 gives 100. No shares (0) give 0.

    ceil(10 ** ((l*l + 125*l) / 612 - 7/34)) with l = log2(shares), from 1 to 10000 (opencontainers/cgroups:utils.go).
    """
    if shares == 0:
        return 0
    if shares <= _SHARES_LEAST:
        return 1
    if shares >= _SHARES_MOST:
        return _WEIGHT_MOST
    exponent = math.log2(shares)
    return math.ceil(10 ** ((exponent * exponent + 125 * exponent) / 612 - 7 / 34))


def rule_of(cpu_mcpu: int, weight: int) -> str:
    """The rule by which a request of so many mcpu has this weight; "" where both say the same."""
    shares = max(_SHARES_LEAST, min(_SHARES_MOST, cpu_mcpu * 1_024 // 1_000))
    linear, quadratic = linear_weight(shares), quadratic_weight(shares)
    if linear == quadratic:
        return ""
    if weight == linear:
        return "the linear rule (one CPU weighs 39)"
    return "the quadratic rule (one CPU weighs 100)" if weight == quadratic else _UNKNOWN


def pod_weights(read: Read, children: ListDirectories, root: str) -> PodWeights:
    """What the guaranteed pods below `root`, the mount of cgroup v2, show. `children` lists the groups of a group below it."""
    pods = [pod.path for pod in pod_workloads(children, POD_ROOTS, {}) if pod.qos is QosClass.LSR][:_LOOKED_AT_MOST]
    containers = [f"{pod}/{name}" for pod in pods for name in children(pod)][:_LOOKED_AT_MOST]
    return PodWeights(of_pods=_most(read, root, pods), of_containers=_most(read, root, containers))


def _most(read: Read, root: str, groups: Iterable[str]) -> str:
    """The rule of most of these groups."""
    rules: Counter[str] = Counter()
    for group in groups:
        quota, _, period = (read(f"{root}{group}/cpu.max") or "").strip().partition(" ")
        weight = (read(f"{root}{group}/cpu.weight") or "").strip()
        if quota.isdecimal() and period.isdecimal() and weight.isdecimal() and int(period):
            rules[rule_of(int(quota) * 1_000 // int(period), int(weight))] += 1
    rules.pop("", None)
    return max(sorted(rules), key=lambda rule: rules[rule], default="")
