"""Which known name is meant by a typo."""

import pytest

from colo_common.model.nearest import hint, nearest

NODES = [f"node-{number:02d}" for number in range(1, 13)]


@pytest.mark.parametrize(
    ("text", "known", "meant"),
    [
        ("memroy", ("cpu", "memory", "batch-memory"), "memory"),
        ("Batch_CPU", ("cpu", "batch-cpu"), "batch-cpu"),
        ("node-7", NODES, "node-07"),
        ("nod-03", NODES, "node-03"),
        # Equally near: the first in the alphabet, whatever the order they are given in.
        ("node-1x", reversed(NODES), "node-01"),
        ("render", ("train-1a2b", "render-0f3c9d21"), "render-0f3c9d21"),
        ("rendr-0f3c9d21", ("train-1a2b", "render-0f3c9d21"), "render-0f3c9d21"),
        ("xyz", NODES, ""),
        ("", NODES, ""),
        ("node-01", (), ""),
    ],
)
def test_nearest(text: str, known: object, meant: str) -> None:
    assert nearest(text, known) == meant  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "known", "sentence"),
    [
        ("memroy", ("cpu", "memory"), "did you mean `memory`?"),
        ("colour", ("cpu", "memory"), "known keys: cpu memory"),
        ("colour", (), ""),
        (
            "colour",
            [f"n{number}" for number in range(22)],
            f"known keys: {' '.join(f'n{n}' for n in range(20))} and 2 more",
        ),
    ],
)
def test_hint(text: str, known: tuple[str, ...], sentence: str) -> None:
    assert hint(text, known, "known keys") == sentence
