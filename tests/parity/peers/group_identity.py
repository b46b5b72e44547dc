"""Group identity (cpu.bvt_warp_ns): which groups the scheduler of Anolis kernels prefers, and which it holds back.

2 preempts at once, 0 is ordinary, -1 yields to everybody
(koordinator-sh/koordinator:pkg/koordlet/runtimehooks/hooks/groupidentity/).

For comparing with what others write: the executor writes the values of this rule's classes by tier, where the kernel has the
file and no cpu.idle.
"""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from colo_common.model.qos import QosClass

__all__ = ["ClassIdentity", "IdentityRule", "OwnIdentity", "Sysctl", "identity_of_workload", "identity_rule"]

Sysctl = Literal["on", "off", "absent", "unreadable"]
"""`kernel.sched_group_identity_enabled`. Absent on older kernels, where the feature is always on."""

ORDINARY: Final = 0


class ClassIdentity(Struct, frozen=True, kw_only=True):
    """What the node's policy says of a class."""

    is_enabled: bool
    identity: int = ORDINARY


class OwnIdentity(Struct, frozen=True, kw_only=True):
    """What a workload says of itself (annotation `koordinator.sh/cpuQOS`); only LS work is heard."""

    is_enabled: bool = False
    identity: int | None = None


class IdentityRule(Struct, frozen=True, kw_only=True):
    """Identities by class, by Kubernetes class for the directories above the pods, and for pods whose labels say nothing."""

    is_enabled: bool
    by_qos: Mapping[QosClass, int]
    by_directory: Mapping[str, int]
    by_kubernetes_qos: Mapping[str, int]


def identity_rule(*, lsr: ClassIdentity, ls: ClassIdentity, be: ClassIdentity, is_policy: bool = True) -> IdentityRule:
    """The node's rule; `is_policy` False: the node tells classes apart by other means, and all are ordinary.

    A class that is not enabled is ordinary. LSE counts as LSR. The Guaranteed directory is always ordinary, because the kernel
    knows nothing else there; Guaranteed pods without a label are LSR if that is enabled, else LS.
    """
    has_lsr, has_ls, has_be = (is_policy and each.is_enabled for each in (lsr, ls, be))
    lsr_value = lsr.identity if has_lsr else ORDINARY
    ls_value = ls.identity if has_ls else ORDINARY
    be_value = be.identity if has_be else ORDINARY
    return IdentityRule(
        is_enabled=has_lsr or has_ls or has_be,
        by_qos={QosClass.LSE: lsr_value, QosClass.LSR: lsr_value, QosClass.LS: ls_value, QosClass.BE: be_value},
        by_directory={"Guaranteed": ORDINARY, "Burstable": ls_value, "BestEffort": be_value},
        by_kubernetes_qos={
            "Guaranteed": lsr_value if has_lsr else ls_value,
            "Burstable": ls_value,
            "BestEffort": be_value,
        },
    )


def identity_of_workload(
    rule: IdentityRule | None,
    qos: QosClass | None,
    kubernetes_qos: str,
    own: OwnIdentity | None = None,
    *,
    is_supported: bool = True,
    sysctl: Sysctl = "absent",
) -> int | None:
    """The value to write, or None to write nothing.

    Nothing where the kernel lacks the file, while there is no rule, when the sysctl cannot be read, and when both rule and sysctl
    are off. With the rule off and the sysctl on, ordinary is written, so that nothing old stays. An LS workload's own identity
    wins over that of its class, and one that does not enable it is ordinary.
    """
    if not is_supported or rule is None or sysctl == "unreadable":
        return None
    if not rule.is_enabled and sysctl == "off":
        return None
    if own is not None and qos is QosClass.LS:
        if not own.is_enabled:
            return ORDINARY
        if own.identity is not None:
            return own.identity
    if qos is not None and qos in rule.by_qos:
        return rule.by_qos[qos]
    return rule.by_kubernetes_qos.get(kubernetes_qos, ORDINARY)
