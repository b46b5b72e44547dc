"""The published usage of a node, and when usage alone causes a publication."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from colo_common.events.effects import Publish
from colo_common.events.node import AllocatableChanged, LoadSummary, WorkloadUsage
from colo_common.model.percentile import percentile
from colo_common.model.qos import PriorityBand, QosClass
from colo_overcommit.core import OvercommitCore
from colo_overcommit.load import HOUR_MS, STEP_MS, WINDOWS_MS, LoadHistory
from colo_overcommit.policy import OvercommitPolicy
from tests.support.builders import GIB, a_batch_workload, a_node, a_sample, a_topology
from tests.support.profiles import examples

DAY_MS = 24 * HOUR_MS
SLICE_MS = WINDOWS_MS[-1]


def kept_of(times: list[int], values: list[int]) -> list[tuple[int, int]]:
    """The newest sample of each step, literally."""
    by_step = {at_ms // STEP_MS: (at_ms, value) for at_ms, value in zip(times, values, strict=True)}
    return [by_step[step] for step in sorted(by_step)]


def average(kept: list[tuple[int, int]], end_ms: int, window_ms: int) -> int:
    inside = [value for at_ms, value in kept if end_ms - window_ms < at_ms <= end_ms]
    return sum(inside) // len(inside)


@examples(0.6)
@given(
    st.lists(
        st.tuples(st.sampled_from([1_000, 7_000, 10_000, 65_000, 290_000, 1_000_000]), st.integers(0, 9)),
        min_size=1,
        max_size=60,
    )
)
def test_windows_and_peaks_are_those_of_the_kept_samples(steps: list[tuple[int, int]]) -> None:
    history, times, values = LoadHistory(), [], []
    at_ms = 10 * DAY_MS
    for wait_ms, mcpu in steps:
        at_ms += wait_ms
        times.append(at_ms)
        values.append(mcpu)
        sample = a_sample(zones=((mcpu, 1),), at_ms=at_ms)
        history.add(sample)
        summary = history.summary(sample)
        kept = kept_of(times, values)
        for window in summary.windows:
            inside = [value for when, value in kept if when > at_ms - window.window_ms]
            assert window.cpu_avg_mcpu == sum(inside) // len(inside)
            assert window.cpu_p95_mcpu == percentile(inside, 95)
            for pct, percentile_mcpu in (
                (50, window.cpu_p50_mcpu),
                (90, window.cpu_p90_mcpu),
                (99, window.cpu_p99_mcpu),
            ):
                assert percentile_mcpu == min(
                    value for value in inside if 100 * sum(other <= value for other in inside) >= pct * len(inside)
                )
            assert window.memory_avg_bytes == window.memory_p95_bytes == GIB
        # A slice of the clock is closed by the first sample behind it; it counts at the time of its last sample.
        ends = [when for when, after in pairwise(times) if when // SLICE_MS != after // SLICE_MS]
        peaks = [(end, average([pair for pair in kept if pair[0] <= end], end, SLICE_MS)) for end in ends]
        now = average(kept, at_ms, SLICE_MS)
        hour, day = summary.peaks
        assert hour.cpu_mcpu == max([now, *(peak for end, peak in peaks if end > at_ms - HOUR_MS)])
        assert day.cpu_mcpu >= max([now, *(peak for end, peak in peaks if end > at_ms - DAY_MS)])


def test_a_clock_that_is_set_back_a_little_changes_nothing_and_far_clears_the_history() -> None:
    history = LoadHistory()
    for at_ms, mcpu in ((DAY_MS, 10), (DAY_MS + STEP_MS, 30), (DAY_MS, 900)):
        history.add(a_sample(zones=((mcpu, 1),), at_ms=at_ms))
    assert history.summary(a_sample()).windows[0].cpu_avg_mcpu == 20
    history.add(a_sample(zones=((7, 1),), at_ms=0))
    assert history.summary(a_sample()).windows[-1].cpu_p95_mcpu == 7


class Published:
    """A core that knows one fresh node of 8 CPUs, and the loads that it tells."""

    def __init__(self, policy: OvercommitPolicy | None = None) -> None:
        self.core = OvercommitCore(policy or OvercommitPolicy())
        self.core.handle(a_node("n1", a_topology(cpus=4)), 0)
        self.seq = 0

    def sample(self, at_ms: int, mcpu: int, batch_mcpu: int = 0, boot_id: str = "b1") -> LoadSummary | None:
        """Take a sample with this usage of batch work, which does not move the allocatable; return the published load."""
        self.seq += 1
        work = (
            WorkloadUsage(
                workload="web", qos=QosClass.LS, band=PriorityBand.PROD, cpu_used_mcpu=mcpu, memory_used_bytes=GIB
            ),
            a_batch_workload(mcpu=batch_mcpu, zones=(0, 1)),
        )
        used = (mcpu + batch_mcpu) // 2
        sample = a_sample(
            "n1", seq=self.seq, zones=((used, 1), (used, 1)), workloads=work, boot_id=boot_id, at_ms=at_ms
        )
        for effect in self.core.handle(sample, at_ms):
            if isinstance(effect, Publish) and isinstance(effect.fact, AllocatableChanged):
                assert effect.fact.sample_seq == self.seq
                return effect.fact.load
        return None

    def warm(self) -> int:
        """Take samples until the first publication; return its time."""
        for at_ms in range(0, 100_000, 1_000):
            if self.sample(at_ms, 1_000) is not None:
                return at_ms
        raise AssertionError("nothing was published")


def test_the_load_is_the_samples_own_with_the_usage_of_prod_work() -> None:
    node = Published()
    at_ms = node.warm()
    load = node.sample(at_ms + 20_000, 1_000, 2_000)
    assert load is not None
    assert (load.cpu_used_mcpu, load.prod_cpu_used_mcpu) == (3_000, 1_000)


def test_load_that_moved_alone_is_published_but_not_oftener_than_it_may() -> None:
    node = Published()
    at_ms = node.warm()
    assert node.sample(at_ms + 1_000, 1_000, 2_000) is None
    assert node.sample(at_ms + 9_999, 1_000, 2_000) is None
    assert node.sample(at_ms + 10_000, 1_000, 700) is None
    assert node.sample(at_ms + 11_000, 1_000, 800) is not None
    assert node.sample(at_ms + 20_999, 1_000, 4_000) is None
    assert node.sample(at_ms + 21_000, 1_000, 4_000) is not None


def test_load_alone_is_not_published_where_the_operator_turned_that_off() -> None:
    node = Published(OvercommitPolicy(load_pct=0))
    at_ms = node.warm()
    assert node.sample(at_ms + 30_000, 1_000, 6_000) is None


def test_samples_before_a_restart_of_the_collector_do_not_count() -> None:
    node = Published()
    node.warm()
    for at_ms in range(200_000, 300_000, 1_000):
        load = node.sample(at_ms, 3_000, boot_id="b2")
        if load is not None:
            assert load.windows[-1].cpu_avg_mcpu == load.peaks[-1].cpu_mcpu == 3_000
            return
    raise AssertionError("nothing was published")
