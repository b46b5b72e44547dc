"""SimMachine: one machine whose online load follows a demand and whose batch replicas get the CPU that is really left.

Rates are constant between two moments of change: the start of a sub-step (demand is read again), a command, the end of a
replica. Everything counted is an integer rate times milliseconds, so a run cut into any pieces gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

import msgspec

from colo_common.model.cpuset import CpuSet
from colo_common.model.invalid import InvalidInput, InvariantBroken
from colo_common.model.qos import QosClass
from colo_sim.demand import OnlineDemand
from colo_sim.machine_delay import SharedZone, delay_model
from colo_sim.machine_memory import grow_memory, memory_by_zone, memory_stall_permille
from colo_sim.machine_online import OnlineReplica, OnlineReplicas, spread_into_room
from colo_sim.machine_reading import (
    ExitCause,
    MachineCounters,
    MachineLedger,
    MachineUsage,
    ReplicaCounters,
    ReplicaExit,
    ZoneCounters,
)
from colo_sim.machine_replica import EXIT_DONE, EXIT_KILLED, EXIT_TERMINATED, NEVER_MS, Replica
from colo_sim.machine_share import Shares, share_batch_cpu, spread_online_cpu
from colo_sim.machine_spec import MachineSpec
from colo_sim.machine_tally import Counterfactual, Tally
from colo_sim.noise import key_of, mix, uniform

__all__ = ["MAX_REPLICAS", "SimMachine"]

MAX_REPLICAS: Final = 4_096
"""Most replicas of a machine, including ended ones that were not polled; a further start is refused."""

_NS_PER_MCPU_MS: Final = 1_000
_ZONE_SKEW: Final = 100


class SimMachine:
    """One simulated machine. `demand` gives the online demand at a simulated ms and must depend on that alone.
    `plain_batch_mcpu` is what plain CPU requests would leave to batch work here, for the account of that baseline.

    Commands act at the moment of the last `advance`. Same spec, seed, demand and commands at the same moments give the
    same counters, whatever the pieces time is advanced in; `digest()` shows it. Every refusal is an InvalidInput that
    leaves the machine as it was.
    """

    def __init__(
        self,
        spec: MachineSpec,
        *,
        node: str,
        seed: int,
        demand: Callable[[int], OnlineDemand],
        start_ms: int = 0,
        plain_batch_mcpu: int = 0,
    ) -> None:
        if start_ms < 0:
            raise InvalidInput("start_ms", "must be at least 0", start_ms)
        self.spec = spec
        self.node = node
        self._key = key_of(seed, "machine", node)
        self._demand = demand
        self._at_ms = start_ms
        self._cell_end_ms = start_ms
        self._boot = 1
        self._zone_capacity_mcpu = spec.cpus_per_zone * 1_000
        self._delay = delay_model(spec.cpus_per_zone, spec.threads_per_core, spec.interference)
        self._whole_zones = self._zones = [SharedZone(self._zone_capacity_mcpu, 0, self._delay)] * spec.zones
        self._plain_zone_mcpu = [plain_batch_mcpu // spec.zones] * spec.zones if plain_batch_mcpu else []
        # Services never spread evenly: a zone carries up to 10 % more or less than its part.
        self._zone_weights = [
            1_000 + uniform(mix(self._key, zone), -_ZONE_SKEW, _ZONE_SKEW) for zone in range(spec.zones)
        ]
        self._zone_weight_sum = sum(self._zone_weights)
        self._quota_mcpu: int | None = None
        self._is_frozen = False
        self._all_cpus = self._cpus = CpuSet((1 << spec.zones * spec.cpus_per_zone) - 1)
        self._cpu_room_mcpu = [self._zone_capacity_mcpu] * spec.zones
        self._all_room_mcpu = self._cpu_room_mcpu  # the same on all CPUs that batch work may be given
        self._replicas: dict[str, Replica] = {}
        self._online_replicas = OnlineReplicas(spec)
        self._exits: list[ReplicaExit] = []
        self._tally = Tally(spec.zones)
        self._online = OnlineDemand(0, 0)
        self._online_zone_mcpu = [0] * spec.zones
        self._uncontended: Shares | None = None  # shares as if no online work were here; None after any change
        self._unlimited: Shares | None = None  # the same without a quota; None after any change but the quota's
        self._shares = Shares([], [0] * spec.zones)
        self._is_contended = False
        self._is_stale = True  # rates must be recomputed before time advances
        self._next_exit_ms = NEVER_MS
        self._batch_memory_bytes = 0
        self._is_ramping = False
        self._is_memory_over = False

    # ---------------------------------------------------------------- time

    @property
    def at_ms(self) -> int:
        """The simulated moment every reading is of."""
        return self._at_ms

    @property
    def delay_bound_permille(self) -> int:
        """The delay above which online work counts as hurt."""
        return self._delay.bound_permille

    def advance(self, now_ms: int) -> None:
        """Let the machine run until `now_ms`. Ended replicas wait for `poll_exits`."""
        if now_ms < self._at_ms:
            raise InvalidInput("now_ms", f"must not be before {self._at_ms}", now_ms)
        while self._at_ms < now_ms:
            if self._at_ms >= self._cell_end_ms:
                self._enter_sub_step()
            if self._is_stale:
                self._compute_rates()
            end_ms = min(now_ms, self._cell_end_ms, self._next_exit_ms)
            self._tally.accrue(end_ms - self._at_ms)
            self._at_ms = end_ms
            if end_ms >= self._next_exit_ms:
                self._end_due_replicas()

    def _enter_sub_step(self) -> None:
        """Read the demand of the sub-step that starts (or started) here, and compute the online use from it."""
        sub_step_ms = self.spec.sub_step_ms
        start_ms = self._at_ms // sub_step_ms * sub_step_ms
        self._cell_end_ms = start_ms + sub_step_ms
        self._online = self._demand(start_ms)
        self._spread_online()
        if self._is_ramping or self._is_stale:
            self._grow_memory()
        self._kill_for_memory()
        if self._is_stale:
            return
        if self._is_contended or not self._fits_with_online(self._shares.zone_mcpu):
            self._is_stale = True
        else:
            self._update_online_tally()  # batch shares stay: they do not depend on online work that leaves them room

    def _spread_online(self) -> None:
        """Compute the online use of each zone: that of the trace's services and of the online replicas."""
        placed = self._online_replicas
        if not placed.by_name:
            self._online_zone_mcpu = spread_online_cpu(
                self._online.cpu_mcpu, self._zone_weights, self._zone_weight_sum, self._zone_capacity_mcpu
            )
            return
        spread = spread_into_room(self._online.cpu_mcpu, self._zone_weights, self._zone_weight_sum, placed.room_mcpu)
        self._online_zone_mcpu = [part + used for part, used in zip(spread, placed.zone_mcpu, strict=True)]

    def _fits_with_online(self, zone_mcpu: list[int]) -> bool:
        rows = zip(zone_mcpu, self._online_zone_mcpu, self._zones, strict=True)
        return all(batch + online <= zone.capacity_mcpu + zone.lse_mcpu for batch, online, zone in rows)

    def _compute_rates(self) -> None:
        """Recompute the CPU shares, and from them every replica's rate, the next exit and all tally rates."""
        self._grow_memory()
        self._next_exit_ms = self._online_replicas.share(self._at_ms)
        self._zones = self._shared_zones()
        self._spread_online()
        claims = list(self._replicas.values())
        shares = self._uncontended
        if shares is None:
            shares = self._uncontended = share_batch_cpu(claims, self._cpu_room_mcpu, self._most_mcpu)
        self._is_contended = not self._fits_with_online(shares.zone_mcpu)
        if self._is_contended:
            least_mcpu = self._zone_capacity_mcpu * self.spec.interference.batch_weight_permille // 1_000
            usable_mcpu = [zone.capacity_mcpu + zone.lse_mcpu for zone in self._zones]
            room_mcpu = [
                min(cpus, max(zone_mcpu - online, min(least_mcpu, zone_mcpu - placed)))
                for cpus, zone_mcpu, online, placed in zip(
                    self._cpu_room_mcpu,
                    usable_mcpu,
                    self._online_zone_mcpu,
                    self._online_replicas.zone_mcpu,
                    strict=True,
                )
            ]
            shares = share_batch_cpu(claims, room_mcpu, self._most_mcpu)
        for replica, rate_mcpu in zip(claims, shares.granted_mcpu, strict=True):
            if replica.rate_mcpu != rate_mcpu:
                replica.run_at(rate_mcpu, self._at_ms)
            self._next_exit_ms = min(self._next_exit_ms, replica.due_ms())
        self._shares = shares
        if self._unlimited is None:
            most_mcpu = self._most_mcpu
            is_limited = most_mcpu is not None and most_mcpu < sum(claim.cpu_mcpu for claim in claims)
            is_limited = is_limited or self._cpu_room_mcpu != self._all_room_mcpu
            self._unlimited = share_batch_cpu(claims, self._all_room_mcpu, None) if is_limited else self._uncontended
        self._is_stale = False
        self._tally.set_batch(shares, claims, self._most_mcpu)
        self._update_online_tally()

    def _shared_zones(self) -> list[SharedZone]:
        """Each zone without the CPUs of LSE replicas."""
        if not self._online_replicas.lse:
            return self._whole_zones
        spec = self.spec
        return [
            SharedZone(
                room_mcpu,
                used_mcpu,
                delay_model(room_mcpu // 1_000, spec.threads_per_core, spec.interference) if room_mcpu else self._delay,
            )
            for room_mcpu, used_mcpu in zip(self._all_room_mcpu, self._online_replicas.lse_mcpu, strict=True)
        ]

    def _update_online_tally(self) -> None:
        unlimited = self._unlimited
        self._tally.set_online(
            self._online.cpu_mcpu + self._online_replicas.used_mcpu,
            self._online_zone_mcpu,
            self._shares.zone_mcpu,
            self._zones,
            self.spec.interference,
            Counterfactual(
                self._shares.zone_mcpu if unlimited is None or unlimited is self._uncontended else unlimited.zone_mcpu,
                self._plain_zone_mcpu,
            ),
            self._is_memory_over,
            self._online_memory_bytes > self.spec.memory_capacity_bytes,
        )
        used_bytes = self._online_memory_bytes + self._batch_memory_bytes
        some_permille, full_permille = memory_stall_permille(used_bytes, self.spec.memory_capacity_bytes)
        self._tally.set_memory(some_permille, full_permille)

    # ---------------------------------------------------------------- memory

    def _grow_memory(self) -> None:
        self._batch_memory_bytes, self._is_ramping = grow_memory(
            self._replicas.values(), self._at_ms, self.spec.interference.memory_ramp_ms
        )
        if self._online_replicas.by_name:
            self._is_ramping = self._online_replicas.grow_memory(self._at_ms) or self._is_ramping

    @property
    def _online_memory_bytes(self) -> int:
        return self._online.memory_bytes + self._online_replicas.memory_bytes

    def _kill_for_memory(self) -> None:
        """Kill the largest batch replicas until memory fits, one sub-step after it first did not.

        The delay is the time the kernel spends in reclaim before it kills; that sub-step counts as harm.
        """
        room_bytes = self.spec.memory_capacity_bytes - self._online_memory_bytes
        if self._is_memory_over:
            largest_first = sorted(self._replicas.values(), key=lambda one: (-one.memory_now_bytes, one.name))
            for replica in largest_first:
                if self._batch_memory_bytes <= room_bytes:
                    break
                self._end(replica, EXIT_KILLED, "oom")
        self._is_memory_over = self._batch_memory_bytes > room_bytes

    # ---------------------------------------------------------------- commands

    def set_batch_quota_mcpu(self, quota_mcpu: int | None) -> None:
        """Hold all batch replicas together to this much CPU from now on; None lifts the limit."""
        if quota_mcpu is not None and quota_mcpu < 0:
            raise InvalidInput("quota_mcpu", "must be at least 0, or None for no limit", quota_mcpu)
        if quota_mcpu != self._quota_mcpu:
            self._quota_mcpu = quota_mcpu
            self._uncontended = None
            self._is_stale = True

    def set_batch_frozen(self, *, is_frozen: bool) -> None:
        """Give all batch replicas together no CPU, whatever the quota, or what the quota allows again."""
        if is_frozen != self._is_frozen:
            self._is_frozen = is_frozen
            self._uncontended = None
            self._is_stale = True

    @property
    def is_batch_frozen(self) -> bool:
        """Whether batch work is frozen, as a read of the kernel file would show."""
        return self._is_frozen

    @property
    def _most_mcpu(self) -> int | None:
        return 0 if self._is_frozen else self._quota_mcpu

    def set_batch_cpus(self, cpus: str | None) -> None:
        """Let batch replicas run on these CPUs only (a kernel list, "0-3,8"); None means all of the machine."""
        count = self.spec.zones * self.spec.cpus_per_zone
        allowed = self._all_cpus if cpus is None else CpuSet.parse(cpus, "cpus", nr_cpus=count)
        if not allowed:
            raise InvalidInput("cpus", "must name at least one CPU", cpus)
        if allowed != self._cpus:
            self._cpus = allowed
            self._fit_cpu_room()

    def _fit_cpu_room(self) -> None:
        """Compute the CPU room of batch by zone: its allowed CPUs without those of LSE replicas."""
        lse = self._online_replicas.lse
        self._cpu_room_mcpu = self._room_mcpu(self._cpus - lse)
        self._all_room_mcpu = self._room_mcpu(self._all_cpus - lse)
        self._changed()

    def _room_mcpu(self, cpus: CpuSet) -> list[int]:
        width = self.spec.cpus_per_zone
        zone_mask = (1 << width) - 1
        return [((cpus.mask >> zone * width) & zone_mask).bit_count() * 1_000 for zone in range(self.spec.zones)]

    @property
    def batch_quota_mcpu(self) -> int | None:
        """The quota as last set, as a read of the kernel file would show."""
        return self._quota_mcpu

    @property
    def batch_cpus(self) -> str:
        """The CPUs batch may use, in the kernel's notation."""
        return self._cpus.format()

    def owned_cpus(self) -> dict[str, tuple[QosClass, CpuSet]]:
        """Class and CPUs of each online replica that has CPUs of its own."""
        return {name: (one.qos, one.cpus) for name, one in self._online_replicas.by_name.items() if one.cpus}

    def request_mcpu(self, replica: str) -> int:
        """The CPU that a running replica requested; 0 for an unknown one."""
        found = self._found(replica)
        return found.request_mcpu if found is not None else 0

    def start_replica(
        self, replica: str, attempt: int, zones: tuple[int, ...], cpu_mcpu: int, memory_bytes: int, work_mcpu_ms: int
    ) -> None:
        """Start a replica that uses up to `cpu_mcpu` in its zones until it got `work_mcpu_ms` of CPU time."""
        self._check_start(replica, zones, cpu_mcpu, memory_bytes, work_mcpu_ms)
        self._replicas[replica] = Replica(replica, attempt, zones, cpu_mcpu, memory_bytes, work_mcpu_ms, self._at_ms)
        self._tally.replicas_started += 1
        self._changed()

    def start_online_replica(
        self,
        replica: str,
        attempt: int,
        zones: tuple[int, ...],
        cpu_mcpu: int,
        memory_bytes: int,
        work_mcpu_ms: int,
        qos: QosClass,
        cpus: str,
    ) -> None:
        """Start a replica outside the batch tier: on `cpus` of its own (a kernel list) for LSE and LSR, on shared ones for LS."""
        self._check_start(replica, zones, cpu_mcpu, memory_bytes, work_mcpu_ms)
        own, at = self._online_replicas.placed(qos, cpus)
        self._online_replicas.by_name[replica] = OnlineReplica(
            replica, attempt, at, cpu_mcpu, memory_bytes, work_mcpu_ms, self._at_ms, qos, own
        )
        self._tally.replicas_started += 1
        self._fit_cpu_room()

    def _check_start(
        self, replica: str, zones: tuple[int, ...], cpu_mcpu: int, memory_bytes: int, work_mcpu_ms: int
    ) -> None:
        if self._found(replica) is not None:
            raise InvalidInput("replica", "must not be running on this machine already", replica)
        if len(self._replicas) + len(self._online_replicas.by_name) + len(self._exits) >= MAX_REPLICAS:
            raise InvalidInput("replica", f"a machine holds at most {MAX_REPLICAS} replicas", replica)
        for name, value in (("cpu_mcpu", cpu_mcpu), ("memory_bytes", memory_bytes), ("work_mcpu_ms", work_mcpu_ms)):
            if value < 1:
                raise InvalidInput(name, "must be at least 1", value)
        if not zones or list(zones) != sorted(set(zones)) or zones[0] < 0 or zones[-1] >= self.spec.zones:
            raise InvalidInput("zones", f"must be ascending zone ids from 0 to {self.spec.zones - 1}", zones)

    def _found(self, replica: str) -> Replica | None:
        return self._replicas.get(replica) or self._online_replicas.by_name.get(replica)

    def _all_replicas(self) -> tuple[Replica, ...]:
        return (*self._replicas.values(), *self._online_replicas.by_name.values())

    def stop_replica(self, replica: str, grace_ms: int, *, is_eviction: bool = False) -> bool:
        """Send SIGTERM, and SIGKILL after `grace_ms`. Returns False when no such replica runs. An eviction is counted as one.

        It goes on running until it ends: after a time that is its own (seeded by its name and attempt), or killed at
        the end of the grace. A second stop may shorten the wait and never lengthens it.
        """
        found = self._found(replica)
        if found is None:
            return False
        if grace_ms < 0:
            raise InvalidInput("grace_ms", "must be at least 0", grace_ms)
        if is_eviction:
            self._tally.evicted()
        limits = self.spec.interference
        bits = mix(key_of(self._key, "stop", replica), found.attempt)
        own_ms = uniform(bits, limits.stop_least_ms, limits.stop_most_ms)
        if grace_ms == 0:
            self._end(found, EXIT_KILLED, "killed")
            return True
        exit_ms = self._at_ms + min(own_ms, grace_ms)
        if exit_ms < found.exit_ms:
            found.exit_ms = exit_ms
            found.exit_code = EXIT_TERMINATED if own_ms <= grace_ms else EXIT_KILLED
            self._is_stale = True
        return True

    def kill_replica(self, replica: str) -> bool:
        """End a replica at once with code 137. Returns False when no such replica runs."""
        found = self._found(replica)
        if found is not None:
            self._end(found, EXIT_KILLED, "killed")
        return found is not None

    def suspend_replica(self, replica: str, *, is_suspended: bool) -> bool:
        """Take all CPU from a batch replica, or give it back. Returns False when no such batch replica runs."""
        found = self._replicas.get(replica)
        if found is None:
            return False
        if found.is_suspended != is_suspended:
            found.suspend(is_suspended=is_suspended)
            self._changed()
        return True

    def crash_replica(self, replica: str, code: int = 1) -> bool:
        """Let a replica fail by itself now. Returns False when no such replica runs."""
        found = self._found(replica)
        if found is not None:
            self._end(found, code, "crashed")
        return found is not None

    def reboot(self) -> None:
        """Lose power: all replicas and unread exits are lost, knobs and counters are reset."""
        for replica in self._all_replicas():
            self._end(replica, EXIT_KILLED, "crashed")
        self._exits.clear()
        self._is_memory_over = False
        self._quota_mcpu = None
        self._is_frozen = False
        self.set_batch_cpus(None)
        self._boot += 1
        self._tally.forget_counters()

    def _changed(self) -> None:
        self._uncontended = self._unlimited = None
        self._is_stale = True

    # ---------------------------------------------------------------- ends

    def _end_due_replicas(self) -> None:
        for replica in self._all_replicas():
            if replica.due_ms() > self._at_ms:
                continue
            if replica.used_at(self._at_ms) >= replica.work_mcpu_ms:
                self._end(replica, EXIT_DONE, "completed")
            else:
                stopped = replica.exit_code == EXIT_TERMINATED
                self._end(replica, replica.exit_code, "stopped" if stopped else "killed")

    def _end(self, replica: Replica, code: int, cause: ExitCause) -> None:
        used_mcpu_ms = replica.used_at(self._at_ms)
        if isinstance(replica, OnlineReplica):
            del self._online_replicas.by_name[replica.name]
            self._online_replicas.memory_bytes -= replica.memory_now_bytes
            self._tally.online_ended(used_mcpu_ms, cause)
            self._fit_cpu_room()
        else:
            del self._replicas[replica.name]
            self._batch_memory_bytes -= replica.memory_now_bytes
            self._tally.ended(used_mcpu_ms, cause)
        self._exits.append(
            ReplicaExit(
                replica=replica.name,
                attempt=replica.attempt,
                code=code,
                cause=cause,
                at_ms=self._at_ms,
                used_mcpu_ms=used_mcpu_ms,
            )
        )
        self._changed()

    def poll_exits(self) -> tuple[ReplicaExit, ...]:
        """Return the replicas that ended since the last poll, in order of their end, each once."""
        exits = tuple(self._exits)
        self._exits.clear()
        return exits

    # ---------------------------------------------------------------- readings

    def counters(self) -> MachineCounters:
        """Return every counter at this moment."""
        if self._is_stale:
            self._compute_rates()
        tally = self._tally
        memory_bytes = memory_by_zone(
            self._online.memory_bytes, self._zone_weights, self._all_replicas(), self.spec.memory_bytes_per_zone
        )
        zones = tuple(
            ZoneCounters(
                zone=zone,
                usage_ns=(tally.zone_online_mcpu_ms[zone] + tally.zone_batch_mcpu_ms[zone]) * _NS_PER_MCPU_MS,
                batch_usage_ns=tally.zone_batch_mcpu_ms[zone] * _NS_PER_MCPU_MS,
                memory_bytes=memory_bytes[zone],
            )
            for zone in range(self.spec.zones)
        )
        return MachineCounters(
            at_ms=self._at_ms,
            boot=self._boot,
            zones=zones,
            replicas=tuple(
                self._replica_counters(one) for one in sorted(self._all_replicas(), key=lambda one: one.name)
            ),
            online_usage_ns=sum(tally.zone_online_mcpu_ms) * _NS_PER_MCPU_MS,
            batch_usage_ns=sum(tally.zone_batch_mcpu_ms) * _NS_PER_MCPU_MS,
            online_memory_bytes=self._online_memory_bytes,
            batch_memory_bytes=self._batch_memory_bytes,
            cpu_some_us=tally.cpu_some_us,
            cpu_full_us=0,
            memory_some_us=tally.memory_some_us,
            memory_full_us=tally.memory_full_us,
            online_cpu_some_us=tally.online_some_us,
            batch_cpu_some_us=tally.batch_some_us,
            batch_cpu_full_us=tally.batch_throttled_us,
            batch_throttled_us=tally.batch_throttled_us,
        )

    def usage(self) -> MachineUsage:
        """Return the counters that the reflex reads many times a second, equal to those of `counters()`."""
        tally = self._tally
        zone_online_ns = tuple(mcpu_ms * _NS_PER_MCPU_MS for mcpu_ms in tally.zone_online_mcpu_ms)
        zone_batch_ns = tuple(mcpu_ms * _NS_PER_MCPU_MS for mcpu_ms in tally.zone_batch_mcpu_ms)
        return MachineUsage(
            at_ms=self._at_ms,
            boot=self._boot,
            online_usage_ns=sum(zone_online_ns),
            batch_usage_ns=sum(zone_batch_ns),
            zone_online_ns=zone_online_ns,
            zone_batch_ns=zone_batch_ns,
        )

    def _replica_counters(self, replica: Replica) -> ReplicaCounters:
        return ReplicaCounters(
            replica=replica.name,
            attempt=replica.attempt,
            zones=replica.zones,
            usage_ns=replica.used_at(self._at_ms) * _NS_PER_MCPU_MS,
            memory_bytes=replica.memory_now_bytes,
            is_stopping=replica.exit_ms != NEVER_MS,
            qos=replica.qos if isinstance(replica, OnlineReplica) else QosClass.BE,
        )

    def ledger(self) -> MachineLedger:
        """Return the sums the verdict is made from."""
        running_mcpu_ms = sum(one.used_at(self._at_ms) for one in self._replicas.values())
        online_mcpu_ms = sum(one.used_at(self._at_ms) for one in self._online_replicas.by_name.values())
        return self._tally.ledger(self.spec.cpu_capacity_mcpu, running_mcpu_ms, online_mcpu_ms)

    def check(self) -> None:
        """Raise InvariantBroken when CPU time was lost or made up, or a limit is exceeded now."""
        ledger = self.ledger()
        accounted_mcpu_ms = ledger.completed_mcpu_ms + ledger.wasted_mcpu_ms + ledger.running_mcpu_ms
        if ledger.batch_used_mcpu_ms != accounted_mcpu_ms:
            raise InvariantBroken(
                "batch CPU time must be completed, wasted or running",
                used=ledger.batch_used_mcpu_ms,
                sum=accounted_mcpu_ms,
            )
        if ledger.replica_online_mcpu_ms > ledger.online_used_mcpu_ms:
            raise InvariantBroken("what online replicas use is online use", node=self.node)
        if ledger.online_used_mcpu_ms + ledger.batch_used_mcpu_ms > ledger.node_ms * ledger.cpu_capacity_mcpu:
            raise InvariantBroken("a machine cannot give more than its capacity", node=self.node)
        granted_mcpu = sum(self._shares.granted_mcpu)
        most_mcpu = self._most_mcpu
        if not self._is_stale and most_mcpu is not None and granted_mcpu > most_mcpu:
            raise InvariantBroken("batch must stay within its quota", granted=granted_mcpu, quota=most_mcpu)

    def digest(self) -> str:
        """Return a fingerprint of all counters, the ledger and unread exits."""
        state = msgspec.json.encode((self.counters(), self.ledger(), self._exits))
        return blake2b(state, digest_size=16).hexdigest()
