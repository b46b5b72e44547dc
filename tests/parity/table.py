"""What a parity table is: a file of recorded cases, and the code that answers them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

JsonObject = Mapping[str, Any]

_TOLERANCE = 1e-9


class UnknownSentence(Exception):
    """A case asks in words, and these words are not known; the case counts as failed and says so."""


class NotReplayed(Exception):
    """A case records an observation, such as wall-clock timing, that cannot be repeated; it counts neither way."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The answer to a case that asks for what no service does; `tests.parity.peers` computed it, or a part of it."""

    value: object


def reference_only(answer: Callable[[JsonObject], object]) -> Callable[[JsonObject], Reference]:
    """Return the function with every answer marked as `Reference`."""

    def marked(case: JsonObject) -> Reference:
        return Reference(answer(case))

    return marked


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to one case. `failure` says what differed, None when nothing did.

    `is_reference`: code that no service runs answered, so the case says nothing of what colo does.
    """

    name: str
    failure: str | None = None
    is_replayed: bool = True
    is_reference: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Code for the files of one schema.

    `stem` is the file's name without ".json"; `overlap` says how many of a document's parts it would recognise, which
    decides for files under other names; `run` yields one result per case.
    """

    stem: str
    overlap: Callable[[JsonObject], int]
    run: Callable[[JsonObject], Iterator[Result]]


def results_of(table: Table, document: JsonObject) -> list[Result]:
    """Answer each case of the document by itself, so that one which the table cannot read fails alone and says why."""
    results: list[Result] = []
    for part in ("cases", "machines"):
        for case in document.get(part, ()):
            alone = {
                **{key: value for key, value in document.items() if key not in ("cases", "machines")},
                part: [case],
            }
            try:
                results += table.run(alone)
            except Exception as error:  # a case that our code cannot read is a failed case, and the next one still runs
                results.append(Result(name_of(case), raised(error)))
    return results


def name_of(case: object) -> str:
    """The name that a case gives itself; what stands in its place where it has none."""
    if not isinstance(case, Mapping):
        return f"not a case: {case!r}"
    return str(case.get("name", case.get("machine", "a case without a name")))


def raised(error: Exception) -> str:
    """Why a case has no answer, for the line under its name."""
    if isinstance(error, KeyError):
        return f"needs the key {error}, which is not there"
    return f"raised {type(error).__name__}: {error}"


def one_line(text: str) -> str:
    """The text with control characters spelt out, line breaks among them."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def table_of_kinds(stem: str, kinds: Mapping[str, Callable[[JsonObject], object]]) -> Table:
    """Return the table whose cases carry `kind` (inside `input` or beside it), `input`, `expected` and `name`.

    Each function gets a case's input and returns what is compared with `expected`: exact for text, integers and
    structure, within 1e-9 (or the case's `tolerance`, `rel` or `abs`) for numbers with a fraction; in a `Reference` where
    code that no service runs had to answer. An unknown kind fails its case.
    """

    def overlap(document: JsonObject) -> int:
        cases = document.get("cases")
        if not isinstance(cases, list):
            return 0
        return len({kind for kind in (kind_of(case) for case in cases) if kind in kinds})

    def run(document: JsonObject) -> Iterator[Result]:
        for case in document.get("cases", ()):
            yield _answer(case, kinds)

    return Table(stem, overlap, run)


def kind_of(case: Any) -> str | None:
    """Return the kind a case names, or None."""
    if not isinstance(case, Mapping):
        return None
    found = case.get("input")
    kind = found.get("kind") if isinstance(found, Mapping) else None
    kind = case.get("kind") if kind is None else kind
    return kind if isinstance(kind, str) else None


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far numbers with a fraction may be from each other: relative to the larger one, or absolutely."""

    rel: float = _TOLERANCE
    abs: float = _TOLERANCE


_CLOSE = Tolerance()


def compared(name: str, expected: object, actual: object, tolerance: Tolerance = _CLOSE) -> Result:
    """Return the result of a case whose answer is known; a `Reference` is compared by its value."""
    if isinstance(actual, Reference):
        return Result(name, difference(expected, actual.value, tolerance=tolerance), is_reference=True)
    return Result(name, difference(expected, actual, tolerance=tolerance))


def difference(expected: object, actual: object, path: str = "", tolerance: Tolerance = _CLOSE) -> str | None:
    """Return the first place where two JSON values differ, or None. Tuples count as lists."""
    here = path or "result"
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if set(expected) != set(actual):
            return f"{here}: want keys {sorted(expected)}, got {sorted(actual)}"
        for key in expected:
            found = difference(expected[key], actual[key], f"{path}.{key}" if path else str(key), tolerance)
            if found is not None:
                return found
        return None
    if isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
        if len(expected) != len(actual):
            return f"{here}: want {len(expected)} items {list(expected)!r}, got {len(actual)} {list(actual)!r}"
        for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
            found = difference(one, other, f"{path}[{index}]", tolerance)
            if found is not None:
                return found
        return None
    return None if _equal(expected, actual, tolerance) else f"{here}: want {expected!r}, got {actual!r}"


def _equal(expected: object, actual: object, tolerance: Tolerance) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, int) and isinstance(actual, int):
        return expected == actual
    if isinstance(expected, (int, float)) and isinstance(actual, (int, float)):
        return math.isclose(expected, actual, rel_tol=tolerance.rel, abs_tol=tolerance.abs)
    return expected == actual


def _answer(case: Any, kinds: Mapping[str, Callable[[JsonObject], object]]) -> Result:
    name = name_of(case)
    kind = kind_of(case)
    if kind is None or kind not in kinds:
        return Result(name, f"unknown kind {kind!r}")
    for key in ("input", "expected"):
        if key not in case:
            return Result(name, f"the case has no {key}")
    try:
        actual = kinds[kind](case["input"])
    except NotReplayed:
        return Result(name, is_replayed=False)
    except UnknownSentence as unknown:
        return Result(name, f"unknown sentence {str(unknown)!r}")
    except Exception as error:  # a case that our code cannot answer is a failed case, and the next one still runs
        return Result(name, raised(error))
    return compared(name, case["expected"], actual, _tolerance_of(case))


def _tolerance_of(case: Mapping[str, Any]) -> Tolerance:
    """What the case allows, never less than what every case does. Whole numbers on both sides are exact without a word of it."""
    given = case.get("tolerance") or {}
    return Tolerance(max(given.get("rel", 0.0), _TOLERANCE), max(given.get("abs", 0.0), _TOLERANCE))
