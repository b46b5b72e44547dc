"""Conversations with the jobs core: what is told to it, and what it says then."""

from pathlib import Path

import pytest

from colo_common.events.effects import Publish, Reply
from colo_common.events.fact import Fact
from colo_common.events.job import (
    JobStateChanged,
    JobSubmitted,
    PlacementsRequested,
    QueueChanged,
    ReplicasChanged,
    ReplicasWithdrawn,
    StopReplicas,
)
from colo_common.events.requests import CancelJob, HoldEntry, HoldsListed, JobAccepted, Refusal, SubmitJob
from colo_common.events.waiting import ExplainWait, JobWait
from colo_common.model.freshness import Freshness
from colo_common.model.placement import ZoneShare
from colo_common.model.reasons import EndCause, Reason
from colo_jobs.admission import QueueLimits
from colo_jobs.effects import AskHolds, LogRefused
from colo_jobs.policy import JobsPolicy
from tests.support.jobs_world import JobsWorld, a_spec, a_task
from tests.support.scripts import Args, Play, ScriptFailed, script_files

FILES = script_files(Path(__file__).parent)


class Conversation:
    """One world a file. Commands are the facts of the system in short; the output is what the core published, in order."""

    def __init__(self) -> None:
        self.world = JobsWorld()

    def __call__(self, command: str, args: Args) -> str:
        handler = getattr(self, f"do_{command.replace('-', '_')}", None)
        if handler is None:
            raise ScriptFailed(f"there is no command {command!r}")
        published, replies, own = len(self.world.published), len(self.world.replies), len(self.world.own)
        text = handler(args)
        lines = [text] if isinstance(text, str) else []
        lines += [answer for reply in self.world.replies[replies:] if (answer := shown_reply(reply))]
        lines += [shown(publish) for publish in self.world.published[published:]]
        for effect in self.world.own[own:]:
            if isinstance(effect, LogRefused):
                lines.append(f"refused: {effect.machine} {effect.state} {effect.event}")
        return "\n".join(lines)

    def do_queue(self, args: Args) -> None:
        """queue NAME waiting=N jobs=N: the only queue; before anything else."""
        limits = QueueLimits(max_waiting=args.number("waiting"), max_jobs=args.number("jobs", 100))
        self.world = JobsWorld(JobsPolicy(queues={args.word(0): limits}))

    def do_submit(self, args: Args) -> None:
        """submit JOB [queue=Q], one task a line: NAME replicas=N retry=N min_succeeded=N max_failed=N."""
        tasks = []
        for line in args.body or ("main",):
            name, *words = line.split()
            named = dict(word.split("=") for word in words)
            tasks.append(
                a_task(
                    name,
                    int(named.get("replicas", 1)),
                    max_retry=int(named.get("retry", 0)),
                    min_succeeded=int(named["min_succeeded"]) if "min_succeeded" in named else None,
                    max_failed=int(named["max_failed"]) if "max_failed" in named else None,
                )
            )
        self.world.ask(SubmitJob(job=args.word(0), spec=a_spec(*tasks, queue=args.text("queue", "default"))))

    def do_wait(self, args: Args) -> str:
        """wait JOB: how it waits."""
        wait = self.world.ask(ExplainWait(job=args.word(0)))
        assert isinstance(wait, JobWait)
        rest = wait.why_none if wait.rest_ms is None else f"{wait.rest_ms} ms more"
        avoid = "".join(f"; not on {node} for {rest_ms} ms" for node, rest_ms in wait.avoid)
        return (
            f"{wait.replica or 'none'} of {wait.waiting} waits since {wait.waited_ms} ms, {wait.ahead} ahead "
            f"({wait.ahead_in_queue} in queue {wait.queue}); {rest} (by {wait.placed}, error {wait.error_ms}){avoid}"
        )

    def do_cancel(self, args: Args) -> None:
        self.world.ask(CancelJob(job=args.word(0)))

    def do_placed(self, args: Args) -> None:
        self.world.feed(self.world.placed(args.word(0), args.text("node", "n1"), args.number("attempt", 1)))

    def do_started(self, args: Args) -> None:
        where = (args.text("node", "n1"), args.number("attempt", 1))
        self.world.feed(self.world.started(args.word(0), *where, again=args.number("again", 0) == 1))

    def do_ended(self, args: Args) -> None:
        cause = EndCause(args.text("cause", "exited"))
        where = (args.text("node", "n1"), args.number("attempt", 1))
        self.world.feed(self.world.ended(args.word(0), *where, cause, args.number("code", 0)))

    def do_refused(self, args: Args) -> None:
        where = (args.text("node", "n1"), args.number("attempt", 1))
        reason = Reason(args.text("reason", "cgroup-refused"))
        self.world.feed(self.world.refused(args.word(0), *where, reason, args.number("newest", 0)))

    def do_freshness(self, args: Args) -> None:
        self.world.feed(self.world.freshness(args.word(0), Freshness(args.word(1))))

    def do_recovered(self, args: Args) -> None:
        running = [(name, int(attempt)) for name, attempt in (word.split("#") for word in args.words[1:])]
        self.world.feed(self.world.recovered(args.word(0), *running))

    def do_holds(self, args: Args) -> None:
        """holds NODE REPLICA#1...: all that the ledger holds, when jobs has asked for it."""
        assert AskHolds() in self.world.own
        zones = (ZoneShare(zone=0, cpu_mcpu=1_000, memory_bytes=1),)
        named = [(name, int(attempt)) for name, attempt in (word.split("#") for word in args.words[1:])]
        holds = tuple(HoldEntry(node=args.word(0), replica=name, attempt=number, zones=zones) for name, number in named)
        self.world.feed(HoldsListed(holds=holds, asked_at_ms=self.world.now_ms))

    def do_at(self, args: Args) -> None:
        """at SECONDS: until then, with every timer that is due before."""
        self.world.at(int(float(args.word(0)) * 1_000))

    def do_restart(self, args: Args) -> None:
        self.world.restart()

    def do_job(self, args: Args) -> str:
        """The job as `get` answers it, one line a replica."""
        detail = self.world.job(args.word(0))
        lines = [f"{detail.summary.state}"]
        for replica in detail.replicas:
            extra = f" on {replica.node}" if replica.node else ""
            why = f" ({replica.reason})" if replica.reason else ""
            lines.append(
                f"{replica.replica}#{replica.attempt} {replica.state}{extra} retries={replica.retries} "
                f"evictions={replica.evictions}{why}"
            )
        return "\n".join(lines)

    def do_story(self, args: Args) -> str:
        return "\n".join(f"{line.at_ms} {line.what}" for line in self.world.job(args.word(0)).story)


def shown_reply(reply: Reply) -> str:
    match reply.body:
        case JobAccepted(job=job, state=state):
            return f"answer: {job} {state}"
        case Refusal(code=code):
            return f"answer: {code} {reply.body}"
        case _:
            return ""


def shown(publish: Publish) -> str:
    fact: Fact = publish.fact
    match fact:
        case JobSubmitted(job=job):
            return f"submitted {job}"
        case JobStateChanged():
            return f"job {fact.job} {fact.previous} -> {fact.state} [{fact.transition}]"
        case ReplicasChanged():
            return "\n".join(
                f"replica {change.replica}#{change.attempt} {change.previous} -> {change.state} [{change.transition}]"
                + "".join(f" {part}" for part in (change.cause, change.reason) if part is not None)
                for change in fact.changes
            )
        case PlacementsRequested():
            placement_requests = (
                f"{placement_request.replica}#{placement_request.attempt}"
                + "".join(f" avoid {node}" for node, _ in placement_request.avoid)
                for placement_request in fact.placement_requests
            )
            return f"wanted {', '.join(placement_requests)}"
        case ReplicasWithdrawn():
            attempts = ", ".join(f"{replica}#{attempt}" for replica, attempt in fact.attempts)
            return f"withdrawn {attempts} ({fact.reason})"
        case StopReplicas():
            stops = ", ".join(f"{stop.replica}#{stop.attempt} ({stop.reason})" for stop in fact.stops)
            return f"stop on {fact.node}: {stops}"
        case QueueChanged():
            return f"queue {fact.queue}: waiting {fact.waiting}, placed {fact.running}"
        case _:
            raise ScriptFailed(f"says something unexpected: {type(fact).__name__}")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_jobs_core_answers_as_written(path: Path, play: Play) -> None:
    play(path, Conversation())
