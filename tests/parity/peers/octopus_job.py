"""The life of a job with a gang's start and delayed preemption on both sides: octopus' table, of which colo runs a part."""

from __future__ import annotations

from typing import Final

from colo_common.model.transitions import SAME, Ignore, State, StateMachine
from tests.parity.peers.octopus_notes import NotedTransition

_STATES: Final = (
    State(name="Pending", is_initial=True, meaning="accepted, not admitted to the queue quota"),
    State(name="Inqueue", meaning="admitted: minResources reserved in the queue, replicas may be placed"),
    State(
        name="Privileged",
        meaning=(
            "waiting job whose preemption pair exists: victims are marked or being stopped, free "
            "capacity is held for it; cannot be a victim"
        ),
    ),
    State(name="Running", meaning="gang bound: at least minAvailable replicas placed"),
    State(
        name="WillEvicted",
        meaning="running victim: timer armed, still runs at full speed; cannot be a victim of anybody else",
    ),
    State(name="Evicting", meaning="timer fired (or owner released): the whole job is being stopped"),
    State(name="Restarting", meaning="all replicas being stopped for a restart"),
    State(name="Aborting", meaning="being suspended"),
    State(name="Aborted", meaning="suspended, holds nothing, can be resumed"),
    State(name="Completing", meaning="ended with success, the rest is being stopped"),
    State(name="Failing", meaning="ended with failure, the rest is being stopped"),
    State(name="Terminating", meaning="being stopped by the user"),
    State(name="Completed", is_terminal=True, meaning="final"),
    State(name="Failed", is_terminal=True, meaning="final"),
    State(name="Terminated", is_terminal=True, meaning="final"),
    State(name="Evicted", meaning="stopped by preemption; requeued (default) or left for the owner"),
)

_EVENTS: Final = (
    "admit",  # queue admission
    "revoke",  # queue closed or quota shrunk before placement
    "gang_bound",  # scheduler
    "gang_lost",  # scheduler: bound replicas < minAvailable
    "plan",  # preemption planner
    "plan_cancelled",  # pair
    "victims_gone",  # pair
    "reservation_expired",  # timer of the pair
    "mark",  # pair
    "unmark",  # pair
    "fire",  # pair
    "release",  # owner of the victim
    "tasks_done",  # task machines: all tasks final
    "complete_job",  # policy or user
    "fail_job",  # policy
    "restart_job",  # policy or user
    "abort_job",  # user or policy
    "resume_job",  # user
    "terminate_job",  # user or policy
    "all_gone",  # replica machines: no live replica left
    "requeue",  # pair owner / user
)

_TRANSITIONS: Final = (
    NotedTransition(
        id="J01",
        sources=("Pending",),
        event="admit",
        target="Inqueue",
        guard=("quota_ok",),
        actions=("reserve minResources in queue",),
    ),
    NotedTransition(id="J02", sources=("Inqueue",), event="revoke", target="Pending", actions=("release reservation",)),
    NotedTransition(
        id="J03",
        sources=("Privileged",),
        event="revoke",
        target="Pending",
        actions=("pair.preemptor_left(revoked)", "release reservation"),
    ),
    NotedTransition(
        id="J04",
        sources=("Inqueue",),
        event="gang_bound",
        target="Running",
        guard=("gang_ok",),
        actions=("start all replicas",),
        hook="job_started (billing start)",
    ),
    NotedTransition(
        id="J05",
        sources=("Privileged",),
        event="gang_bound",
        target="Running",
        guard=("gang_ok",),
        actions=("pair.fit if Armed", "use held capacity", "start all replicas"),
        hook="job_started (billing start)",
    ),
    NotedTransition(
        id="J06",
        sources=("Inqueue",),
        event="plan",
        target="Privileged",
        guard=("right",),
        actions=("pair created and Armed",),
        hook="job_privileged(pair, deadline)",
    ),
    NotedTransition(
        id="J07",
        sources=("Privileged",),
        event="plan_cancelled",
        target="Inqueue",
        actions=("cooldown before the next plan",),
        hook="job_preemption_cancelled",
    ),
    NotedTransition(
        id="J08",
        sources=("Privileged",),
        event="victims_gone",
        target=SAME,
        actions=("hold the freed capacity for reservation_ttl",),
    ),
    NotedTransition(
        id="J09",
        sources=("Privileged",),
        event="reservation_expired",
        target="Inqueue",
        actions=("release held capacity", "cooldown"),
    ),
    NotedTransition(
        id="J10",
        sources=("Running",),
        event="mark",
        target="WillEvicted",
        guard=("eligible",),
        actions=("store pair id, deadline",),
        hook="job_will_evict(deadline)",
    ),
    NotedTransition(
        id="J11",
        sources=("WillEvicted",),
        event="unmark",
        target="Running",
        actions=("clear pair id, deadline",),
        hook="job_evict_cancelled",
    ),
    NotedTransition(
        id="J12",
        sources=("WillEvicted",),
        event="fire",
        target="Evicting",
        guard=("due",),
        actions=("stop all replicas with grace",),
        hook="job_evicting",
    ),
    NotedTransition(
        id="J13",
        sources=("WillEvicted",),
        event="release",
        target="Evicting",
        actions=("stop all replicas with grace",),
        hook="job_evicting",
    ),
    NotedTransition(
        id="J14",
        sources=("Running", "WillEvicted"),
        event="tasks_done",
        target="Completed",
        guard=("ok",),
        actions=("pair.victim_left if marked",),
        hook="job_ended (billing stop)",
    ),
    NotedTransition(
        id="J15",
        sources=("Running", "WillEvicted"),
        event="tasks_done",
        target="Failed",
        guard=("!ok",),
        actions=("pair.victim_left if marked",),
        hook="job_ended (billing stop)",
    ),
    NotedTransition(
        id="J16",
        sources=("Evicting",),
        event="tasks_done",
        target="Completed",
        guard=("ok",),
        actions=("pair.victim_gone",),
        hook="job_ended (billing stop)",
    ),
    NotedTransition(
        id="J17",
        sources=("Evicting",),
        event="tasks_done",
        target=SAME,
        guard=("!ok",),
        actions=("wait for all_gone: stopped replicas count as failed",),
    ),
    NotedTransition(
        id="J18",
        sources=("Running", "WillEvicted"),
        event="complete_job",
        target="Completing",
        actions=("stop live replicas, keep finished ones",),
    ),
    NotedTransition(
        id="J19",
        sources=("Running", "WillEvicted", "Inqueue"),
        event="fail_job",
        target="Failing",
        actions=("stop live replicas, keep finished ones",),
    ),
    NotedTransition(
        id="J20",
        sources=("Running", "WillEvicted"),
        event="restart_job",
        target="Restarting",
        guard=("retries_left",),
        actions=("retry_count += 1", "stop all replicas"),
    ),
    NotedTransition(
        id="J21",
        sources=("Running", "WillEvicted"),
        event="restart_job",
        target="Failing",
        guard=("!retries_left",),
        actions=("stop all replicas",),
    ),
    NotedTransition(
        id="J22",
        sources=("Running", "WillEvicted", "Restarting"),
        event="abort_job",
        target="Aborting",
        actions=("stop live replicas",),
    ),
    NotedTransition(
        id="J23",
        sources=("Pending", "Inqueue", "Privileged"),
        event="abort_job",
        target="Aborted",
        actions=("pair.preemptor_left if Privileged", "release reservation"),
    ),
    NotedTransition(id="J24", sources=("Aborted",), event="resume_job", target="Pending", actions=("attempt += 1",)),
    NotedTransition(
        id="J25", sources=("Aborting",), event="resume_job", target="Restarting", actions=("attempt += 1",)
    ),
    NotedTransition(
        id="J26",
        sources=("Running", "WillEvicted", "Restarting", "Aborting", "Evicting"),
        event="terminate_job",
        target="Terminating",
        actions=("stop all replicas", "a marked victim stays in its pair until all_gone"),
    ),
    NotedTransition(
        id="J27",
        sources=("Pending", "Inqueue", "Privileged", "Aborted", "Evicted"),
        event="terminate_job",
        target="Terminated",
        actions=("pair.preemptor_left if Privileged", "release reservation"),
        hook="job_ended",
    ),
    NotedTransition(
        id="J28",
        sources=("Completing",),
        event="all_gone",
        target="Completed",
        actions=("pair.victim_left if marked",),
        hook="job_ended (billing stop)",
    ),
    NotedTransition(
        id="J29",
        sources=("Failing",),
        event="all_gone",
        target="Failed",
        actions=("pair.victim_left if marked",),
        hook="job_ended (billing stop)",
    ),
    NotedTransition(
        id="J30",
        sources=("Terminating",),
        event="all_gone",
        target="Terminated",
        actions=("pair.victim_left if marked",),
        hook="job_ended (billing stop)",
    ),
    NotedTransition(
        id="J31",
        sources=("Aborting",),
        event="all_gone",
        target="Aborted",
        actions=("pair.victim_left if marked",),
        hook="job_suspended (billing stop)",
    ),
    NotedTransition(
        id="J32",
        sources=("Evicting",),
        event="all_gone",
        target="Evicted",
        actions=("pair.victim_gone",),
        hook="job_evicted (billing stop)",
    ),
    NotedTransition(
        id="J33",
        sources=("Restarting",),
        event="all_gone",
        target="Pending",
        guard=("retries_left",),
        actions=("attempt += 1", "pair.victim_left if marked"),
    ),
    NotedTransition(
        id="J34",
        sources=("Restarting",),
        event="all_gone",
        target="Failed",
        guard=("!retries_left",),
        actions=("pair.victim_left if marked",),
        hook="job_ended (billing stop)",
    ),
    NotedTransition(
        id="J35",
        sources=("Evicted",),
        event="requeue",
        target="Pending",
        guard=("requeue",),
        actions=("attempt += 1", "keep submit time (ageing)"),
    ),
    NotedTransition(
        id="J36",
        sources=("Running", "WillEvicted"),
        event="gang_lost",
        target=SAME,
        actions=("replace missing replicas", "start gang_lost timer -> restart_job"),
    ),
)

_IGNORED: Final = (
    Ignore(
        states=(
            "Completing",
            "Failing",
            "Terminating",
            "Aborting",
            "Restarting",
            "Completed",
            "Failed",
            "Terminated",
            "Aborted",
            "Evicted",
        ),
        events=("fire", "unmark"),
        why="the pair raced with an end of the job; the pair learns of it through all_gone / victim_left",
    ),
    Ignore(states=("Evicting",), events=("fire", "release"), why="duplicate"),
    Ignore(
        states=("Evicting",),
        events=("unmark",),
        why="cancel came after the timer fired: too late, counted as late_cancel",
    ),
    Ignore(
        states=("Running", "Inqueue", "Pending", "Aborted", "Completed", "Failed", "Terminated"),
        events=("plan_cancelled", "victims_gone", "reservation_expired"),
        why="late message of a finished pair",
    ),
    Ignore(
        states=("Completed", "Failed", "Terminated", "Evicted", "Aborted"),
        events=("all_gone", "tasks_done", "gang_lost"),
        why="late replica report",
    ),
    Ignore(
        states=("Completing", "Failing", "Terminating", "Aborting", "Restarting"),
        events=("tasks_done", "gang_lost"),
        why="wait for all_gone",
    ),
    Ignore(
        states=("Evicting",),
        events=("gang_lost", "complete_job", "fail_job", "restart_job", "abort_job"),
        why="already being stopped",
    ),
    Ignore(
        states=("Completing", "Failing", "Terminating"),
        events=("complete_job", "fail_job", "restart_job", "abort_job", "terminate_job"),
        why="already ending",
    ),
    Ignore(states=("Restarting",), events=("restart_job", "fail_job", "complete_job"), why="already stopping"),
    Ignore(
        states=("Aborting", "Aborted"),
        events=("abort_job", "restart_job", "fail_job", "complete_job"),
        why="already stopping",
    ),
    Ignore(
        states=("Completed", "Failed", "Terminated"),
        events=("terminate_job", "abort_job", "complete_job", "fail_job", "restart_job"),
        why="final: command is answered with 409, no change",
    ),
    Ignore(
        states=(
            "Inqueue",
            "Privileged",
            "Running",
            "WillEvicted",
            "Evicting",
            "Completing",
            "Failing",
            "Terminating",
            "Aborting",
            "Restarting",
            "Completed",
            "Failed",
            "Terminated",
        ),
        events=("admit",),
        why="duplicate",
    ),
    Ignore(states=("Aborted", "Evicted"), events=("admit",), why="raced with a stop"),
    Ignore(
        states=(
            "Pending",
            "Aborted",
            "Evicted",
            "Evicting",
            "Completing",
            "Failing",
            "Terminating",
            "Aborting",
            "Restarting",
            "Completed",
            "Failed",
            "Terminated",
        ),
        events=("gang_bound",),
        why="scheduler lost the race: it releases the placement",
    ),
    Ignore(
        states=(
            "Aborted",
            "Evicted",
            "Completing",
            "Failing",
            "Terminating",
            "Aborting",
            "Restarting",
            "Completed",
            "Failed",
            "Terminated",
        ),
        events=("mark", "plan", "revoke"),
        why="planner or queue lost the race: replan",
    ),
    Ignore(
        states=("Running", "WillEvicted"), events=("revoke",), why="already placed: running jobs keep their resources"
    ),
)

_ILLEGAL: Final = {
    "Aborted": "release requeue",
    "Aborting": "plan_cancelled release requeue reservation_expired victims_gone",
    "Completed": "release requeue resume_job",
    "Completing": "plan_cancelled release requeue reservation_expired resume_job victims_gone",
    "Evicted": (
        "abort_job complete_job fail_job plan_cancelled release reservation_expired restart_job resume_job victims_gone"
    ),
    "Evicting": "mark plan plan_cancelled requeue reservation_expired resume_job revoke victims_gone",
    "Failed": "release requeue resume_job",
    "Failing": "plan_cancelled release requeue reservation_expired resume_job victims_gone",
    "Inqueue": ("all_gone complete_job fire gang_lost mark release requeue restart_job resume_job tasks_done unmark"),
    "Pending": (
        "all_gone complete_job fail_job fire gang_lost mark plan release requeue restart_job "
        "resume_job revoke tasks_done unmark"
    ),
    "Privileged": (
        "all_gone complete_job fail_job fire gang_lost mark plan release requeue restart_job "
        "resume_job tasks_done unmark"
    ),
    "Restarting": "plan_cancelled release requeue reservation_expired resume_job victims_gone",
    "Running": "all_gone fire gang_bound plan release requeue resume_job unmark",
    "Terminated": "release requeue resume_job",
    "Terminating": "plan_cancelled release requeue reservation_expired resume_job victims_gone",
    "WillEvicted": ("all_gone gang_bound mark plan plan_cancelled requeue reservation_expired resume_job victims_gone"),
}

JOB: Final = StateMachine(
    name="job",
    states=_STATES,
    events=_EVENTS,
    transitions=_TRANSITIONS,
    ignored=_IGNORED,
    illegal=tuple((state, event) for state, events in _ILLEGAL.items() for event in events.split()),
)
