"""By which rule the requests of pods became weights, told from the files of their groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from colo_cli.doctor import pod_weights_rows
from colo_collector.files import FileReader
from colo_collector.pod_weights import PodWeights, linear_weight, pod_weights, quadratic_weight, rule_of

LINEAR = "the linear rule (one CPU weighs 39)"
QUADRATIC = "the quadratic rule (one CPU weighs 100)"
POD = "kubepods-pod0a1b2c3d_0000_4000_8000_{:012x}.slice"


@pytest.mark.parametrize(
    ("shares", "linear", "quadratic"),
    [(0, 0, 0), (1, 1, 1), (2, 1, 1), (3, 1, 2), (1_024, 39, 100), (262_144, 10_000, 10_000)],
)
def test_shares_become_weight_by_both_rules(shares: int, linear: int, quadratic: int) -> None:
    assert (linear_weight(shares), quadratic_weight(shares)) == (linear, quadratic)


@pytest.mark.parametrize(
    ("cpu_mcpu", "weight", "rule"),
    [
        (1_000, 39, LINEAR),
        (1_000, 100, QUADRATIC),
        (4_000, 157, LINEAR),
        (4_000, 303, QUADRATIC),
        (1, 1, ""),
        (1_000, 7, "another rule"),
    ],
)
def test_the_rule_of_a_request_and_a_weight(cpu_mcpu: int, weight: int, rule: str) -> None:
    assert rule_of(cpu_mcpu, weight) == rule


def group(root: Path, path: str, cpu_max: str, weight: str) -> None:
    made = root / path
    made.mkdir(parents=True, exist_ok=True)
    (made / "cpu.max").write_text(f"{cpu_max}\n")
    (made / "cpu.weight").write_text(f"{weight}\n")


def found(root: Path) -> PodWeights:
    with FileReader() as reader:
        return pod_weights(reader.read, lambda path: reader.list_directories(f"{root}{path}"), str(root))


def test_a_kubelet_and_its_runtime_may_differ_and_what_is_not_guaranteed_says_nothing(tmp_path: Path) -> None:
    assert found(tmp_path).text() == "no guaranteed pod shows it"
    for number in range(3):
        pod = f"kubepods.slice/{POD.format(number)}"
        group(tmp_path, pod, "200000 100000", "79")
        group(tmp_path, f"{pod}/cri-containerd-{number:064x}.scope", "100000 100000", "100")
        # What nobody limits, as the container that holds the pod's namespaces, has no request that a file shows.
        group(tmp_path, f"{pod}/cri-containerd-{number + 16:064x}.scope", "max 100000", "1")
    burstable = f"kubepods.slice/kubepods-burstable.slice/{POD.format(9).replace('kubepods-', 'kubepods-burstable-')}"
    group(tmp_path, burstable, "400000 100000", "303")
    assert found(tmp_path) == PodWeights(of_pods=LINEAR, of_containers=QUADRATIC)
    assert found(tmp_path).text() == f"pods by {LINEAR}, containers by {QUADRATIC}"
    # Under v1 there are shares, which are written as they are.
    assert pod_weights_rows(str(tmp_path)) == []
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    (row,) = pod_weights_rows(str(tmp_path))
    assert (row["name"], row["present"], row["detail"]) == ("pod-weights", True, found(tmp_path).text())
