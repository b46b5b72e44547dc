"""A message visits few files on its way through its service, so that a reader can follow it."""

from __future__ import annotations

from typing import Final

import pytest

from tests.repo.walk import WALKS, of_service, visited

FILES_MAX: Final = {"a placement request": 19, "a sample": 19}
"""The most files of its service that a message may visit."""


@pytest.mark.parametrize("name", sorted(WALKS))
def test_a_message_visits_few_files(name: str) -> None:
    own = of_service(visited(WALKS[name]))
    # The door, the core and what it answers are always among them: an empty trace would prove nothing.
    assert {path.rpartition("/")[2] for path in own} >= {"core.py"}
    assert len(own) <= FILES_MAX[name], own
