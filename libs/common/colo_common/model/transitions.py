"""Closed state machines as tables: every (state, event) pair is a transition, an ignored pair or an illegal one.

`fire` returns the new state and changes nothing; the owner of the object stores the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import Final

from colo_common.model.invalid import InvalidInput

SAME: Final = "="
"""As the target of a transition: the state stays as it is."""

_MAX_GUARDS_PER_PAIR: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A state of a machine; a terminal one has no way out."""

    name: str
    meaning: str = ""
    is_initial: bool = False
    is_terminal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One row of a table: from any of `sources`, on `event`, when every guard holds ("!x": x must not hold)."""

    id: str
    sources: tuple[str, ...]
    event: str
    target: str
    guard: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignore:
    """(state, event) pairs that late or duplicate messages cause. They change nothing, are counted, and are no error."""

    states: tuple[str, ...]
    events: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Fired:
    """The event moves the object: store `state`."""

    state: str
    transition_id: str


@dataclass(frozen=True, slots=True)
class TransitionIgnored:
    """The event is late or a duplicate: nothing changes, count it."""

    why: str


class TransitionRefusal(StrEnum):
    """Why an event was refused."""

    ILLEGAL = "illegal"
    """The pair is not in the table, or the state or event is unknown: count and log it."""
    GUARD = "guard"
    """The pair is in the table, but no row's guards hold."""


@dataclass(frozen=True, slots=True)
class TransitionRefused:
    """The event must not happen now: nothing changes."""

    refusal: TransitionRefusal
    why: str


Outcome = Fired | TransitionIgnored | TransitionRefused

#: The guards of a row, each with the value that it must have.
_Conditions = tuple[tuple[str, bool], ...]
#: The answer for a pair, or its rows, each with its conditions and its answer.
_Answer = Fired | TransitionIgnored | tuple[tuple[_Conditions, Fired], ...]


class InvalidTransition(Exception):
    """A refused event in code where a refusal is a defect. The text names the machine, the state, the event and the reason."""

    def __init__(self, machine: str, state: str, event: str, refused: TransitionRefused) -> None:
        self.machine = machine
        self.state = state
        self.event = event
        self.refused = refused
        super().__init__(f"{machine}: {state} --{event}--> refused: {refused.why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateMachine:
    """A closed table. Construction raises InvalidInput unless every (state, event) pair is covered exactly once.

    It also checks that names are known and unique, that exactly one state is initial, that terminal states have no
    way out, and that of the rows of one pair never more than one can hold.
    """

    name: str
    states: tuple[State, ...]
    events: tuple[str, ...]
    transitions: tuple[Transition, ...]
    ignored: tuple[Ignore, ...] = ()
    illegal: tuple[tuple[str, str], ...] = ()
    #: The states without a way out.
    terminal: frozenset[str] = field(init=False, repr=False, compare=False)
    #: The answers of `fire` for the pairs without guards: a plain mapping for callers that ask millions of times.
    free: Mapping[tuple[str, str], Fired] = field(init=False, repr=False, compare=False)
    _rows: Mapping[tuple[str, str], tuple[Transition, ...]] = field(init=False, repr=False, compare=False)
    _ignored_why: Mapping[tuple[str, str], str] = field(init=False, repr=False, compare=False)
    #: The answer of `fire` for each pair, computed once.
    _answers: Mapping[tuple[str, str], _Answer] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows: dict[tuple[str, str], list[Transition]] = {}
        for row in self.transitions:
            for state in row.sources:
                rows.setdefault((state, row.event), []).append(row)
        ignored_why: dict[tuple[str, str], str] = {}
        for group in self.ignored:
            for pair in product(group.states, group.events):
                if pair in ignored_why:
                    raise self._invalid(f"pair {pair} is ignored twice")
                ignored_why[pair] = group.why
        object.__setattr__(self, "terminal", frozenset(state.name for state in self.states if state.is_terminal))
        object.__setattr__(self, "_rows", {pair: tuple(found) for pair, found in rows.items()})
        object.__setattr__(self, "_ignored_why", ignored_why)
        self._check_names()
        self._check_coverage()
        self._check_guards()
        answers: dict[tuple[str, str], _Answer] = {pair: TransitionIgnored(why) for pair, why in ignored_why.items()}
        for pair, found in rows.items():
            answers[pair] = _answer(pair[0], found)
        object.__setattr__(self, "_answers", answers)
        free = {pair: answer for pair, answer in answers.items() if isinstance(answer, Fired)}
        object.__setattr__(self, "free", free)

    @property
    def initial(self) -> str:
        """Return the state every object starts in."""
        return next(state.name for state in self.states if state.is_initial)

    @property
    def state_names(self) -> tuple[str, ...]:
        """Return the names of all states in table order."""
        return tuple(state.name for state in self.states)

    def guards_for(self, state: str, event: str) -> tuple[str, ...]:
        """Return the guard names, sorted, that `fire` needs for a pair; empty for a pair without any."""
        return tuple(
            sorted({guard.removeprefix("!") for row in self._rows.get((state, event), ()) for guard in row.guard})
        )

    def fire(self, state: str, event: str, guards: Mapping[str, bool] | None = None) -> Outcome:
        """Return the effect of the event on an object in `state`. Never raises, also for an unknown state or event.

        `guards` holds the value of each condition. A condition that is not given is unknown: rows that need it, plain or
        negated, do not fire.
        """
        answer = self._answers.get((state, event))
        if answer is not None:
            if not isinstance(answer, tuple):
                return answer
            return self._guarded(state, event, answer, {} if guards is None else guards)
        if event not in self.events:
            return TransitionRefused(TransitionRefusal.ILLEGAL, f"{self.name} knows no event {event!r}")
        if state not in self.state_names:
            return TransitionRefused(TransitionRefusal.ILLEGAL, f"{self.name} knows no state {state!r}")
        return TransitionRefused(TransitionRefusal.ILLEGAL, f"{event} must not happen to a {self.name} that is {state}")

    def demand(self, state: str, event: str, guards: Mapping[str, bool] | None = None) -> Fired | TransitionIgnored:
        """Return what `fire` returns. Raises InvalidTransition when `fire` refuses the event."""
        outcome = self.fire(state, event, guards)
        if isinstance(outcome, TransitionRefused):
            raise InvalidTransition(self.name, state, event, outcome)
        return outcome

    def _guarded(
        self, state: str, event: str, rows: tuple[tuple[_Conditions, Fired], ...], guards: Mapping[str, bool]
    ) -> Outcome:
        # Guards are nearly always given as bools, and this loop finds the row without a function call.
        for conditions, fired in rows:
            for name, wanted in conditions:
                if guards.get(name) is not wanted:
                    break
            else:
                return fired
        for conditions, fired in rows:
            if _hold(conditions, guards):
                return fired
        missing = [guard for guard in self.guards_for(state, event) if guard not in guards]
        if missing:
            return TransitionRefused(TransitionRefusal.GUARD, f"guards not given: {', '.join(missing)}")
        tried = "; ".join(f"{row.id} needs {', '.join(row.guard)}" for row in self._rows[state, event])
        return TransitionRefused(TransitionRefusal.GUARD, tried)

    def _check_names(self) -> None:
        names = self.state_names
        if len(set(names)) != len(names) or len(set(self.events)) != len(self.events):
            raise self._invalid("states and events must be unique")
        if sum(state.is_initial for state in self.states) != 1:
            raise self._invalid("exactly one state must be initial")
        ids = [row.id for row in self.transitions]
        if len(set(ids)) != len(ids):
            raise self._invalid("transition ids must be unique")
        for row in self.transitions:
            if row.target != SAME and row.target not in names:
                raise self._invalid(f"transition {row.id} leads to the unknown state {row.target}")
            if len(set(row.sources)) != len(row.sources):
                raise self._invalid(f"transition {row.id} names a source twice")
            left = self.terminal.intersection(row.sources)
            if left:
                raise self._invalid(f"transition {row.id} leaves the terminal state {min(left)}")

    def _check_coverage(self) -> None:
        known = set(product(self.state_names, self.events))
        if len(set(self.illegal)) != len(self.illegal):
            raise self._invalid("a pair is illegal twice")
        covered: dict[tuple[str, str], str] = {}
        groups = (("a transition", self._rows), ("ignored", self._ignored_why), ("illegal", self.illegal))
        for kind, pairs in groups:
            for pair in pairs:
                if pair not in known:
                    raise self._invalid(f"pair {pair} is {kind} but names an unknown state or event")
                if pair in covered:
                    raise self._invalid(f"pair {pair} is both {covered[pair]} and {kind}")
                covered[pair] = kind
        missing = known.difference(covered)
        if missing:
            raise self._invalid(f"pair {min(missing)} is neither a transition nor ignored nor illegal")

    def _check_guards(self) -> None:
        for (state, event), rows in self._rows.items():
            names = self.guards_for(state, event)
            if len(names) > _MAX_GUARDS_PER_PAIR:
                raise self._invalid(f"pair {(state, event)} has more than {_MAX_GUARDS_PER_PAIR} guards")
            for values in product((False, True), repeat=len(names)):
                guards = dict(zip(names, values, strict=True))
                holding = [row.id for row in rows if _hold(_conditions(row.guard), guards)]
                if len(holding) > 1:
                    raise self._invalid(f"rows {', '.join(holding)} can both hold in {(state, event)}")

    def _invalid(self, rule: str) -> InvalidInput:
        return InvalidInput(f"machine {self.name}", rule, self.name)


def _answer(state: str, rows: Iterable[Transition]) -> _Answer:
    """The precomputed answer for a pair: the result itself for one row without guards, else the rows with their conditions."""
    known = tuple((_conditions(row.guard), Fired(state if row.target == SAME else row.target, row.id)) for row in rows)
    return known[0][1] if len(known) == 1 and not known[0][0] else known


def _conditions(guard: tuple[str, ...]) -> _Conditions:
    return tuple((condition.removeprefix("!"), not condition.startswith("!")) for condition in guard)


def _hold(conditions: _Conditions, guards: Mapping[str, bool]) -> bool:
    for name, wanted in conditions:
        value = guards.get(name)
        if value is None or bool(value) is not wanted:
            return False
    return True
