"""Waiting ends at once when the condition holds, and with its name when it never does."""

from __future__ import annotations

import pytest

from tests.support.vloop import run_virtual
from tests.support.waiting import NeverHappened, eventually, eventually_blocking


def test_the_first_true_answer_is_returned() -> None:
    answers = iter([0, None, "", "there"])

    async def look() -> object:
        return next(answers)

    assert run_virtual(eventually(look, "an answer")) == "there"
    assert next(answers, "none left") == "none left"


def test_what_never_happens_is_named_with_what_was_last_seen() -> None:
    with pytest.raises(NeverHappened, match="the replica runs: not within 0 s, last seen 0"):
        eventually_blocking(lambda: 0, "the replica runs", limit_s=0)
