"""Names are the field's: words that were given up do not come back, and a public class name means one thing.

An identifier is taken apart into its words (`heard_at_ms`: heard, at, ms); a given-up word is refused wherever it stands, with the
exceptions listed beside it. Names of tests are sentences and are left alone, and so is prose.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.repo.tree import modules, parsed, shown, text_of

PRODUCT: Final = ("apps", "libs", "services")

#: The word that was given up, and the one that says it now.
GIVEN_UP: Final = {
    "parcel": "OutgoingBatch",
    "boarding": "starting",
    "hearing": "Subscription",
    "heard": "received",
    "patience": "Retrier",
    "announce": "publish",
    "announcer": "publisher",
    "said": "published, reported",
    "unsaid": "pending",
    "told": "published, delivered",
    "untold": "pending, redelivery",
    "spoken": "published",
    "want": "placement request",
    "wants": "placement requests",
    "tape": "event log",
    "chronicle": "event log",
    "letters": "dead letters (the two words together are kept)",
    "anew": "again",
    "gone": "exited, deleted",
    "merit": "node signal",
    "merits": "node signals",
    "stocktaking": "inventory index",
    "stock": "inventory",
    "denied": "ledger retry",
    "appraise": "context scorers",
    "appraiser": "context scorers",
    "vacated": "what-if",
    "foreign": "unmanaged",
    "misfit": "rejection",
    "surroundings": "fit context",
    "taker": "place",
    "ground": "plan input",
    "hurried": "has pending output",
    "hurry": "boost weight",
    "looker": "sampler",
    "inspected": "topology read",
    "referee": "invariant checker",
    "havoc": "fault injector",
    "weather": "network faults",
    "agenda": "event queue",
    "unrest": "pending work",
    "beside": "sibling",
}
#: Words that are given up only next to another one.
GIVEN_UP_TOGETHER: Final = {
    ("worth", "saying"): "should publish",
    ("keep", "in", "step"): "reconcile",
    ("look", "closely"): "fit node exactly",
    ("held", "places"): "reservation snapshot",
    ("held", "levels"): "preemptible index",
    ("zone", "rule"): "NUMA manager",
    ("over", "running"): "preallocation search",
    ("gives", "way"): "is sched batch",
}
#: Identifiers that keep such a word, and why.
KEPT: Final[dict[str, str]] = {
    "_wants_devices": "the verb: whether a request wants devices",
    "SSLWantReadError": "Python's own",
}
#: Class names that may be public in two modules: the parts of a program that nobody imports by name.
SHARED_CLASSES: Final[dict[str, str]] = {}


def words_of(name: str) -> tuple[str, ...]:
    """Return the words of an identifier in lower case: heardAt, HEARD_AT and HeardAt are heard and at."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return tuple(word for word in spaced.lower().split("_") if word)


def given_up_in(name: str) -> str | None:
    """Return what to say instead of a word that stands in the identifier, or None when it has none."""
    words = words_of(name)
    for before, word in zip(("", *words), words, strict=False):
        if word in GIVEN_UP and (before, word) != ("dead", "letters"):
            return GIVEN_UP[word]
    for pair, instead in GIVEN_UP_TOGETHER.items():
        if any(words[at : at + len(pair)] == pair for at in range(len(words))):
            return instead
    return None


#: A comment, or a text with its prefix, of three quotes or of one; all of them hold prose and no identifiers.
PROSE: Final = re.compile(
    r"""#[^\n]*|(?<!\w)[bfru]{0,2}(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""",
    re.IGNORECASE | re.DOTALL,
)


@cache
def identifiers(path: Path) -> dict[str, int]:
    """Return each identifier of a module with the first line that it stands in; names of tests are left out.

    Without Python's own tokenizer, which takes ten times as long.
    """
    text = PROSE.sub(lambda prose: "\n" * prose[0].count("\n"), text_of(path))
    found: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        for name in re.findall(r"\b[^\W\d]\w*", line):
            if not name.startswith("test_"):
                found.setdefault(name, number)
    return found


def refused() -> Iterator[str]:
    for path in modules(*PRODUCT, "tests"):
        instead = None if path.stem.startswith("test_") else given_up_in(path.stem)
        if instead is not None:
            yield f"{shown(path)}: say {instead}"
        for name, line in identifiers(path).items():
            instead = given_up_in(name) if name not in KEPT else None
            if instead is not None:
                yield f"{shown(path, line)} {name}: say {instead}"


def test_words_that_were_given_up_stay_away() -> None:
    found = list(refused())
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        pytest.param("heard_at_ms", "received", id="a word between others"),
        pytest.param("EvictionsHeard", "received", id="a word of a class"),
        pytest.param("UNSAID", "pending", id="a constant"),
        pytest.param("keep_in_step_ms", "reconcile", id="words next to one another"),
        pytest.param("keep_step", None, id="words that are not next to one another"),
        pytest.param("mainland", None, id="a part of a word"),
    ],
)
def test_a_word_is_found_in_every_kind_of_name(name: str, instead: str | None) -> None:
    assert given_up_in(name) == instead


def test_a_public_class_name_means_one_thing() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in modules(*PRODUCT):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(shown(path, node.lineno))
    twice = {name: found for name, found in places.items() if len(found) > 1 and name not in SHARED_CLASSES}
    assert not twice


def test_what_is_kept_is_still_there() -> None:
    names = {name for path in modules(*PRODUCT, "tests") for name in identifiers(path)}
    assert not sorted(KEPT.keys() - names)
