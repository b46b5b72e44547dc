"""The promises of one node under judgement: what was promised, whether it was kept for the take-back time, and the share broken."""

from collections import deque
from collections.abc import Iterable, Sequence

from msgspec import Struct

from colo_common.events.node import PromiseRisk, ResourceRisk, ZoneAllocatable
from colo_common.model.placement import ZoneShare
from colo_overcommit.allocatable import ZoneInputs, with_reclaim
from colo_overcommit.policy import OvercommitPolicy
from colo_overcommit.risk import JUDGED_AT_ONCE, Margin, RiskPolicy, broken_most_ratio, moved_by

__all__ = ["JudgedPromises", "promises_of"]

_HOUR_MS = 3_600_000
_HOURS_KEPT = 24


class _Promise(Struct):
    """What was promised: zone -> mcpu or bytes. `weight_pct`: the part of the take-back time since the promise before it.

    `seen`: a later sample has come.
    """

    at_ms: int
    amounts: dict[int, int]
    weight_pct: int
    seen: bool = False


class _Hour(Struct):
    """The promises that were judged in one hour of the clock."""

    hour: int
    judged: int = 0
    broken: int = 0


class _Resource:
    """The promises of one resource of the node, the margin that follows from them, and the counts of the last 24 hours."""

    __slots__ = ("_hours", "_open", "_promised_ms", "margin")

    def __init__(self, margin_pct: int) -> None:
        self.margin = Margin(millionths=margin_pct * 10_000)
        self._open: deque[_Promise] = deque()
        self._promised_ms = 0
        self._hours: deque[_Hour] = deque()

    def judge(self, room: dict[int, int], now_ms: int, take_back_ms: int, policy: RiskPolicy) -> None:
        """End the promises that `room` (zone -> what could be given now) breaks, and those that were kept for long enough.

        A promise is broken by the first sample that cannot keep it, and kept when its time is over. Of a promise whose time went by
        without a sample nothing is known: it is not counted.
        """
        still: deque[_Promise] = deque()
        for promise in self._open:
            if not 0 <= now_ms - promise.at_ms <= take_back_ms:
                if promise.seen and now_ms > promise.at_ms:
                    self._count(promise, False, now_ms, policy)
            elif any(room.get(zone, 0) < amount for zone, amount in promise.amounts.items()):
                self._count(promise, True, now_ms, policy)
            else:
                promise.seen = True
                still.append(promise)
        self._open = still

    def promise(self, amounts: dict[int, int], now_ms: int, take_back_ms: int) -> None:
        """Take down what is promised now, unless nothing is, or the last promise is younger than an eighth of its time."""
        since_ms = min(max(now_ms - self._promised_ms, 0), take_back_ms) if self._promised_ms else take_back_ms
        if amounts and since_ms >= take_back_ms // JUDGED_AT_ONCE:
            self._open.append(_Promise(at_ms=now_ms, amounts=amounts, weight_pct=100 * since_ms // take_back_ms))
            self._promised_ms = now_ms

    def forget(self) -> None:
        """Judge nothing that was promised before: its samples are not comparable with the next ones."""
        self._open.clear()

    def restore(self, risk: ResourceRisk, now_ms: int) -> None:
        """Go on from what another instance published last."""
        self.margin.millionths = risk.margin_millionths
        if risk.judged:
            self._hours.append(_Hour(hour=now_ms // _HOUR_MS, judged=risk.judged, broken=risk.broken))

    def risk(self, now_ms: int) -> ResourceRisk:
        """The margin and the counts as they are published."""
        self._expire(now_ms)
        judged, broken = sum(hour.judged for hour in self._hours), sum(hour.broken for hour in self._hours)
        return ResourceRisk(
            margin_millionths=self.margin.millionths,
            judged=judged,
            broken=broken,
            broken_most_ratio=round(broken_most_ratio(broken, judged), 4),
        )

    def _count(self, promise: _Promise, is_broken: bool, now_ms: int, policy: RiskPolicy) -> None:
        self.margin.judged(is_broken, promise.weight_pct, policy)
        number = now_ms // _HOUR_MS
        if not self._hours or self._hours[-1].hour != number:
            self._hours.append(_Hour(hour=number))
        hour = self._hours[-1]
        hour.judged += 1
        hour.broken += is_broken
        self._expire(now_ms)

    def _expire(self, now_ms: int) -> None:
        newest = now_ms // _HOUR_MS
        while self._hours and not newest - _HOURS_KEPT < self._hours[0].hour <= newest:
            self._hours.popleft()


class JudgedPromises:
    """The promises of one node: `judge` each sample before its number is computed, `promise` after it was published."""

    __slots__ = ("_cpu", "_memory", "is_restored")

    def __init__(self, cpu_margin_pct: int, memory_margin_pct: int) -> None:
        self._cpu = _Resource(cpu_margin_pct)
        self._memory = _Resource(memory_margin_pct)
        self.is_restored = False
        """Whether another instance's margin was taken over."""

    @property
    def reclaim_pct(self) -> tuple[int, int]:
        """The reclaim percentages that the margins leave: of CPU and of memory."""
        return 100 - self._cpu.margin.pct, 100 - self._memory.margin.pct

    def judge(self, inputs: Iterable[ZoneInputs], now_ms: int, take_back_ms: int, policy: RiskPolicy) -> None:
        """Judge what was promised by a sample's terms."""
        cpu, memory = {}, {}
        for zone in inputs:
            cpu[zone.zone] = zone.cpu.normalized(zone.cpu.left)
            memory[zone.zone] = zone.memory.left
        self._cpu.judge(cpu, now_ms, take_back_ms, policy)
        self._memory.judge(memory, now_ms, take_back_ms, policy)

    def judged(
        self, inputs: tuple[ZoneInputs, ...], now_ms: int, take_back_ms: int, policy: RiskPolicy
    ) -> tuple[ZoneInputs, ...]:
        """Judge what was promised by a sample's terms, and return them with the margins that follow."""
        self.judge(inputs, now_ms, take_back_ms, policy)
        return with_reclaim(inputs, *self.reclaim_pct, moved_by(policy, take_back_ms))

    def promise(
        self, zones: Sequence[ZoneAllocatable], held: dict[int, ZoneShare], now_ms: int, take_back_ms: int
    ) -> None:
        """Take down the numbers in force. A zone where no more than is held is promised makes no new promise."""
        cpu, memory = {}, {}
        for zone in zones:
            share = held.get(zone.zone)
            if zone.batch_cpu_mcpu > (share.cpu_mcpu if share else 0):
                cpu[zone.zone] = zone.batch_cpu_mcpu
            if zone.batch_memory_bytes > (share.memory_bytes if share else 0):
                memory[zone.zone] = zone.batch_memory_bytes
        self._cpu.promise(cpu, now_ms, take_back_ms)
        self._memory.promise(memory, now_ms, take_back_ms)

    def forget(self) -> None:
        """Judge nothing that was promised before the collector restarted or the node was lost."""
        self._cpu.forget()
        self._memory.forget()

    def restore(self, risk: PromiseRisk, now_ms: int) -> None:
        """Go on from what another instance published last, once."""
        if not self.is_restored:
            self._cpu.restore(risk.cpu, now_ms)
            self._memory.restore(risk.memory, now_ms)
            self.is_restored = True

    def risk(self, now_ms: int, take_back_ms: int, policy: RiskPolicy) -> PromiseRisk:
        """What is published with the node's numbers."""
        return PromiseRisk(
            target_ratio=policy.target_ratio,
            take_back_ms=take_back_ms,
            cpu=self._cpu.risk(now_ms),
            memory=self._memory.risk(now_ms),
        )


def promises_of(policy: OvercommitPolicy) -> JudgedPromises | None:
    """The promises of a node that nobody promised anything yet; None without risk control."""
    if not policy.risk.is_on:
        return None
    least, most = policy.risk.least_margin_pct, policy.risk.most_margin_pct
    margins = (100 - policy.cpu_reclaim_pct, 100 - policy.memory_reclaim_pct)
    return JudgedPromises(*(min(max(margin, least), most) for margin in margins))
