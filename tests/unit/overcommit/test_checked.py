"""A check finds one wrong number among few nodes in one call, and among many after enough calls."""

from __future__ import annotations

import pytest
from msgspec import structs

from colo_common.model.invalid import InvariantBroken
from colo_overcommit.core import OvercommitCore
from colo_overcommit.policy import OvercommitPolicy
from tests.support.builders import a_node, a_sample

CALLS_MOST = 40


def a_core(nodes: int) -> OvercommitCore:
    core = OvercommitCore(OvercommitPolicy())
    for number in range(nodes):
        core.handle(a_node(f"n{number:04}"), 0)
    for seq in range(1, 6):
        for number in range(nodes):
            core.handle(a_sample(f"n{number:04}", seq=seq), 1_000 * seq)
    assert all(known.published is not None for known in core.nodes.values())
    return core


def check_all(core: OvercommitCore, calls: int) -> None:
    for _ in range(calls):
        core.check()


@pytest.mark.parametrize(("nodes", "calls"), [(3, 1), (900, CALLS_MOST)])
def test_a_wrong_number_of_the_last_node_is_found(nodes: int, calls: int) -> None:
    core = a_core(nodes)
    check_all(core, calls)
    known = core.nodes[f"n{nodes - 1:04}"]
    right = known.published
    assert right is not None
    known.published = structs.replace(right, batch_cpu_mcpu=right.batch_cpu_mcpu + 1)
    with pytest.raises(InvariantBroken, match="zones do not sum to the node"):
        check_all(core, calls)
    zones = (structs.replace(right.zones[0], headroom_cpu_mcpu=right.zones[0].headroom_cpu_mcpu + 1), *right.zones[1:])
    known.published = structs.replace(right, zones=zones)
    with pytest.raises(InvariantBroken, match="the explanation does not give the published number"):
        check_all(core, calls)
    # Who is forgotten between two calls is no reason to stop.
    del core.nodes[f"n{nodes - 1:04}"]
    check_all(core, calls)


def test_of_many_nodes_one_call_checks_a_part() -> None:
    core = a_core(900)
    known = core.nodes["n0899"]
    right = known.published
    assert right is not None
    known.published = structs.replace(right, batch_cpu_mcpu=right.batch_cpu_mcpu + 1)
    core.check()
