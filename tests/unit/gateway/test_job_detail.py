"""A job and its decisions, read to the end where one page does not have all that was asked for."""

from __future__ import annotations

import asyncio
from typing import cast

from msgspec import Struct

from colo_common.events.requests import DecisionRecord, ExplainPlacement, JobDetail, PlacementsExplained, Refusal
from colo_gateway.ask import Asker
from colo_gateway.job_detail import ask_decisions, ask_job
from tests.support.jobs_world import JobsWorld, a_spec, a_task

REPLICAS = 2_001
LAST = f"j1/main/{REPLICAS - 1}"


class Answers:
    """Answers as the jobs service does, and as a scheduler with one decision a page that refuses the page `refused`."""

    def __init__(self, refused: int = 0, code: int = 503) -> None:
        self.world = JobsWorld()
        self.world.submit(a_spec(a_task(replicas=REPLICAS)))
        self.refusal = Refusal(code=code, field="scheduler", rule="does not answer now")
        self.refused = refused

    async def ask(self, body: Struct) -> Struct:
        if not isinstance(body, ExplainPlacement):
            return cast(Struct, self.world.ask(body))
        page = int(body.cursor or "1")
        if page == self.refused:
            return self.refusal
        decision = DecisionRecord(replica=f"j1/main/{page}", attempt=1, at_ms=1, nodes=1)
        return PlacementsExplained(decisions=(decision,), next=str(page + 1) if page < 3 else "")


def job(replica: str) -> Struct:
    return asyncio.run(ask_job(cast(Asker, Answers()), "j1", replica))


def decisions(answers: Answers) -> tuple[list[str], str]:
    found, why = asyncio.run(ask_decisions(cast(Asker, answers), "j1", ""))
    return list(found), why


def test_a_replica_of_a_later_page_is_shown_behind_the_first_page() -> None:
    for replica, extra in (("", 0), ("j1/main/0", 0), (LAST, 1), ("j1/main/9999", 0)):
        detail = job(replica)
        assert isinstance(detail, JobDetail)
        assert len(detail.replicas) == 2_000 + extra
        assert any(each.replica == LAST for each in detail.replicas) == (replica == LAST)
    assert isinstance(asyncio.run(ask_job(cast(Asker, Answers()), "j2", LAST)), Refusal)


def test_decisions_are_read_to_the_last_page_and_what_is_missing_is_said() -> None:
    assert decisions(Answers()) == (["j1/main/1", "j1/main/2", "j1/main/3"], "")
    assert decisions(Answers(refused=2)) == (["j1/main/1"], "scheduler: does not answer now")
    assert decisions(Answers(refused=1, code=404)) == ([], "")
