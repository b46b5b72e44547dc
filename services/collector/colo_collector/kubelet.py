"""The CPUs that the static policy of a node's kubelet pinned to pods, from the kubelet's checkpoint file.

(koordinator-sh/koordinator:pkg/koordlet/statesinformer/impl/states_noderesourcetopology.go)
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput

__all__ = ["PinnedPod", "checkpoint_policy", "pinned_cpus", "pinned_pods", "read_checkpoint"]

_CHECKPOINT_MAX_CHARACTERS: Final = 16 << 20


class PinnedPod(Struct, frozen=True, kw_only=True):
    """A pod and the CPUs that the kubelet pinned to it."""

    uid: str
    cpus: CpuSet


class _Checkpoint(Struct, frozen=True, kw_only=True, rename={"policy": "policyName"}):
    policy: str = ""
    entries: dict[str, dict[str, str]] | None = None


_DECODER: Final = msgspec.json.Decoder(_Checkpoint | None)


def read_checkpoint(text: str, field: str = "cpu_manager_state") -> dict[str, dict[str, str]]:
    """CPU lists by pod uid and container, from the kubelet's `cpu_manager_state` (version 2).

    Raises InvalidInput for other text.
    """
    if not text:
        raise InvalidInput(field, "must not be empty", text)
    if len(text) > _CHECKPOINT_MAX_CHARACTERS:
        raise InvalidInput(field, f"must be at most {_CHECKPOINT_MAX_CHARACTERS} characters", len(text))
    try:
        checkpoint = _DECODER.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(field, f"must be the kubelet's JSON: {error}", text) from error
    return {} if checkpoint is None or checkpoint.entries is None else checkpoint.entries


def checkpoint_policy(text: str) -> str:
    """The kubelet's CPU policy of its checkpoint ("none", "static"); "" for other text."""
    try:
        checkpoint = _DECODER.decode(text[:_CHECKPOINT_MAX_CHARACTERS])
    except (msgspec.MsgspecError, RecursionError):
        return ""
    return "" if checkpoint is None else checkpoint.policy


def pinned_pods(entries: Mapping[str, Mapping[str, str]]) -> tuple[PinnedPod, ...]:
    """The pods with pinned CPUs in order of uid; a CPU list that cannot be parsed counts as empty."""
    pinned: list[PinnedPod] = []
    for uid in sorted(entries):
        cpus = CpuSet()
        for text in entries[uid].values():
            cpus |= _read(text)
        if cpus:
            pinned.append(PinnedPod(uid=uid, cpus=cpus))
    return tuple(pinned)


def pinned_cpus(text: str, field: str = "kubelet_state") -> CpuSet:
    """All CPUs that the kubelet pinned, from its `cpu_manager_state`; the empty set under policy none.

    Raises InvalidInput for other text.
    """
    cpus = CpuSet()
    for pod in pinned_pods(read_checkpoint(text, field)):
        cpus |= pod.cpus
    return cpus


def _read(text: str) -> CpuSet:
    try:
        return CpuSet.parse(text)
    except InvalidInput:
        return CpuSet()
