"""A scheduler core with a ledger in memory, driven by the words of a conversation; and small clusters for other tests."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from msgspec import Struct, structs

from colo_common.events.effects import Effect, Publish, Reply, RequestReceived, Wake
from colo_common.events.enforcement import NodeRecovered, PlacementRefused, ReplicaEnded
from colo_common.events.job import MidPlacementsRequested, PlacementRequest, PlacementsRequested, ReplicasWithdrawn
from colo_common.events.node import (
    AllocatableChanged,
    Explanation,
    FreshnessChanged,
    UnmanagedUse,
    ZoneAllocatable,
    ZoneMid,
)
from colo_common.events.placement import PlacementRejected, PlacementsDecided
from colo_common.events.replayed import Replayed
from colo_common.events.requests import ExplainPlacement, HoldsReply, ListHolds, PlacementsExplained
from colo_common.model.constraints import (
    UNCONSTRAINED,
    Constraints,
    CpuBind,
    CpuPolicy,
    DeviceRequest,
    NumaPolicy,
    Taint,
    Toleration,
)
from colo_common.model.freshness import FORGET_NODE_MS, Freshness
from colo_common.model.invalid import InvalidInput
from colo_common.model.node_rules import NodeRules
from colo_common.model.placement import Attempt, Placement
from colo_common.model.qos import PriorityBand, QosClass, parse_qos
from colo_common.model.reasons import EndCause, Reason
from colo_common.model.topology import Device, NodeTopology
from colo_common.model.workload import ResourceRequest, RunSpec
from colo_scheduler.cluster.pool import PoolName
from colo_scheduler.commit.jobs_asked import AskPending, AskStarted, StartedKnown
from colo_scheduler.core import SchedulerCore
from colo_scheduler.ledger.memory import MemoryLedger
from colo_scheduler.ledger.port import (
    CommitLedger,
    ConfirmHolds,
    ForgetRows,
    Hold,
    HoldsReleased,
    Ledger,
    LedgerAnswered,
    LedgerChanges,
    LedgerLoaded,
    LedgerRows,
    LoadLedgerRows,
    NodeCommit,
    PutBackRows,
    RefreshLedger,
    ReleaseHolds,
)
from colo_scheduler.policy import SchedulerPolicy
from tests.support.builders import GIB, a_node, a_placement, a_topology
from tests.support.restriction_words import restrictions_changed
from tests.support.scheduler_explained import delivered, explained, shares, size
from tests.support.scripts import Args, ScriptFailed

T = TypeVar("T")
ROUNDS_MAX = 50
COMMAND = RunSpec(command=("true",))
WORK = RunSpec(work_mcpu_ms=1_000_000)
EITHER = RunSpec(command=("true",), work_mcpu_ms=1_000_000)
RUNS = {"command": COMMAND, "work": WORK, "either": EITHER}


def a_placement_request(
    replica: str = "job/main/0",
    *,
    attempt: int = 1,
    mcpu: int = 1000,
    memory_bytes: int = GIB,
    priority: int = 0,
    queued_at_ms: int = 0,
    qos: QosClass = QosClass.BE,
    band: PriorityBand = PriorityBand.BATCH,
    avoid: tuple[tuple[str, int], ...] = (),
    traceparent: str = "",
    run: RunSpec = EITHER,
    constraints: Constraints = UNCONSTRAINED,
) -> PlacementRequest:
    """A replica that wants a place, and can run on a real node as well as on a simulated one."""
    return PlacementRequest(
        replica=replica,
        job=replica.split("/", maxsplit=1)[0],
        queue="default",
        attempt=attempt,
        request=ResourceRequest(cpu_mcpu=mcpu, memory_bytes=memory_bytes),
        run=run,
        qos=qos,
        band=band,
        priority=priority,
        queued_at_ms=queued_at_ms,
        avoid=avoid,
        traceparent=traceparent,
        constraints=constraints,
    )


def an_allocatable(
    node: str,
    zones: Sequence[tuple[int, int]],
    *,
    at_ms: int = 0,
    seq: int = 1,
    freshness: Freshness = Freshness.FRESH,
    unmanaged: tuple[UnmanagedUse, ...] | None = (),
    mid: Sequence[tuple[int, int]] = (),
) -> AllocatableChanged:
    """`zones` are pairs of mcpu and bytes that may be promised to batch work, `mid` to the mid tier."""
    return AllocatableChanged(
        node=node,
        at_ms=at_ms,
        sample_seq=seq,
        sampled_at_ms=at_ms,
        freshness=freshness,
        batch_cpu_mcpu=sum(mcpu for mcpu, _ in zones),
        batch_memory_bytes=sum(memory for _, memory in zones),
        headroom_cpu_mcpu=0,
        headroom_memory_bytes=0,
        zones=tuple(
            ZoneAllocatable(
                zone=i, batch_cpu_mcpu=mcpu, batch_memory_bytes=memory, headroom_cpu_mcpu=0, headroom_memory_bytes=0
            )
            for i, (mcpu, memory) in enumerate(zones)
        ),
        explanation=Explanation(formula="test", terms=()),
        unmanaged=unmanaged,
        mid=tuple(ZoneMid(zone=i, cpu_mcpu=mcpu, memory_bytes=memory) for i, (mcpu, memory) in enumerate(mid)),
    )


def now(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise AssertionError("it waited")


class Bench:
    """A core and the ledger it commits to; effects of its own are done at once, as the shell does them.

    `started` are the attempts of which the jobs service knows that they were started.
    """

    def __init__(
        self,
        policy: SchedulerPolicy | None = None,
        ledger: Ledger | None = None,
        *,
        is_loaded: bool = True,
        forget_node_ms: int = FORGET_NODE_MS,
    ) -> None:
        self.core = SchedulerCore(policy, forget_node_ms=forget_node_ms)
        self.ledger = ledger or MemoryLedger()
        self.now_ms = 0
        self.started: set[Attempt] = set()
        if is_loaded:
            self.load()

    def load(self) -> list[Effect]:
        """Read the whole ledger, as at a start."""
        nodes = list(now(self.ledger.changes()))
        rows = now(self.ledger.rows(nodes))
        return [*self.tell(LedgerRows(rows=rows)), *self.tell(LedgerLoaded(floor=now(self.ledger.floor())))]

    def tell(self, *events: Any) -> list[Effect]:
        """Handle events and everything that comes of them but a Wake; what leaves the service is returned.

        The invariants are checked once, after the last of them.
        """
        effects = [effect for event in events for effect in self._settle(self.core.handle(event, self.now_ms))]
        self.core.check()
        return effects

    def wake(self) -> list[Effect]:
        """Wake the core as long as it is due at this moment."""
        effects: list[Effect] = []
        for _ in range(ROUNDS_MAX):
            due = self.core.deadline_ms()
            if due is None or due > self.now_ms:
                return effects
            effects += self._settle(self.core.handle(Wake(), self.now_ms))
            self.core.check()
        raise AssertionError("the core wants to be woken for ever")

    def say(self, *events: Any) -> list[Effect]:
        """Handle events and the Wake after them."""
        return [*self.tell(*events), *self.wake()]

    def _settle(self, effects: list[Effect]) -> list[Effect]:
        out: list[Effect] = []
        for _ in range(ROUNDS_MAX):
            following: list[Effect] = []
            for effect in effects:
                if isinstance(effect, (Publish, Reply, AskPending)):
                    out.append(effect)
                    continue
                answer = self.perform(effect)
                if answer is not None:
                    following += self.core.handle(answer, self.now_ms)  # type: ignore[arg-type]
            if not following:
                return out
            effects = following
        raise AssertionError("effects for ever")

    def perform(self, effect: Effect) -> Struct | None:
        """Do one effect of the scheduler's own on the ledger."""
        match effect:
            case CommitLedger(reserves=reserves):
                return LedgerAnswered(answers=now(self.ledger.commit(reserves)))
            case ReleaseHolds(attempts=attempts, nodes=nodes):
                return HoldsReleased(released=now(self.ledger.release(attempts, nodes)))
            case ConfirmHolds(attempts=attempts):
                now(self.ledger.confirm(attempts))
                return None
            case LoadLedgerRows(nodes=nodes):
                return LedgerRows(rows=now(self.ledger.rows(nodes)))
            case RefreshLedger():
                return LedgerChanges(changes=tuple(now(self.ledger.changes()).items()), floor=now(self.ledger.floor()))
            case AskStarted(attempts=attempts):
                started = tuple(each for each in attempts if each in self.started)
                return StartedKnown(started=started, waiting=tuple(each for each in attempts if each not in started))
            case PutBackRows(rows=rows, floor=floor):
                now(self.ledger.put_back(rows, floor))
                return LedgerRows(rows=now(self.ledger.rows([row.node for row in rows])))
            case ForgetRows(nodes=deleted):
                now(self.ledger.forget(deleted))
                return None
            case _:
                raise AssertionError(f"unknown effect {effect!r}")


class Story:
    """The words of a scheduler's conversation file."""

    def __init__(self) -> None:
        # Stories jump over hours. What is ordered once more every ten minutes is in tests/unit/scheduler/test_facts_missed.py.
        self.bench = Bench(SchedulerPolicy(recheck_ms=0))

    def __call__(self, command: str, args: Args) -> str:
        method = getattr(self, f"do_{command.replace('-', '_')}", None)
        if method is None:
            raise ScriptFailed("is no word of the scheduler")
        try:
            text: str = method(args)
        except InvalidInput as error:
            return f"refused: {error}"
        return text

    def do_start(self, args: Args) -> str:
        """start: a scheduler process begins and reads the ledger; an earlier one is gone."""
        args.only()
        self.bench.core = SchedulerCore()
        return delivered([*self.bench.load(), *self.bench.wake()])

    def do_node(self, args: Args) -> str:
        """node NAME zones=2 sockets=1 cpus=16 gib=64 simulated=0: what a machine is; cpus and gib are per zone.

        online=1: it runs online work; label=k:v; taint=key; gpus=2: so many, divided over the zones in order, 16 GiB each;
        reserved=0-1, align=single-numa-node, bind=full-pcpus, amplify=150, batch-most=2, colocated=0, observe=1: its
        operator's rules.
        """
        args.only(*_MACHINE, *_RULES)
        topology = a_topology(
            sockets=args.number("sockets", 1),
            zones_per_socket=args.number("zones", 2) // args.number("sockets", 1),
            cpus=args.number("cpus", 16),
            memory_gib=args.number("gib", 64),
        )
        topology = structs.replace(topology, devices=gpus(args.number("gpus", 0), len(topology.zones)))
        taints = tuple(Taint(key=key) for key in args.text("taint", "").split(",") if key)
        node = a_node(
            args.word(0),
            topology,
            simulated=args.number("simulated", 0) == 1,
            is_online=args.number("online", 0) == 1,
            labels=dict(pairs(args, "label")),
            taints=taints,
            rules=rules_of(args),
            at_ms=self.bench.now_ms,
        )
        return delivered(self.bench.say(node))

    def do_allocatable(self, args: Args) -> str:
        """allocatable NAME 4000:8 2000:4 freshness=fresh mid=1000:2,0:0: mcpu and GiB of each zone, and of its mid tier.

        replayed= the bus had kept it for so many ms.
        """
        args.only("freshness", "mid", "replayed")
        fact = an_allocatable(
            args.word(0),
            [_zone(word) for word in args.words[1:]],
            at_ms=self.bench.now_ms,
            freshness=Freshness(args.text("freshness", "fresh")),
            mid=[_zone(word) for word in args.text("mid", "").split(",") if word],
        )
        if "replayed" in args.named:
            return delivered(self.bench.say(Replayed(fact=fact, age_ms=args.number("replayed"))))
        return delivered(self.bench.say(fact))

    def do_freshness(self, args: Args) -> str:
        """freshness NAME lost."""
        fact = FreshnessChanged(
            node=args.word(0),
            freshness=Freshness(args.word(1)),
            previous=Freshness.FRESH,
            sample_seq=1,
            age_ms=0,
            at_ms=self.bench.now_ms,
        )
        effects = self.bench.say(fact)
        known = self.bench.core.cluster.node(fact.node).allocatable
        if fact.freshness.may_grow and known is not None:
            # As overcommit does: the number that says so follows.
            effects = [
                *effects,
                *self.bench.say(structs.replace(known, freshness=fact.freshness, at_ms=self.bench.now_ms)),
            ]
        return delivered(effects)

    def do_request(self, args: Args) -> str:
        """request REPLICA... cpu=1000 gib=1 attempt=1 priority=0 qos=BE band=batch queued=0 avoid=n1:5000 runs=either.

        label=k:v, tolerate=key, policy=numa, bind=full-pcpus, must-bind=1, align=single-numa-node, gpus=1, gpu-pct=50: constraints.
        """
        args.only("cpu", "gib", "attempt", "priority", "qos", "band", "queued", "avoid", "runs", *_PLACE)
        avoided = [pair.split(":") for pair in args.text("avoid", "").split(",") if pair]
        placement_requests = [
            a_placement_request(
                replica,
                attempt=args.number("attempt", 1),
                mcpu=args.number("cpu", 1000),
                memory_bytes=args.number("gib", 1) * GIB,
                priority=args.number("priority", 0),
                queued_at_ms=args.number("queued", self.bench.now_ms),
                qos=parse_qos(args.text("qos", "BE"), "qos"),
                band=PriorityBand(args.text("band", "batch")),
                avoid=tuple((node, int(until)) for node, until in avoided),
                run=RUNS[args.text("runs", "either")],
                constraints=constraints_of(args),
            )
            for replica in args.words
        ]
        # As the jobs service says it.
        is_mid = placement_requests[0].band is PriorityBand.MID
        kind = MidPlacementsRequested if is_mid else PlacementsRequested
        return delivered(self.bench.say(kind(placement_requests=tuple(placement_requests))))

    def do_restrict(self, args: Args) -> str:
        """restrict REVISION KIND:SCOPE:TARGET...: what operators forbid from now on."""
        return delivered(self.bench.say(restrictions_changed(args, self.bench.now_ms)))

    def do_withdraw(self, args: Args) -> str:
        """withdraw REPLICA#1..."""
        return delivered(self.bench.say(ReplicasWithdrawn(attempts=attempts_of(args), reason=Reason.CANCELLED)))

    def do_started(self, args: Args) -> str:
        """started REPLICA#1: the jobs service knows that it runs, should it be asked."""
        self.bench.started.update(attempts_of(args))
        return "ok"

    def do_ended(self, args: Args) -> str:
        """ended NODE REPLICA#1."""
        ((replica, attempt),) = attempts_of(args, 1)
        fact = ReplicaEnded(
            node=args.word(0),
            replica=replica,
            job=replica.split("/")[0],
            attempt=attempt,
            cause=EndCause.EXITED,
            exit_code=0,
        )
        return delivered(self.bench.say(fact))

    def do_refused(self, args: Args) -> str:
        """refused NODE REPLICA#1: the node could not start it."""
        ((replica, attempt),) = attempts_of(args, 1)
        fact = PlacementRefused(
            node=args.word(0), replica=replica, job=replica.split("/")[0], attempt=attempt, reason=Reason.START_FAILED
        )
        return delivered(self.bench.say(fact))

    def do_recovered(self, args: Args) -> str:
        """recovered NODE REPLICA#1...: the node's executor came back and runs these."""
        fact = NodeRecovered(node=args.word(0), running=attempts_of(args, 1), at_ms=self.bench.now_ms)
        return delivered(self.bench.say(fact))

    def do_rival(self, args: Args) -> str:
        """rival NODE REPLICA#1 cpu=1000 gib=1: another scheduler places this behind our back."""
        args.only("cpu", "gib")
        ((replica, attempt),) = attempts_of(args, 1)
        node = args.word(0)
        (row,) = now(self.bench.ledger.rows([node]))
        placement = a_placement(
            replica, node=node, attempt=attempt, mcpu=args.number("cpu", 1000), gib=args.number("gib", 1)
        )
        reservation = Hold(placement=placement, generation=row.revision + 1)
        reserve = NodeCommit(node=node, expect=row.revision, holds=(reservation,))
        (answer,) = now(self.bench.ledger.commit([reserve]))
        return f"revision {answer.revision}"

    def do_at(self, args: Args) -> str:
        """at MS: time passes until then; the core is woken whenever it wants to be."""
        until = int(args.word(0))
        effects: list[Effect] = []
        for _ in range(1000):
            due = self.bench.core.deadline_ms()
            if due is None or due > until:
                self.bench.now_ms = max(self.bench.now_ms, until)
                return delivered(effects)
            self.bench.now_ms = max(self.bench.now_ms, due)
            effects += self.bench.wake()
        raise ScriptFailed("woke a thousand times")

    def do_free(self, args: Args) -> str:
        """free NODE pool=batch: what is free in each zone, in mcpu and bytes."""
        args.only("pool")
        core = self.bench.core
        pool = core.cluster.view(self.bench.now_ms).pool(PoolName(args.text("pool", "batch")))
        node = core.cluster.node(args.word(0))
        zones = zip(node.zone_ids, pool.free_cpu[node.row].tolist(), pool.free_memory[node.row].tolist(), strict=False)
        return "\n".join(f"zone {zone}: {cpu} mcpu, {size(memory)}" for zone, cpu, memory in zones)

    def do_explain(self, args: Args) -> str:
        """explain JOB or REPLICA: the newest decisions."""
        name = args.word(0)
        request_spec = ExplainPlacement(job=name.split("/")[0], replica=name if "/" in name else "")
        (reply,) = self.bench.tell(RequestReceived(request="1", body=request_spec))
        assert isinstance(reply, Reply)
        assert isinstance(reply.body, PlacementsExplained)
        return "\n".join(explained(record) for record in reply.body.decisions) or "nothing is known of it"

    def do_holds(self, args: Args) -> str:
        """holds: everything the ledger holds, as overcommit asks for it."""
        (reply,) = self.bench.tell(RequestReceived(request="1", body=ListHolds()))
        assert isinstance(reply, Reply)
        if not isinstance(reply.body, HoldsReply):
            return str(reply.body)
        lines = [f"{h.node} {h.replica}#{h.attempt} {shares(h.zones)}" for h in reply.body.holds]
        return "\n".join([*lines, f"total {reply.body.total}"])

    def do_counts(self, args: Args) -> str:
        """counts: the counters that are not 0."""
        return "\n".join(f"{name} {count}" for name, count in sorted(self.bench.core.counts.items()) if count)


_MACHINE = ("zones", "sockets", "cpus", "gib", "simulated", "online", "label", "taint", "gpus")
_RULES = ("reserved", "align", "bind", "amplify", "batch-most", "colocated", "observe")
_PLACE = ("label", "tolerate", "policy", "bind", "must-bind", "align", "gpus", "gpu-pct")


def gpus(count: int, zones: int) -> tuple[Device, ...]:
    """So many devices of 16 GiB, the first ones in the first zone."""
    return tuple(
        Device(kind="gpu", device=number, zone=number * zones // count, memory_bytes=16 * GIB)
        for number in range(count)
    )


def pairs(args: Args, key: str) -> list[tuple[str, str]]:
    """ "a:1,b:2" as pairs, sorted."""
    words = [word.partition(":") for word in args.text(key, "").split(",") if word]
    return sorted((name, value) for name, _, value in words)


def rules_of(args: Args) -> NodeRules:
    most = args.number("batch-most", -1)
    return NodeRules(
        reserved_cpus=args.text("reserved", ""),
        cpu_bind=CpuBind(args.text("bind", "default")),
        numa_policy=NumaPolicy(args.text("align", "none")),
        amplification_pct=args.number("amplify", 100),
        batch_replicas_most=None if most < 0 else most,
        is_colocated=args.number("colocated", 1) == 1,
        enforcement="observe" if args.number("observe", 0) == 1 else "full",
    )


def constraints_of(args: Args) -> Constraints:
    count, core_pct = args.number("gpus", 0), args.number("gpu-pct", 0)
    return Constraints(
        node_labels=tuple(pairs(args, "label")),
        tolerations=tuple(Toleration(key=key) for key in args.text("tolerate", "").split(",") if key),
        cpu_policy=CpuPolicy(args.text("policy", "default")),
        cpu_bind=CpuBind(args.text("bind", "default")),
        cpu_bind_required=args.number("must-bind", 0) == 1,
        numa_policy=NumaPolicy(args.text("align", "none")),
        devices=(DeviceRequest(kind="gpu", count=count, core_pct=core_pct, memory_pct=core_pct),)
        if count or core_pct
        else (),
    )


def attempts_of(args: Args, first: int = 0) -> tuple[tuple[str, int], ...]:
    pairs = (word.rsplit("#", 1) for word in args.words[first:])
    return tuple((replica, int(attempt)) for replica, attempt in pairs)


def topology_of(zones: int, *, sockets: int = 1, cpus: int = 16, memory_gib: int = 64) -> NodeTopology:
    """A regular machine by its number of zones."""
    return a_topology(sockets=sockets, zones_per_socket=zones // sockets, cpus=cpus, memory_gib=memory_gib)


def answer_in(effects: Sequence[Effect]) -> Placement | PlacementRejected:
    """What became of the one want that was just said."""
    for effect in effects:
        match effect:
            case Publish(fact=PlacementsDecided(placements=placements)):
                return placements[0]
            case Publish(fact=PlacementRejected() as fact):
                return fact
            case _:
                pass
    raise AssertionError("nothing was said")


def _zone(word: str) -> tuple[int, int]:
    """Mcpu and bytes of "4000:8"."""
    cpu, gib = word.split(":")
    return int(cpu), int(gib) * GIB
