"""The overcommit service's state of one node."""

from collections.abc import Mapping

from msgspec import Struct, field

from colo_common.events.external import ExternalCapacity
from colo_common.events.node import AllocatableChanged, Capability, NodeUsageSampled, WorkloadDetail
from colo_common.events.undecoded import Undecoded
from colo_common.model.constraints import Taint
from colo_common.model.freshness import Freshness
from colo_common.model.topology import NodeTopology
from colo_overcommit.allocatable import ZoneInputs
from colo_overcommit.expected_use import ExpectedUse
from colo_overcommit.held_by_batch import HeldByBatch
from colo_overcommit.histories import VERSION, NodeHistory
from colo_overcommit.load import LoadHistory
from colo_overcommit.mid import MidInputs
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.prod_peaks import ProdPeaks
from colo_overcommit.promises import JudgedPromises
from colo_overcommit.recent_terms import RecentTerms
from colo_overcommit.reserved import Reserved
from colo_overcommit.unmanaged import UnmanagedHistory

__all__ = ["KnownNode"]


class KnownNode(Struct, kw_only=True):
    """The state of one node; only the core changes it. `samples` counts since the node (re)appeared; `inputs` are the terms of
    `sample`. `reserved` is what the node's operator keeps back, by zone.

    `possible_mcpu` is the batch CPU of the newest terms, published or not. `sampled_at_ms` is the time of arrival of `sample`.

    `watched_ms` is when it was last sampled, by the time of the FleetGuard: its age counts from there.

    `is_colocated`: its operator admits batch work.

    `normalization_pct`: CPUs of the reference machine for a hundred of its own.

    `is_changed`: topology or rules have changed since the last publication.

    `forbidden`: by whom and why an operator forbids more batch work there, "" when nobody does; `closed`: the same of new work of
    every kind. `only_observes`: nothing is written on the node, by its rules.

    `details` has of each workload of `sample` the last detail that a sample told, and when that arrived.

    `promises` are those under judgement; None without risk control. `expected` is None without an estimator.

    `mid_inputs` are the terms of the mid tier in `sample`, () where it is off; `prod_peaks` is None until a policy asks for it.

    `external` is what systems outside said of it last, at `external_at_ms`; what has expired counts no longer.

    `learned_ms` is the time of the newest sample that an estimator took; `stored_ms` and `stored_step` are when its history was
    stored and the step of its newest sample, `restored` is the history that an earlier instance stored.

    `topology_ms` is when its topology and rules were said last, `holds_ms` when its holds changed or were confirmed last,
    `forbidden_ms` since when an operator forbids batch work there; None: not known.

    `given` are the fields of `policy` that the document gives. `policy` is what the colocation policy and the settings make of its
    labels, None before its topology; `recent` are the terms of its samples of the last minutes.

    `unread` is the newest sample of a node of another instance, which nobody asked for yet; `sampled_at_ms` is its arrival then.
    Until `asked_until_ms` each of them is read at once.

    `expected_since_ms` is the time at which a node without a sample was first known. It turns lost by this time, because it may
    have died before this service started.
    """

    topology: NodeTopology | None = None
    reserved: Mapping[int, Reserved] = field(default_factory=dict)
    is_colocated: bool = True
    normalization_pct: int = 100
    is_changed: bool = False
    forbidden: str = ""
    closed: str = ""
    only_observes: bool = False
    simulated: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    sample: NodeUsageSampled | None = None
    unread: Undecoded | NodeUsageSampled | None = None
    asked_until_ms: int = 0
    details: Mapping[str, tuple[WorkloadDetail, int]] = field(default_factory=dict)
    inputs: tuple[ZoneInputs, ...] = ()
    samples: int = 0
    sampled_at_ms: int | None = None
    watched_ms: int | None = None
    expected_since_ms: int | None = None
    freshness: Freshness = Freshness.UNKNOWN
    published: AllocatableChanged | None = None
    possible_mcpu: int = 0
    last_fall_at_ms: int | None = None
    held: HeldByBatch = field(default_factory=HeldByBatch)
    load: LoadHistory = field(default_factory=LoadHistory)
    unmanaged: UnmanagedHistory = field(default_factory=UnmanagedHistory)
    promises: JudgedPromises | None = None
    expected: ExpectedUse | None = None
    policy: OvercommitPolicy | None = None
    given: frozenset[str] = frozenset()
    topology_ms: int | None = None
    holds_ms: int | None = None
    forbidden_ms: int | None = None
    mid_inputs: tuple[MidInputs, ...] = ()
    prod_peaks: ProdPeaks | None = None
    external: tuple[ExternalCapacity, ...] = ()
    external_at_ms: int = 0
    learned_ms: int = 0
    stored_ms: int = 0
    stored_step: int = 0
    restored: NodeHistory | None = None
    recent: RecentTerms = field(default_factory=RecentTerms)

    def history(self) -> NodeHistory | None:
        """What its estimators have learned, None without any."""
        if self.expected is None and self.prod_peaks is None:
            return None
        return NodeHistory(
            version=VERSION,
            at_ms=self.learned_ms,
            zones=self.expected.histories() if self.expected is not None else (),
            prod=self.prod_peaks.history() if self.prod_peaks is not None else None,
        )

    def is_old(self, sample: NodeUsageSampled) -> bool:
        """Whether a newer sample of the same boot of the collector has arrived already."""
        last = self.sample
        return last is not None and last.boot_id == sample.boot_id and sample.sample_seq <= last.sample_seq

    def accept(self, sample: NodeUsageSampled, inputs: tuple[ZoneInputs, ...], now_ms: int) -> None:
        """Make the sample the newest one. A collector that restarted warms up again."""
        restarted = self.sample is not None and self.sample.boot_id != sample.boot_id
        self.samples = 1 if restarted else self.samples + 1
        self.sample = sample
        if self.details or any(one.detail is not None for one in sample.workloads):
            self.details = _details(self.details, sample, now_ms)
        if restarted:
            # Samples of two sequences are never joined.
            self.load, self.unmanaged, self.recent = LoadHistory(), UnmanagedHistory(), RecentTerms()
        self.load.add(sample)
        self.unmanaged.add(sample, inputs, self.held)
        self.inputs = inputs
        self.recent.add(now_ms, inputs, sample)
        self.sampled_at_ms = now_ms


def _details(
    known: Mapping[str, tuple[WorkloadDetail, int]], sample: NodeUsageSampled, now_ms: int
) -> Mapping[str, tuple[WorkloadDetail, int]]:
    """The last detail of each workload of the sample."""
    found = {}
    for one in sample.workloads:
        last = known.get(one.workload) if one.detail is None else (one.detail, now_ms)
        if last is not None:
            found[one.workload] = last
    return found
