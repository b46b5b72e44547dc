"""The state machines of batch work: fires every (state, event) pair under every combination of guards.

Pairs that colo's machines have are fired there; preemption, restarts and suspension are octopus' own and `reference only`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from colo_common.model.lifecycle import JOB, REPLICA, TASK
from colo_common.model.transitions import Fired, Outcome, StateMachine, TransitionIgnored, TransitionRefused
from tests.parity.peers.octopus_job import JOB as OCTOPUS_JOB
from tests.parity.peers.octopus_notes import NO_NOTE, REPLICA_NOTES, TASK_NOTES, Note, NotedTransition
from tests.parity.peers.octopus_pair import PAIR
from tests.parity.table import JsonObject, Result, Table, difference

Pair = tuple[str, str]

#: What a service runs, and the whole tables where it runs less.
_RUN: Mapping[str, StateMachine] = {machine.name: machine for machine in (JOB, TASK, REPLICA)}
_WHOLE: Mapping[str, StateMachine] = {**_RUN, "job": OCTOPUS_JOB, "pair": PAIR}
_NOTES: Mapping[str, Mapping[str, Note]] = {
    "task": TASK_NOTES,
    "replica": REPLICA_NOTES,
    **{
        machine.name: {row.id: row.note for row in machine.transitions if isinstance(row, NotedTransition)}
        for machine in (OCTOPUS_JOB, PAIR)
    },
}
#: Guards that colo's callers have asked before they fire.
_ASKED_BEFORE = ("quota_ok", "gang_ok")


def _is_run(name: str, pair: Pair) -> bool:
    machine = _RUN.get(name)
    return machine is not None and pair[0] in machine.state_names and pair[1] in machine.events


def _fire(name: str, pair: Pair, guards: Mapping[str, bool]) -> Outcome:
    if _is_run(name, pair) and all(guards.get(guard, True) for guard in _ASKED_BEFORE):
        return _RUN[name].fire(*pair, guards)
    return _WHOLE[name].fire(*pair, guards)


def _overlap(document: JsonObject) -> int:
    machines = document.get("machines")
    if not isinstance(machines, list):
        return 0
    return sum(isinstance(machine, Mapping) and "transitions" in machine for machine in machines)


def _run(document: JsonObject) -> Iterator[Result]:
    for wanted in document.get("machines", ()):
        name = str(wanted.get("machine"))
        machine = _WHOLE.get(name)
        if machine is None:
            yield Result(name, "unknown machine")
            continue
        try:
            yield from _compare(name, wanted, machine)
        except (KeyError, TypeError, AttributeError) as error:
            yield Result(name, f"malformed machine: {type(error).__name__} {error}")


def _compare(name: str, wanted: JsonObject, machine: StateMachine) -> Iterator[Result]:
    is_reference = _RUN.get(name) is not machine
    yield Result(f"{name} states", difference(_wanted_states(wanted), _our_states(machine)), is_reference=is_reference)
    events = sorted(event["name"] for event in wanted["events"])
    yield Result(f"{name} events", difference(events, sorted(machine.events)), is_reference=is_reference)
    yield Result(f"{name} transitions", difference(_wanted_rows(wanted), _our_rows(machine)), is_reference=is_reference)
    rows: dict[Pair, list[Any]] = {}
    for row in wanted["transitions"]:
        for state in row["from"]:
            rows.setdefault((state, row["event"]), []).append(row)
    ignored = {pair: group["why"] for group in wanted["ignored"] for pair in product(group["states"], group["events"])}
    illegal = {(state, event) for state, event in wanted["illegal"]}
    for pair in product((state["name"] for state in wanted["states"]), events):
        places = [kind for kind, found in (("row", rows), ("ignored", ignored), ("illegal", illegal)) if pair in found]
        failure = _compare_pair(pair, rows.get(pair, []), ignored.get(pair), machine)
        if len(places) > 1:
            failure = f"the file lists the pair as {' and '.join(places)}"
        yield Result(f"{name} {pair[0]} {pair[1]}", failure, is_reference=not _is_run(name, pair))


def _compare_pair(pair: Pair, rows: list[Any], ignored_why: str | None, machine: StateMachine) -> str | None:
    state, event = pair
    names = {guard.removeprefix("!") for row in rows for guard in row.get("guard", ())}
    names.update(machine.guards_for(state, event))
    order = sorted(names)
    for values in product((False, True), repeat=len(order)):
        guards = dict(zip(order, values, strict=True))
        found = difference(
            _wanted_outcome(state, rows, ignored_why, guards), _shown(_fire(machine.name, pair, guards), machine.name)
        )
        if found is not None:
            return f"with {guards}: {found}" if guards else found
    return None


def _wanted_outcome(state: str, rows: list[Any], ignored_why: str | None, guards: Mapping[str, bool]) -> object:
    for row in rows:
        if all(guards[guard.removeprefix("!")] is not guard.startswith("!") for guard in row.get("guard", ())):
            return {
                "to": state if row["to"] == "=" else row["to"],
                "actions": row.get("actions", []),
                "hook": row.get("hook"),
                "id": row["id"],
            }
    if rows:
        return "refused: guard"
    return "refused: illegal" if ignored_why is None else f"ignored: {ignored_why}"


def _shown(outcome: Outcome, name: str) -> object:
    match outcome:
        case Fired():
            actions, hook = _NOTES[name].get(outcome.transition_id, NO_NOTE)
            return {
                "to": outcome.state,
                "actions": list(actions),
                "hook": hook,
                "id": outcome.transition_id,
            }
        case TransitionIgnored():
            return f"ignored: {outcome.why}"
        case TransitionRefused():
            return f"refused: {outcome.refusal}"


def _wanted_states(wanted: JsonObject) -> object:
    return sorted([s["name"], bool(s.get("initial")), bool(s.get("terminal"))] for s in wanted["states"])


def _our_states(machine: StateMachine) -> object:
    return sorted([state.name, state.is_initial, state.is_terminal] for state in machine.states)


def _wanted_rows(wanted: JsonObject) -> object:
    return sorted([row["id"], sorted(row["from"]), row["event"]] for row in wanted["transitions"])


def _our_rows(machine: StateMachine) -> object:
    return sorted([row.id, sorted(row.sources), row.event] for row in machine.transitions)


TABLE = Table("octopus_state_machines", _overlap, _run)
