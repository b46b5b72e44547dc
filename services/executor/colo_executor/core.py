"""The executor core: turns commands and results into launches, signals and facts about the attempts of one node."""

from collections.abc import Sequence
from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from colo_common.events.effects import Effect, Publish, Wake
from colo_common.events.enforcement import NodeRecovered, PlacementRefused, ReplicaEnded, ReplicaStarted
from colo_common.events.eviction import EvictReplica
from colo_common.events.fact import Fact
from colo_common.events.job import StopReplicas
from colo_common.events.node import LeaseRenewed, NodeFactsWanted, NodeTopologyReported, NodeUsageSampled
from colo_common.events.placement import ApplyPlacements
from colo_common.events.restriction import RestrictionsChanged
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.placement import UNKNOWN_CPUS, Placement, attempt_key
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.received_fences import ReceivedFences
from colo_common.model.slo import worst_online_violation
from colo_executor.attached_groups import AttachedGroups
from colo_executor.attempt import KILL_RETRY_MS, KILLS_MOST, AttemptPhase, ReplicaAttempt, job_of, refusal_of, signal_of
from colo_executor.ceiling_publisher import CeilingPublisher
from colo_executor.drift import DriftReporter
from colo_executor.ended import Ended
from colo_executor.kept_cpus import KeptCpus, kept_of
from colo_executor.local import (
    Adopted,
    CeilingMoved,
    DiskOverused,
    Drift,
    FrozenMoved,
    KeepCpus,
    LaunchFailed,
    LaunchReplica,
    LocateDevices,
    NoteMode,
    NoteViolation,
    RememberEnd,
    RememberPlacement,
    RememberTerm,
    RenewLease,
    ReplicaExited,
    ReplicaLaunched,
    ReplicasSuspended,
    SignalReplica,
    StopIntent,
)
from colo_executor.located_devices import DeviceAddress, located_devices
from colo_executor.online import is_online, not_admitted
from colo_executor.open_cpus import OpenCpus, OpenCpusPublisher
from colo_executor.order_terms import OrderTerms, order_of
from colo_executor.suspension import Suspension
from colo_executor.unconfirmed import Unconfirmed

__all__ = ["Executor", "ExecutorEvent", "ExecutorPolicy"]

ExecutorEvent = (
    ApplyPlacements
    | StopReplicas
    | EvictReplica
    | LeaseRenewed
    | NodeUsageSampled
    | ReplicaLaunched
    | LaunchFailed
    | ReplicaExited
    | DiskOverused
    | CeilingMoved
    | FrozenMoved
    | Drift
    | OpenCpus
    | Adopted
    | RestrictionsChanged
    | NodeTopologyReported
    | NodeFactsWanted
    | ReplicasSuspended
    | Wake
)


_AHEAD_MOST_MS = 86_400_000
# The grace of what fills the disk: it may write for as long.
_OVERUSED_GRACE_MS = 1_000


class ExecutorPolicy(Struct, frozen=True, kw_only=True):
    """Limits of the core. A ceiling is published when it differs by `publish_band_pct`, at most once in `publish_interval_ms`.

    A command whose time is within `command_lease_ms` of now renews the lease. `ended_kept` ended attempts are remembered; those
    that ended within `retell_ms` before a restart are published again. A replica that no order named for `unconfirmed_ms` is said
    to run once more (0: never).
    """

    replicas_most: int = 1_000
    grace_most_ms: int = 600_000
    ended_kept: int = 4_096
    publish_band_pct: int = 2
    publish_interval_ms: int = 1_000
    command_lease_ms: int = 15_000
    retell_ms: int = 600_000
    unconfirmed_ms: int = 1_500_000


class Executor:
    """Owns the attempts of one node. Every placement is started and ends, or is refused, exactly once."""

    def __init__(
        self,
        node: str,
        policy: ExecutorPolicy,
        *,
        colocation_mode: Literal["container", "vm"] = "container",
        only_observes: bool = False,
    ) -> None:
        """`colocation_mode` is that of the node's rules, until a collector reports them. `only_observes`: nothing is written here,
        and every move of the ceiling is published as if batch work ran.
        """
        self.node = node
        self._mode = colocation_mode
        self._only_observes = only_observes
        self.policy = policy
        self.active: dict[str, ReplicaAttempt] = {}
        self.waiting: dict[str, Placement] = {}
        self._terms = OrderTerms()
        self._fences = ReceivedFences()
        self._renewed_ms = 0
        self._kept: KeptCpus | None = None
        self._devices: tuple[DeviceAddress, ...] = ()
        self.ended = Ended(policy.ended_kept)
        self.suspension = Suspension(node)
        self._unconfirmed = Unconfirmed(policy.unconfirmed_ms)
        self._attached = AttachedGroups(node)
        self._drifts = DriftReporter(node)
        self._open_cpus = OpenCpusPublisher(node)
        self._publisher = CeilingPublisher(
            node, band_pct=policy.publish_band_pct, interval_ms=policy.publish_interval_ms
        )

    def handle(self, event: ExecutorEvent, now_ms: int) -> list[Effect]:
        """The only way in. A command for another node raises InvalidInput and changes nothing."""
        match event:
            case ApplyPlacements():
                return self._command(event, event.node, now_ms) + self._apply_all(event, now_ms)
            case StopReplicas():
                order = order_of("stop", event.partition, event.partitions)
                effects = [*self._command(event, event.node, now_ms), *self._in_term(order, event.generation, now_ms)]
                for stop in event.stops:
                    intent = self._intent(EndCause.STOPPED, stop.reason, stop.grace_ms, now_ms)
                    effects += self._stop(stop.replica, stop.attempt, intent, now_ms)
                return effects
            case EvictReplica():
                effects = [*self._command(event, event.node, now_ms), *self._in_term("evict", event.generation, now_ms)]
                intent = self._intent(EndCause.EVICTED, event.reason, event.grace_ms, now_ms, event.eviction)
                return effects + self._stop(event.replica, event.attempt, intent, now_ms)
            case LeaseRenewed():
                is_believed = event.node == self.node and self._fences.admits(event.node, event.fence, now_ms)
                if not is_believed:
                    return []
                self._renewed_ms = max(event.at_ms, event.fence)
                return [RenewLease(lease_ms=event.lease_ms)]
            case NodeUsageSampled():
                return self._sampled(event)
            case ReplicaLaunched():
                return self._launched(event, now_ms)
            case LaunchFailed():
                return self._launch_failed(event, now_ms)
            case ReplicaExited():
                return self._exited(event, now_ms)
            case DiskOverused():
                return self._overused(event, now_ms)
            case CeilingMoved():
                self._publisher.note(event)
                return [*self._publisher.publish_due(self._has_batch(), now_ms)]
            case FrozenMoved():
                return [*self._publisher.frozen(event, now_ms)]
            case Drift():
                return [*self._drifts.report(event, now_ms)]
            case OpenCpus():
                return [*self._open_cpus.follow(event, now_ms)]
            case Adopted():
                return self._adopt(event, now_ms)
            case RestrictionsChanged():
                return self.suspension.changed(event, self.active, now_ms)
            case NodeTopologyReported():
                return self._reported(event)
            case NodeFactsWanted():
                return self._say_again(now_ms) if event.node == self.node else []
            case ReplicasSuspended():
                return self.suspension.done(event, now_ms)
            case Wake():
                return [
                    *self.suspension.wake(self.active, now_ms),
                    *self._kill_due(now_ms),
                    *self._publisher.publish_due(self._has_batch(), now_ms),
                    *self._started_again([self.active[name] for name in self._unconfirmed.due(now_ms)], now_ms),
                ]
            case _:
                assert_never(event)

    def deadline_ms(self) -> int | None:
        """The time of the next SIGKILL, the next fact about the ceiling or an unconfirmed replica, or the end of a restriction."""
        due = [attempt.next_kill_ms for attempt in self.active.values() if attempt.next_kill_ms is not None]
        publish_ms = self._publisher.due_ms(self._has_batch())
        if publish_ms is not None:
            due.append(publish_ms)
        if (suspension_ms := self.suspension.deadline_ms()) is not None:
            due.append(suspension_ms)
        if (unconfirmed_ms := self._unconfirmed.deadline_ms()) is not None:
            due.append(unconfirmed_ms)
        return min(due, default=None)

    def check(self) -> None:
        """Raise InvariantBroken when an ended attempt is active, a placement waits for no older attempt, or a stop has no cause."""
        for replica, placement in sorted(self.waiting.items()):
            active = self.active.get(replica)
            if active is None or active.placement.attempt >= placement.attempt:
                raise InvariantBroken(
                    "a placement waits for no older attempt", replica=replica, attempt=placement.attempt
                )
        for replica, attempt in sorted(self.active.items()):
            if self.ended.fact(replica, attempt.placement.attempt) is not None:
                raise InvariantBroken("an ended attempt is active", replica=replica, attempt=attempt.placement.attempt)
            if attempt.phase is AttemptPhase.STOPPING and attempt.stop is None:
                raise InvariantBroken("an attempt stops without a cause", replica=replica)

    def _reported(self, report: NodeTopologyReported) -> list[Effect]:
        """Keep the CPUs that the collector says are kept, and locate its devices, when they are others than before."""
        if report.node != self.node:
            return []
        kept, devices = kept_of(report), located_devices(report)
        self._mode = report.rules.colocation_mode
        effects: list[Effect] = [NoteMode(colocation_mode=self._mode)]
        if devices != self._devices:
            self._devices = devices
            effects.append(LocateDevices(devices=devices))
        if kept != self._kept:
            self._kept = kept
            effects.append(KeepCpus(kept=kept))
        return effects

    def _say_again(self, now_ms: int) -> list[Effect]:
        """Tell what nobody may know any more: the ceiling and the restrictions now, what runs within the next seconds."""
        self._unconfirmed.doubt(now_ms)
        self._open_cpus.doubt()
        return [*self._publisher.again(now_ms), *self.suspension.again(now_ms)]

    def _has_batch(self) -> bool:
        return self._only_observes or any(not is_online(attempt.placement) for attempt in self.active.values())

    def _sampled(self, sample: NodeUsageSampled) -> list[Effect]:
        """Tell the reflex how often online work broke its SLO; when nobody knows it any more, the reflex forgets it by itself."""
        violation = worst_online_violation(sample.workloads) if sample.node == self.node else None
        return [] if violation is None else [NoteViolation(violation=violation)]

    # ------------------------------------------------------------ commands

    def _command(self, fact: Fact, node: str, now_ms: int) -> list[Effect]:
        if node != self.node:
            raise InvalidInput("node", f"must be this executor's node, {self.node}", node)
        # An old command does not prove that the control plane lives now, and neither does one with a clock far from this one.
        is_of_now = abs(now_ms - fact.at_ms) < self.policy.command_lease_ms
        return [RenewLease()] if is_of_now else []

    def _in_term(self, order: str, generation: int, now_ms: int) -> list[Effect]:
        """Remember the term of an order; refuse one of an earlier term than the newest that gave orders of its kind on this node.

        An order without a term (0) is of an instance that is alone by its settings, whatever ran before it. A term is numbered by
        the time at which it began: one of the future is forged, and would outrank every order that follows.
        """
        least = self._terms.least(order)
        if 0 < generation < least:
            raise InvalidInput("generation", f"must be at least {least}: its sender was replaced", generation)
        # Where the clock of this machine is years behind, the last lease says what time it is elsewhere.
        latest = max(now_ms, self._renewed_ms) + _AHEAD_MOST_MS
        if generation > latest:
            raise InvalidInput("generation", f"must be at most {latest}, a day from now", generation)
        is_newer = self._terms.note(order, generation)
        return [RememberTerm(order=order, generation=generation)] if is_newer else []

    def _intent(self, cause: EndCause, reason: Reason, grace_ms: int, now_ms: int, eviction: str = "") -> StopIntent:
        grace_ms = max(0, min(grace_ms, self.policy.grace_most_ms))
        return StopIntent(
            cause=cause, reason=reason, kill_at_ms=now_ms + grace_ms, eviction=eviction, grace_ms=grace_ms
        )

    def _apply_all(self, command: ApplyPlacements, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for placement in command.placements:
            effects += self._apply(placement, command.sent_us, now_ms)
        return effects

    def _apply(self, placement: Placement, sent_us: int, now_ms: int) -> list[Effect]:
        past_end = self.ended.fact(placement.replica, placement.attempt)
        if past_end is not None:
            return [self._answer_with(past_end, placement, now_ms)]
        active = self.active.get(placement.replica)
        waiting = self.waiting.get(placement.replica)
        # An attempt that is here stays, even when this copy of its order contradicts the first one.
        if active is not None and active.placement.attempt == placement.attempt:
            if active.phase is AttemptPhase.RUNNING:
                self._unconfirmed.confirm(placement.replica, now_ms)
            return [] if active.phase is AttemptPhase.LAUNCHING else self._started_again([active], now_ms)
        if waiting is not None and waiting.attempt == placement.attempt:
            return []
        refusal = refusal_of(placement, self.node)
        if refusal:
            return self._refuse(placement, Reason.START_FAILED, refusal, now_ms)
        highest = self._highest(placement.replica)
        if placement.attempt < highest:
            return self._refuse(placement, Reason.OLDER_ATTEMPT, "", now_ms, newest_over=highest)
        if placement.cpus == UNKNOWN_CPUS:
            why = "cpus: which CPUs, devices or huge pages it was given is not known any more, and it does not run here"
            return self._refuse(placement, Reason.LEDGER_DISAGREES, why, now_ms)
        unfit = not_admitted(placement, self._mode)
        if unfit:
            return self._refuse(placement, Reason.QOS_NOT_ADMITTED, unfit, now_ms)
        if active is None:
            return self._launch(placement, sent_us, now_ms)
        return self._supersede(active, waiting, placement, now_ms)

    def _supersede(
        self, active: ReplicaAttempt, waiting: Placement | None, placement: Placement, now_ms: int
    ) -> list[Effect]:
        """Let a newer attempt wait until the active attempt of its replica has ended."""
        effects: list[Effect] = []
        if waiting is not None:
            del self.waiting[placement.replica]
            effects += self._refuse(waiting, Reason.OLDER_ATTEMPT, "", now_ms, newest_over=placement.attempt)
        self.waiting[placement.replica] = placement
        effects.append(RememberPlacement(placement=placement))
        intent = self._intent(EndCause.STOPPED, Reason.OLDER_ATTEMPT, active.placement.run.grace_ms, now_ms)
        return effects + self._stop(placement.replica, active.placement.attempt, intent, now_ms)

    def _launch(self, placement: Placement, sent_us: int, now_ms: int) -> list[Effect]:
        if len(self.active) >= self.policy.replicas_most:
            detail = f"the node runs {len(self.active)} replicas already, as many as it may"
            return self._refuse(placement, Reason.START_FAILED, detail, now_ms)
        if (forbidden := self.suspension.refusal(placement)) is not None:
            return self._refuse(placement, *forbidden, now_ms)
        self.active[placement.replica] = ReplicaAttempt(
            placement=placement, phase=AttemptPhase.LAUNCHING, since_ms=now_ms
        )
        return [LaunchReplica(placement=placement, sent_us=sent_us)]

    def _stop(self, replica: str, number: int, intent: StopIntent, now_ms: int) -> list[Effect]:
        past_end = self.ended.fact(replica, number)
        if past_end is not None:
            return [self._publish_end(past_end, intent.eviction)]
        waiting = self.waiting.get(replica)
        if waiting is not None and waiting.attempt == number:
            del self.waiting[replica]
            return self._end(self._over(replica, number, intent, "it had not been started yet"), now_ms)
        active = self.active.get(replica)
        if active is None or active.placement.attempt != number:
            # Remembered, so that a start order that arrives late does not start it after all.
            return self._end(self._over(replica, number, intent, "it was not on this node"), now_ms)
        return self._stop_active(replica, active, intent)

    def _stop_active(self, replica: str, active: ReplicaAttempt, intent: StopIntent) -> list[Effect]:
        earlier = active.stop
        if earlier is not None:
            # The first cause stays, the earlier SIGKILL wins, and an eviction is named so that the evictor learns of its end.
            intent = replace(
                earlier,
                kill_at_ms=min(earlier.kill_at_ms, intent.kill_at_ms),
                grace_ms=intent.grace_ms if intent.kill_at_ms < earlier.kill_at_ms else earlier.grace_ms,
                eviction=earlier.eviction or intent.eviction,
            )
            if intent == earlier:
                return []
        if active.phase is AttemptPhase.LAUNCHING:
            self.active[replica] = replace(active, stop=intent)
            return []
        self._unconfirmed.forget(replica)
        next_kill_ms = intent.kill_at_ms if active.kills == 0 else active.next_kill_ms
        self.active[replica] = replace(active, phase=AttemptPhase.STOPPING, stop=intent, next_kill_ms=next_kill_ms)
        number = active.placement.attempt
        term = SignalReplica(replica=replica, attempt=number, signal="term", intent=intent)
        return [*self.suspension.stopping(replica, number), term]

    def _kill_due(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for replica, active in sorted(self.active.items()):
            if active.next_kill_ms is None or active.next_kill_ms > now_ms or active.stop is None:
                continue
            kills = active.kills + 1
            again = now_ms + KILL_RETRY_MS if kills < KILLS_MOST else None
            self.active[replica] = replace(active, kills=kills, next_kill_ms=again)
            effects.append(
                SignalReplica(replica=replica, attempt=active.placement.attempt, signal="kill", intent=active.stop)
            )
        return effects

    # ------------------------------------------------------------ results

    def _launched(self, event: ReplicaLaunched, now_ms: int) -> list[Effect]:
        active = self.active.get(event.replica)
        if active is None or active.placement.attempt != event.attempt or active.phase is not AttemptPhase.LAUNCHING:
            return []
        intent = active.stop
        active = replace(
            active,
            phase=AttemptPhase.RUNNING,
            since_ms=now_ms,
            pid=event.pid,
            knobs=event.knobs,
            stop=None,
            group=event.group,
        )
        self.active[event.replica] = active
        self._unconfirmed.confirm(event.replica, now_ms)
        effects: list[Effect] = [self._started(active)]
        if active.group:
            effects += self._attached.follow(self.active, now_ms)
        if intent is not None:
            return effects + self._stop_active(event.replica, active, intent)
        # A job may be paused, or the node quiesced, while its replica was being started.
        return effects + self.suspension.follow(self.active, now_ms)

    def _overused(self, event: DiskOverused, now_ms: int) -> list[Effect]:
        active = self.active.get(event.replica)
        if active is None or active.placement.attempt != event.attempt:
            return []
        grace_ms = min(active.placement.run.grace_ms, _OVERUSED_GRACE_MS)
        intent = self._intent(EndCause.DISK, Reason.DISK_LIMIT, grace_ms, now_ms)
        return self._stop_active(event.replica, active, replace(intent, detail=event.detail))

    def _launch_failed(self, event: LaunchFailed, now_ms: int) -> list[Effect]:
        active = self.active.get(event.replica)
        if active is None or active.placement.attempt != event.attempt or active.phase is not AttemptPhase.LAUNCHING:
            return []
        del self.active[event.replica]
        return self._refuse(active.placement, event.reason, event.detail, now_ms) + self._next(event.replica, now_ms)

    def _exited(self, event: ReplicaExited, now_ms: int) -> list[Effect]:
        active = self.active.get(event.replica)
        if active is None or active.placement.attempt != event.attempt:
            return []
        del self.active[event.replica]
        self._unconfirmed.forget(event.replica)
        self.suspension.exited(event.replica, event.attempt)
        cause, stop = self._cause(event, active), active.stop
        fact = ReplicaEnded(
            at_ms=now_ms,
            node=self.node,
            replica=event.replica,
            job=active.placement.job,
            attempt=event.attempt,
            cause=cause,
            exit_code=-1 if event.exit_code is None else event.exit_code,
            reason=None if stop is None else stop.reason,
            eviction="" if stop is None else stop.eviction,
            cpu_used_ms=event.cpu_used_ms,
            ran_ms=max(0, now_ms - active.since_ms),
            detail="; ".join(filter(None, ("" if stop is None else stop.detail, event.detail))),
            signal=signal_of(event.exit_code),
            memory_peak_bytes=event.memory_peak_bytes,
            decided_at_ms=active.placement.decided_at_ms,
        )
        attached = self._attached.follow(self.active, now_ms) if active.group else []
        return [*self._end(fact, now_ms), *attached, *self._next(event.replica, now_ms)]

    @staticmethod
    def _cause(event: ReplicaExited, active: ReplicaAttempt) -> EndCause:
        if active.stop is not None:
            return active.stop.cause
        # One that ended well did not end because one of its processes was killed for lack of memory.
        if event.oom and event.exit_code != 0:
            return EndCause.OOM
        return EndCause.LOST if event.exit_code is None else EndCause.EXITED

    def _next(self, replica: str, now_ms: int) -> list[Effect]:
        waiting = self.waiting.pop(replica, None)
        return [] if waiting is None else self._launch(waiting, 0, now_ms)

    def _adopt(self, event: Adopted, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        self._terms = OrderTerms(event.terms)
        for fact in event.ended:
            self.ended.add(fact)
            if now_ms - fact.at_ms <= self.policy.retell_ms:
                effects.append(self._publish_end(fact))
        for found in event.replicas:
            placement = replace(found.placement, node=self.node)
            active = ReplicaAttempt(
                placement=placement,
                phase=AttemptPhase.RUNNING,
                since_ms=found.launched_at_ms,
                pid=found.pid,
                group=found.group if found.alive else "",
            )
            self.active[placement.replica] = active
            if found.alive:
                self._unconfirmed.confirm(placement.replica, now_ms)
                effects.append(self._started(active, again=True))
            if found.stop is not None:
                # A wall clock that was set back since the stop would leave it to run for as long.
                latest_ms = now_ms + (found.stop.grace_ms or self.policy.grace_most_ms)
                intent = replace(found.stop, kill_at_ms=min(found.stop.kill_at_ms, latest_ms))
                effects += self._stop_active(placement.replica, active, intent)
        alive = tuple((found.placement.replica, found.placement.attempt) for found in event.replicas if found.alive)
        recovered = NodeRecovered(at_ms=now_ms, node=self.node, running=alive, remarks=event.remarks)
        effects.insert(0, Publish(fact=recovered, id=f"executor:recovered:{self.node}:{now_ms}"))
        effects.append(NoteMode(colocation_mode=self._mode))
        effects += self._attached.follow(self.active, now_ms, again=event.attaches)
        effects += self.suspension.adopted(event, self.active, now_ms)
        for placement in event.waiting:
            effects += self._apply(placement, 0, now_ms)
        return effects

    # ------------------------------------------------------------ facts

    def _started(self, active: ReplicaAttempt, *, again: bool = False) -> Publish:
        placement = active.placement
        fact = ReplicaStarted(
            at_ms=active.since_ms,
            node=self.node,
            replica=placement.replica,
            job=placement.job,
            attempt=placement.attempt,
            pid=active.pid,
            knobs=active.knobs,
            traceparent=placement.traceparent,
            again=again,
        )
        name = self._name("started", placement, placement.decided_at_ms)
        return Publish(fact=fact, id=name, traceparent=placement.traceparent)

    def _started_again(self, attempts: Sequence[ReplicaAttempt], now_ms: int) -> list[Effect]:
        is_due = any(attempt.group for attempt in attempts)
        attached = self._attached.follow(self.active, now_ms, again=True) if is_due else []
        return [*(self._started(attempt, again=True) for attempt in attempts), *attached]

    def _refuse(
        self, placement: Placement, reason: Reason, detail: str, now_ms: int, *, newest_over: int = 0
    ) -> list[Effect]:
        return self._end(self._refusal(placement, reason, detail, now_ms, newest_over), now_ms)

    def _refusal(
        self, placement: Placement, reason: Reason, detail: str, now_ms: int, newest_over: int
    ) -> PlacementRefused:
        return PlacementRefused(
            at_ms=now_ms,
            node=self.node,
            replica=placement.replica,
            job=placement.job,
            attempt=placement.attempt,
            reason=reason,
            detail=detail,
            newest_over=newest_over,
            decided_at_ms=placement.decided_at_ms,
        )

    def _answer_with(self, past_end: ReplicaEnded | PlacementRefused, placement: Placement, now_ms: int) -> Publish:
        """Say again how the attempt ended, or that its number was used before, by a job of this id that is gone.

        What was ended here without an order of it, or by an older executor, may be either, and is said again; so is what an order
        names that does not know when it was decided.
        """
        if (
            not past_end.decided_at_ms
            or not placement.decided_at_ms
            or past_end.decided_at_ms == placement.decided_at_ms
        ):
            return self._publish_end(past_end)
        newest = self._highest(placement.replica)
        fact = self._refusal(placement, Reason.OLDER_ATTEMPT, "", now_ms, newest)
        name = f"executor:refused:{self.node}:{attempt_key(fact.replica, fact.attempt)}:{fact.decided_at_ms}"
        return Publish(fact=fact, id=name)

    def _over(self, replica: str, number: int, intent: StopIntent, detail: str) -> ReplicaEnded:
        return ReplicaEnded(
            node=self.node,
            replica=replica,
            job=job_of(replica),
            attempt=number,
            cause=intent.cause,
            exit_code=0,
            reason=intent.reason,
            eviction=intent.eviction,
            detail=detail,
        )

    def _end(self, fact: ReplicaEnded | PlacementRefused, now_ms: int) -> list[Effect]:
        fact = replace(fact, at_ms=now_ms)
        self.ended.add(fact)
        return [RememberEnd(fact=fact), self._publish_end(fact)]

    def _publish_end(self, fact: ReplicaEnded | PlacementRefused, eviction: str = "") -> Publish:
        if isinstance(fact, PlacementRefused):
            return Publish(fact=fact, id=self._name("refused", fact, 0))
        name = self._name("ended", fact, fact.decided_at_ms)
        if eviction and fact.eviction != eviction:
            return Publish(fact=replace(fact, eviction=eviction), id=f"{name}:{eviction}")
        return Publish(fact=fact, id=name)

    def _name(self, what: str, fact: ReplicaEnded | PlacementRefused | Placement, decided_at_ms: int) -> str:
        """The id of a message about an attempt, by which the bus drops it when it is said again.

        An attempt that was stopped before its order came, on a node that has lost its memory since, or that is of a job which came
        back under its id, was told to have ended before: what runs now is told by its decision.
        """
        name = f"executor:{what}:{self.node}:{attempt_key(fact.replica, fact.attempt)}"
        return f"{name}:{decided_at_ms}" if decided_at_ms else name

    def _highest(self, replica: str) -> int:
        active, waiting = self.active.get(replica), self.waiting.get(replica)
        return max(
            0 if active is None else active.placement.attempt,
            0 if waiting is None else waiting.attempt,
            self.ended.highest(replica),
        )
