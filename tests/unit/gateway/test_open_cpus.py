"""Own CPUs that others may use: the gateway keeps what each node said last, and says what to do."""

from colo_common.events.enforcement import NodeRecovered, OwnCpusOpened
from colo_common.events.fact_text import fact_text
from colo_gateway.core import GatewayCore
from colo_gateway.findings import findings_of
from tests.unit.gateway.test_recent import FLEET, NOTHING, UNMEASURED

HOUR_MS = 3_600_000
OPEN = OwnCpusOpened(at_ms=HOUR_MS, node="n1", cpus="2-3", groups=("system.slice", "user.slice"))


def test_it_is_kept_until_it_is_over_or_nobody_says_it_any_more() -> None:
    core = GatewayCore(event_log_size=100, trace_size=10)
    for over in (OwnCpusOpened(at_ms=HOUR_MS, node="n1"), NodeRecovered(node="n1", running=())):
        core.handle(OPEN, HOUR_MS)
        core.handle(NodeRecovered(node="n2", running=()), HOUR_MS)
        assert core.open_cpus_at(3 * HOUR_MS) == {"n1": OPEN}
        assert core.open_cpus_at(3 * HOUR_MS + 1) == {}
        core.handle(over, HOUR_MS)
        assert core.open_cpus_at(HOUR_MS) == {}


def test_it_is_a_finding_and_a_sentence_that_says_what_to_do() -> None:
    what = "n1: processes of system.slice, user.slice may run on CPUs 2-3, which LSE or LSR work has as its own"
    (one,) = findings_of([], FLEET, [], NOTHING, UNMEASURED, {"n1": OPEN})
    assert (one.what, one.do) == (what, "colo get node n1")
    (two,) = findings_of([], FLEET, [], NOTHING, UNMEASURED, {"n2": OPEN, "n1": OPEN})
    assert two.what == f"{what} (and 1 more nodes)"
    do = (
        "name these groups with clear_of_own_cpus: true in process_unmanaged of the node's executor "
        "(in Kubernetes executor.unmanaged of the chart), and start it again"
    )
    assert fact_text(OPEN) == f"{what}: {do}"
    assert fact_text(OwnCpusOpened(node="n1")) == "n1: the CPUs of LSE and LSR work are its alone"
