"""The settings of the executor."""

from typing import Literal

from colo_common.events.subjects import encode_node
from colo_common.model.cpu_topology import CpuTopology
from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import UNRULED, NodeRules
from colo_common.model.withheld import withheld_cpus
from colo_common.runtime.settings import Common
from colo_executor.attach import check_attachable
from colo_executor.bandwidth import BandwidthPolicy
from colo_executor.core import ExecutorPolicy
from colo_executor.desired import check_desired
from colo_executor.disk_limits import check_disk_limits
from colo_executor.freeze import FreezePolicy
from colo_executor.knobs import quota_us
from colo_executor.lease import LeasePolicy
from colo_executor.process.device_files import check_patterns
from colo_executor.process.machine import account_of_name
from colo_executor.process.run_as import check_users
from colo_executor.process.settings import ProcessPolicy
from colo_executor.reflex_policy import ReflexPolicy
from colo_executor.slo import SloPolicy
from colo_executor.stall import StallPolicy
from colo_executor.suppress import SuppressPolicy, bounds_mcpu
from colo_executor.unmanaged import check_unmanaged

__all__ = ["ExecutorSettings"]


class ExecutorSettings(Common, frozen=True, kw_only=True):
    """`node` is the name under which the node is known ("": this machine's host name).

    `period_ms` is the time between two fast readings while batch work runs. After `blind_ms` without a reading batch work gets
    the floor. `rule`, `suppress`, `stall`, `slo` and `bandwidth` say when the reflex shrinks batch work, `freeze` when it freezes
    it. Every `reconcile_ms` all written values are read, and put back where another program changed them. `observe` lists the
    rules that decide and say what they would do, and write and end nothing: `ceiling` the reflex, its freezes among it, `freeze`
    these alone, `drift` what puts values back, `unmanaged` what `process_unmanaged` says of groups of others, `disk` the ends of
    what takes too much of the disk. When the reflex has not run for `watchdog_ms` (0: nobody looks) a second process gives batch
    work the floor. `on_exit` decides what a SIGTERM does: `leave` keeps replicas running, at the floor, until the next executor
    adopts them; `restore` ends them and puts the kernel back. `online` False refuses work of the classes LSE, LSR and LS. `rules`
    are the operator's rules of this node; the executor reads of them which CPUs no placed work may use. The collector has
    settings of the same names: COLO_ONLINE and COLO_RULES_... set both.
    """

    node: str = ""
    period_ms: int = 20
    blind_ms: int = 1_000
    reconcile_ms: int = 10_000
    rule: Literal["auto", "usage", "stall"] = "auto"
    observe: tuple[Literal["ceiling", "drift", "freeze", "disk", "unmanaged"], ...] = ()
    watchdog_ms: int = 1_000
    on_exit: Literal["leave", "restore"] = "leave"
    suppress: SuppressPolicy = SuppressPolicy()
    stall: StallPolicy = StallPolicy()
    slo: SloPolicy = SloPolicy()
    bandwidth: BandwidthPolicy = BandwidthPolicy()
    freeze: FreezePolicy = FreezePolicy()
    lease: LeasePolicy = LeasePolicy()
    orders: ExecutorPolicy = ExecutorPolicy()
    process: ProcessPolicy = ProcessPolicy()
    online: bool = True
    rules: NodeRules = UNRULED

    def validate(self) -> None:
        """Raise InvalidInput when a number has no meaning or the node's name cannot be one."""
        if self.node:
            encode_node(self.node)
        if not 5 <= self.period_ms <= 60_000:
            raise InvalidInput("period_ms", "must be from 5 to 60000", self.period_ms)
        if self.watchdog_ms and not max(500, 10 * self.period_ms) <= self.watchdog_ms <= 60_000:
            rule = "must be 0, or from 500 and ten times period_ms to 60000"
            raise InvalidInput("watchdog_ms", rule, self.watchdog_ms)
        if not 100 <= self.reconcile_ms <= 3_600_000:
            raise InvalidInput("reconcile_ms", "must be from 100 to 3600000", self.reconcile_ms)
        if self.orders.unconfirmed_ms and not 60_000 <= self.orders.unconfirmed_ms <= 86_400_000:
            rule = "must be 0, or from 60000 to 86400000"
            raise InvalidInput("orders_unconfirmed_ms", rule, self.orders.unconfirmed_ms)
        if not 0 < self.process.window_ms <= 10_000:
            raise InvalidInput("process_window_ms", "must be from 1 to 10000", self.process.window_ms)
        if not 4_096 <= self.process.output_most_bytes <= 1 << 40:
            raise InvalidInput(
                "process_output_most_bytes", "must be from 4096 to 1 TiB", self.process.output_most_bytes
            )
        if not 0 <= self.process.attempts_kept <= 100_000:
            raise InvalidInput("process_attempts_kept", "must be from 0 to 100000", self.process.attempts_kept)
        if not 0 <= self.process.attempts_kept_bytes <= 1 << 50:
            rule = "must be from 0 to 1 PiB"
            raise InvalidInput("process_attempts_kept_bytes", rule, self.process.attempts_kept_bytes)
        if not 1 <= self.process.launch_most_s <= 600:
            raise InvalidInput("process_launch_most_s", "must be from 1 to 600", self.process.launch_most_s)
        hygiene = self.process.hygiene
        for name, score in (("batch", hygiene.batch_oom_score_adj), ("online", hygiene.online_oom_score_adj)):
            if not -1_000 <= score <= 1_000:
                raise InvalidInput(f"process_hygiene_{name}_oom_score_adj", "must be from -1000 to 1000", score)
        if hygiene.open_files_most < 64 or hygiene.core_bytes_most < 0:
            rule = "must be at least 64, and process_hygiene_core_bytes_most at least 0"
            raise InvalidInput("process_hygiene_open_files_most", rule, hygiene.open_files_most)
        check_desired(self.process.desired, "process_desired")
        check_patterns(self.process.device_files, "process_device_files")
        check_users(self.process.users, account_of_name)
        check_disk_limits(self.process.disk_limits)
        if not 1 <= self.process.disk_every_s <= 3_600:
            raise InvalidInput("process_disk_every_s", "must be from 1 to 3600", self.process.disk_every_s)
        check_unmanaged(self.process.unmanaged, self.process.subtree, "process_unmanaged")
        check_attachable(self.process.attach, self.process.subtree, "process_attach")
        self.reflex_policy().validate()
        for name in ("reserved_cpus", "kubelet_reserved_cpus", "system_cpus"):
            CpuSet.parse(getattr(self.rules, name), f"rules_{name}")

    def withheld_cpus(self, machine: CpuTopology) -> CpuSet:
        """The CPUs of this machine that no placed work may use, by the rule that every service counts by."""
        return withheld_cpus(self.rules, machine)

    def floor_us(self, capacity_mcpu: int) -> int:
        """The quota of batch work at its floor, on a machine of that capacity."""
        return quota_us(bounds_mcpu(self.suppress, capacity_mcpu)[0])

    def reflex_policy(self) -> ReflexPolicy:
        """The policy of the reflex. `blind_ms` is at least ten periods, so that single failed readings do not count as blind."""
        blind_ms = max(self.blind_ms, 10 * self.period_ms)
        return ReflexPolicy(
            rule=self.rule,
            suppress=self.suppress,
            stall=self.stall,
            lease=self.lease,
            slo=self.slo,
            bandwidth=self.bandwidth,
            freeze=self.freeze,
            blind_ms=blind_ms,
        )
