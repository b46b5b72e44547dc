"""Group identity: what each class gets, and when nothing is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.qos import QosClass
from tests.parity.peers.group_identity import ClassIdentity, OwnIdentity, Sysctl, identity_of_workload, identity_rule

ON = identity_rule(
    lsr=ClassIdentity(is_enabled=True, identity=2),
    ls=ClassIdentity(is_enabled=True, identity=1),
    be=ClassIdentity(is_enabled=True, identity=-1),
)
OFF = identity_rule(
    lsr=ClassIdentity(is_enabled=False, identity=2),
    ls=ClassIdentity(is_enabled=False, identity=1),
    be=ClassIdentity(is_enabled=False, identity=-1),
)


@pytest.mark.parametrize(
    ("qos", "kubernetes", "wanted"),
    [
        (QosClass.LSE, "Guaranteed", 2),
        (QosClass.LSR, "Burstable", 2),
        (QosClass.LS, "BestEffort", 1),
        (QosClass.BE, "BestEffort", -1),
        (QosClass.SYSTEM, "Burstable", 1),
        (None, "Guaranteed", 2),
        (None, "Burstable", 1),
        (None, "BestEffort", -1),
        (None, "", 0),
    ],
)
def test_the_label_decides_and_else_kubernetes(qos: QosClass | None, kubernetes: str, wanted: int) -> None:
    assert identity_of_workload(ON, qos, kubernetes) == wanted


def test_guaranteed_pods_fall_back_to_ls_and_their_directory_is_always_ordinary() -> None:
    rule = identity_rule(
        lsr=ClassIdentity(is_enabled=False, identity=2),
        ls=ClassIdentity(is_enabled=True, identity=1),
        be=ClassIdentity(is_enabled=False, identity=-1),
    )
    assert rule.by_kubernetes_qos == {"Guaranteed": 1, "Burstable": 1, "BestEffort": 0}
    assert rule.by_directory == {"Guaranteed": 0, "Burstable": 1, "BestEffort": 0}


def test_another_cpu_policy_makes_everybody_ordinary() -> None:
    rule = identity_rule(
        lsr=ClassIdentity(is_enabled=True, identity=2),
        ls=ClassIdentity(is_enabled=True, identity=2),
        be=ClassIdentity(is_enabled=True, identity=-1),
        is_policy=False,
    )
    assert not rule.is_enabled
    assert set(rule.by_qos.values()) == {0}


def test_only_ls_work_speaks_for_itself() -> None:
    yields = OwnIdentity(is_enabled=True, identity=-1)
    assert identity_of_workload(ON, QosClass.LS, "Burstable", yields) == -1
    assert identity_of_workload(ON, QosClass.LS, "Burstable", OwnIdentity(is_enabled=True)) == 1
    assert identity_of_workload(ON, QosClass.LS, "Burstable", OwnIdentity(identity=2)) == 0
    assert identity_of_workload(ON, QosClass.LSR, "Burstable", yields) == 2
    assert identity_of_workload(ON, None, "Burstable", yields) == 1


@pytest.mark.parametrize(
    ("sysctl", "rule_on", "rule_off"), [("on", 2, 0), ("absent", 2, 0), ("off", 2, None), ("unreadable", None, None)]
)
def test_a_rule_that_is_off_clears_what_is_left_unless_the_kernel_is_off_too(
    sysctl: Sysctl, rule_on: int | None, rule_off: int | None
) -> None:
    assert identity_of_workload(ON, QosClass.LSR, "Guaranteed", sysctl=sysctl) == rule_on
    assert identity_of_workload(OFF, QosClass.LSR, "Guaranteed", sysctl=sysctl) == rule_off


@given(st.sampled_from([*QosClass.__members__.values(), None]), st.sampled_from(["Guaranteed", "Burstable", "x"]))
def test_nothing_is_written_without_kernel_or_rule(qos: QosClass | None, kubernetes: str) -> None:
    assert identity_of_workload(ON, qos, kubernetes, is_supported=False) is None
    assert identity_of_workload(None, qos, kubernetes) is None
