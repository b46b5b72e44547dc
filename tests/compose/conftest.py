"""One lab in containers for all questions; nothing is left of it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.containers import Containers, answered, engine
from tests.support.waiting import eventually_blocking


@pytest.fixture(scope="session")
def containers() -> Iterator[Containers]:
    """The running lab, from its first placement on."""
    lab = Containers(engine())
    try:
        begun_s = time.monotonic()
        lab.up()
        eventually_blocking(
            lambda: answered(lambda: lab.get("API_PORT", "/v1/status")["fleet"]["held_cpu_mcpu"]),
            "a placement",
            limit_s=90,
        )
        lab.first_placement_s = time.monotonic() - begun_s
        yield lab
    finally:
        lab.compose("down", "--volumes", "--timeout", "2")
        assert lab.leftovers() == []
