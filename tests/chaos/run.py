"""A run: faults in the order of a seed while jobs are submitted, each until all is well again; then a drain and the audit."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from tests.audit.findings import Findings
from tests.audit.judge import judge
from tests.audit.recording import read
from tests.chaos.cluster import ROOT, ChaosCluster
from tests.chaos.faults import Deck, Fault, draw, inject, kinds_for
from tests.chaos.load import ENDED, Load
from tests.chaos.takeovers import TAKEN_WITHIN_S, Takeover, Takeovers

__all__ = ["ChaosFailed", "Happened", "Outcome", "Plan", "run", "wait_ready"]

_LOOK_S: Final = 0.25
_ASK_AGAIN_S: Final = 0.5
_START_LIMIT_S: Final = 180.0
_DRAIN_LIMIT_S: Final = 180.0
_RECORDER_LIMIT_S: Final = 180.0
_CALM_S: Final = 1.0


class ChaosFailed(Exception):
    """The run could not begin or end; the text says why."""


class Plan(Struct, frozen=True, kw_only=True):
    """What is asked of a run, which ends early after `minutes`, as on a slow machine.

    With fewer faults than `faults_least` it is no good, and without the `demanded` kinds, which were asked for by name.
    """

    seed: int
    faults: int
    faults_least: int
    demanded: tuple[str, ...] = ()
    nodes: int
    kinds: tuple[str, ...]
    hold_most_s: float
    ready_within_s: float
    period_s: float
    minutes: float


class Happened(Struct, frozen=True, kw_only=True):
    """One fault, the seconds until all was ready and a new job ran again, and why it was not when that took too long.

    `takeovers`: of what each struck instance held when it began, where that was to become another one's.
    """

    number: int
    fault: Fault
    ready_s: float
    late: str = ""
    takeovers: tuple[Takeover, ...] = ()


class Outcome(Struct, frozen=True, kw_only=True):
    """What came of a run of this plan."""

    plan: Plan
    happened: tuple[Happened, ...]
    left_out: dict[str, str]
    findings: Findings
    accepted: int
    unfinished: tuple[str, ...]
    refused: tuple[str, ...]
    ended_by_themselves: tuple[str, ...]
    cancelled: int
    drains: int

    @property
    def unproved(self) -> list[str]:
        """What was asked of the run and did not happen in it, so that it proves nothing of that."""
        plan, count = self.plan, len(self.happened)
        found = [f"{kind}: {why}" for kind, why in self.left_out.items() if kind in plan.demanded]
        if count < plan.faults_least:
            found.append(
                f"{count} of {plan.faults} faults in {plan.minutes:g} minutes, of which at least {plan.faults_least} are needed"
            )
        kinds = {one.fault.kind for one in self.happened}
        if plan.faults >= len(plan.kinds):
            found += [f"{kind}: it did not come" for kind in plan.demanded if kind not in kinds | self.left_out.keys()]
        if any(
            one.fault.kind == "holder" and len(one.takeovers) < len(one.fault.target.split()) for one in self.happened
        ):
            found.append("holder: who held what was not known of every service")
        return found

    @property
    def takeovers(self) -> list[Takeover]:
        """Every one that was measured."""
        return [takeover for one in self.happened for takeover in one.takeovers]

    @property
    def is_good(self) -> bool:
        """Whether enough happened, and every promise held."""
        late = [one for one in self.happened if one.late] or [one for one in self.takeovers if one.is_late]
        broken = self.findings.violations or late or self.unfinished or self.refused or self.ended_by_themselves
        return not (broken or self.unproved)


async def run(plan: Plan, cluster: ChaosCluster, say: Callable[[str], None]) -> Outcome:
    """Live through the plan. Raises ChaosFailed when the cluster never becomes ready."""
    recording, accepted = cluster.directory / "recording.jsonl", cluster.directory / "accepted.jsonl"
    recording.touch()
    accepted.touch()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(cluster)
        nodes = [f"node-{number:02}" for number in range(1, plan.nodes + 1)]
        load = await stack.enter_async_context(Load(cluster.gateway_urls, nodes, plan.seed, plan.period_s, accepted))
        problems = await wait_ready(cluster, load, _START_LIMIT_S)
        if problems:
            raise ChaosFailed(f"not ready within {_START_LIMIT_S:g} s of the start: {problems}")
        await cluster.stores.settle()
        say(f"ready: {', '.join(cluster.instances)}; {', '.join(cluster.stores.servers)}")
        takeovers = Takeovers(cluster)
        stack.push_async_callback(takeovers.close)
        recorder = await _start_recorder(cluster, recording)
        submitting = asyncio.create_task(load.run())
        try:
            kinds, left_out = kinds_for(cluster, plan.kinds)
            happened = await _live(plan, cluster, load, takeovers, kinds, say)
        finally:
            submitting.cancel()
            await asyncio.gather(submitting, return_exceptions=True)
        say("drain: no more jobs, until every accepted one has ended")
        unfinished = await _drained(load)
        await _stop_recorder(recorder)
        if submitting.cancelled() is False and submitting.exception() is not None:
            raise ChaosFailed(f"the load ended: {submitting.exception()}")
    found = judge(record for path in (recording, accepted) for record in read(path))
    return Outcome(
        plan=plan,
        happened=tuple(happened),
        left_out=left_out,
        findings=found,
        accepted=len(load.accepted),
        unfinished=tuple(unfinished),
        refused=tuple(load.refused),
        ended_by_themselves=tuple(cluster.ended),
        cancelled=load.cancelled,
        drains=load.drains,
    )


async def _live(
    plan: Plan,
    cluster: ChaosCluster,
    load: Load,
    takeovers: Takeovers,
    kinds: list[str],
    say: Callable[[str], None],
) -> list[Happened]:
    chance = random.Random(f"faults {plan.seed}")
    deck = Deck(chance, plan.kinds, kinds)
    begun_s = time.monotonic()
    happened: list[Happened] = []
    for number in range(1, plan.faults + 1):
        if time.monotonic() - begun_s > plan.minutes * 60:
            say(f"the {plan.minutes:g} minutes are over after {len(happened)} faults")
            break
        fault = draw(chance, cluster, deck.next(), plan.hold_most_s)
        calm_s = chance.uniform(0.0, _CALM_S)
        await asyncio.sleep(calm_s)
        fault, watching = await _watched(cluster, load, takeovers, fault)
        at_s = time.monotonic() - begun_s
        await inject(cluster, fault, watching)
        since_s = time.monotonic()
        late = await wait_ready(cluster, load, plan.ready_within_s)
        ready_s = time.monotonic() - since_s
        # Who stands by is ready too, before it serves.
        taken = tuple(await asyncio.gather(*watching))
        one = Happened(number=number, fault=fault, ready_s=ready_s, late=late, takeovers=taken)
        happened.append(one)
        say(f"{number:4} at {at_s:6.1f} s  {fault!s:58} for {fault.hold_s:4.1f} s  ready after {one.ready_s:5.2f} s")
        for takeover in taken:
            say(f"     {takeover}")
        if late:
            say(f"     NOT READY within {plan.ready_within_s:g} s: {late}")
    return happened


async def _watched(
    cluster: ChaosCluster, load: Load, takeovers: Takeovers, fault: Fault
) -> tuple[Fault, list[asyncio.Task[Takeover]]]:
    """The fault with the instances that it befalls, and the takeover of what each of them holds."""
    if not fault.is_takeover:
        return fault, []
    holdings = await takeovers.holdings(await load.services())
    if fault.kind == "holder":
        # What the fault before struck may just be moving.
        deadline_s = time.monotonic() + TAKEN_WITHIN_S
        while not {one.service for one in holdings.values()} >= set(fault.target.split()):
            if time.monotonic() > deadline_s:
                break
            await asyncio.sleep(_ASK_AGAIN_S)
            holdings = await takeovers.holdings(await load.services())
        holder_of = {one.service: name for name, one in holdings.items()}
        fault = structs.replace(fault, target=" ".join(holder_of.get(one, one) for one in fault.target.split()))
    struck = [holdings[name] for name in fault.target.split() if name in holdings]
    return fault, [asyncio.create_task(takeovers.of(one)) for one in struck if one.service in cluster.shared_services]


async def wait_ready(cluster: ChaosCluster, load: Load, limit_s: float) -> str:
    """Wait until every process is ready and a job that is submitted now has run. Returns why not, when that takes too long."""
    deadline_s = time.monotonic() + limit_s
    problems: dict[str, str] = {}
    while time.monotonic() < deadline_s:
        problems = await cluster.problems()
        if not problems:
            break
        await asyncio.sleep(_LOOK_S)
    else:
        return "; ".join(f"{name}: {problem}" for name, problem in problems.items())
    job = ""
    try:
        async with asyncio.timeout(max(1.0, deadline_s - time.monotonic())):
            job = await load.probe()
            while await load.state_of(job) not in ENDED:
                await asyncio.sleep(_ASK_AGAIN_S / 2)
    except TimeoutError:
        found = f"job {job} did not run: {await load.why(job)}" if job else "no gateway took a job"
        return f"{found}; {await cluster.problems()}"
    return ""


async def _drained(load: Load) -> list[str]:
    """Wait until every accepted job has ended; those that have not within the limit."""
    unfinished: list[str] = []
    try:
        async with asyncio.timeout(_DRAIN_LIMIT_S):
            await load.lift_all()
            await load.finish()
            while unfinished := await load.unfinished():
                await asyncio.sleep(_ASK_AGAIN_S)
    except TimeoutError:
        return unfinished or ["a submission was not answered"]
    return []


async def _start_recorder(cluster: ChaosCluster, path: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.audit",
        "record",
        "--nats",
        cluster.stores.nats_url,
        "--redis",
        cluster.stores.redis_url,
        "--parent",
        str(os.getpid()),
        str(path),
        cwd=ROOT,
        stderr=(cluster.directory / "recorder.log").open("wb"),
    )


async def _stop_recorder(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(_RECORDER_LIMIT_S):
            code = await process.wait()
    except TimeoutError:
        process.kill()
        raise ChaosFailed(f"the auditor did not end within {_RECORDER_LIMIT_S:g} s") from None
    if code:
        raise ChaosFailed(f"the auditor ended with {code}; see recorder.log")
