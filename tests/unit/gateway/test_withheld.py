"""What an executor would write and does not: the gateway keeps the newest of each node, until it is over."""

from colo_common.events.enforcement import DriftCorrected, EnforcementChanged, KnobValue, NodeRecovered
from colo_common.events.fact_text import fact_text
from colo_common.model.reasons import Reason
from colo_gateway.core import GatewayCore

IDLE = KnobValue(path="colo/cpu.idle", value="1", before="0")
WOULD = DriftCorrected(node="n1", count=1, knobs=(IDLE,), observed=True)


def test_it_is_kept_until_the_executor_writes_or_starts_again() -> None:
    core = GatewayCore(event_log_size=100, trace_size=10)
    nothing = DriftCorrected(node="n1", count=0)
    for over in (DriftCorrected(node="n1", count=1, knobs=(IDLE,)), nothing, NodeRecovered(node="n1", running=())):
        core.handle(WOULD, 1)
        core.handle(NodeRecovered(node="n2", running=()), 2)
        assert core.withheld == {"n1": WOULD}
        core.handle(over, 3)
        assert core.withheld == {}


def test_the_history_says_that_nothing_was_written() -> None:
    ceiling = EnforcementChanged(
        node="n1",
        reason=Reason.ONLINE_LOAD,
        ceiling_mcpu=1_000,
        ceiling_before_mcpu=2_000,
        online_cpu_used_mcpu=500,
        target_mcpu=1_000,
        observed=True,
    )
    assert fact_text(WOULD) == "n1: would write, and leaves as they are, 1 kernel value: colo/cpu.idle = 1 (now 0)"
    assert "batch could use (nothing is written) 1 CPU" in fact_text(ceiling)
    assert GatewayCore(event_log_size=100, trace_size=10).harm.spells(1) == []
