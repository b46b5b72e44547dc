"""A node with two victims on their way out is found: among few nodes in one call, among many after enough calls."""

from __future__ import annotations

import pytest

from colo_common.model.invalid import InvariantBroken
from colo_evictor.core import EvictorCore
from colo_evictor.policy import EvictorPolicy
from tests.support.builders import a_node, a_topology

MACHINE = a_topology(sockets=1, zones_per_socket=1, cpus=2)


@pytest.mark.parametrize(("nodes", "calls"), [(3, 1), (30_000, 3)])
def test_two_victims_on_the_last_node_are_found(nodes: int, calls: int) -> None:
    core = EvictorCore(EvictorPolicy())
    for number in range(nodes):
        core.handle(a_node(f"n{number}", MACHINE), 0)
    for _ in range(calls):
        core.check()
    terminating: dict[str, object] = dict.fromkeys(("a/t/0#1", "b/t/0#1"))
    core.nodes[f"n{nodes - 1}"].terminating = terminating  # type: ignore[assignment]
    with pytest.raises(InvariantBroken, match="more than one victim"):
        check_all(core, calls)


def check_all(core: EvictorCore, calls: int) -> None:
    for _ in range(calls):
        core.check()
