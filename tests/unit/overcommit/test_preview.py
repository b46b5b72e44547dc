"""A preview of many nodes computes an even part of them, and one that asks for nothing computes nothing."""

from __future__ import annotations

import pytest

from colo_common.events.effects import Reply, RequestReceived
from colo_common.events.policy import PolicyPreview, PreviewPolicy
from colo_common.model.colocation_policy import ColocationPolicy, PolicyValues
from colo_overcommit import preview
from colo_overcommit.core import OvercommitCore
from colo_overcommit.policy import OvercommitPolicy
from tests.support.builders import a_node, a_sample


def previewed(core: OvercommitCore, **asked: object) -> PolicyPreview:
    (reply,) = core.handle(RequestReceived(request="r", body=PreviewPolicy(**asked)), 3_000)  # type: ignore[arg-type]
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, PolicyPreview)
    return reply.body


def test_of_many_nodes_an_even_part_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "_COMPUTED_MOST", 2)
    core = OvercommitCore(OvercommitPolicy())
    for name in ("n1", "n2", "n3", "n4"):
        core.handle(a_node(name), 0)
        for seq in (1, 2):
            core.handle(a_sample(name, seq=seq, at_ms=seq * 1_000), seq * 1_000)
    half = ColocationPolicy(defaults=PolicyValues(cpu_reclaim_pct=50))
    found = previewed(core, policy=half)
    assert (found.nodes, found.of_nodes, found.changing) == (2, 4, 2)
    assert [row.node for row in found.listed] == ["n1", "n3"]
    assert found.would_cpu_mcpu < found.batch_cpu_mcpu
    assert (previewed(core, limit=0).nodes, previewed(core, limit=0).of_nodes) == (0, 4)
    # The policy in force changes nothing.
    assert (previewed(core).changing, previewed(core).listed) == (0, ())
