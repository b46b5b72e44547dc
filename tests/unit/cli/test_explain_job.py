"""How `colo explain job` prints scores."""

from __future__ import annotations

import pytest

from colo_cli import explain
from colo_cli.client import Client
from colo_common.events.placement import NodeScore
from colo_common.events.requests import StoryLine
from colo_common.model.workload import AttachSpec, ResourceLimits, ResourceRequest, RunSpec, TaskSpec
from colo_gateway.eviction_account import EvictionAccount, NotChosen
from colo_gateway.replies import ReplicaExplained
from tests.support.builders import an_eviction
from tests.support.explained_job import a_decision, an_explanation


def a_row(node: str, total: int) -> NodeScore:
    return NodeScore(node=node, total=total, scores={"fewest-zones": 100, "most-free": total})


def a_replica(name: str, rows: list[NodeScore], fitting: int | None = 5) -> ReplicaExplained:
    decision = a_decision(name, rows, fitting=fitting)
    return ReplicaExplained(replica=name, state="Pending", sentence=f"sentence of {name}", decision=decision)


def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], replicas: list[ReplicaExplained]
) -> str:
    """What `explain job` prints of these replicas."""
    monkeypatch.setattr(Client, "get", lambda *_args, **_given: an_explanation(replicas))
    assert explain.job("job") == 0
    return capsys.readouterr().out


def test_equal_tables_are_printed_once_for_all_their_replicas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = [a_row("n1", 90), a_row("n2", 80)], [a_row("n1", 85), a_row("n2", 80)]
    replicas = [a_replica(f"job/main/{number}", first, 2) for number in (0, 1, 2, 4)]
    replicas += [a_replica("job/main/3", second, 3), a_replica("job/side/0", first, 2)]
    text = printed(monkeypatch, capsys, replicas)
    assert "main/3: sentence of main/3\n" in text
    assert "scores for main/0-2, main/4, side/0 (the best nodes then):\n" in text
    assert "scores for main/3 (the best nodes then, as far as they were compared):\n" in text
    assert text.count("NODE") == 2


def test_a_job_of_a_hundred_replicas_stays_readable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(
        monkeypatch, capsys, [a_replica(f"job/main/{number}", [a_row("n1", number)]) for number in range(100)]
    )
    assert text.count("NODE") == 8
    assert "and 92 more score tables: --replica shows that of one replica, --output json all of them\n" in text
    assert len(text.splitlines()) < 140


def test_rows_that_were_not_compared_closely_are_marked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(monkeypatch, capsys, [a_replica("job/main/0", [a_row("n1", 1)], None), a_replica("job/main/1", [])])
    assert "scores for main/0 (nodes that pass the filters then; only the first was looked at closely):\n" in text
    assert text.count("NODE") == 1


@pytest.mark.parametrize(("tenant", "owner"), [("default", "queue q"), ("red", "queue q, tenant red")])
def test_whose_job_it_is_stands_in_the_first_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tenant: str, owner: str
) -> None:
    answer = an_explanation([a_replica("job/main/0", [])])
    answer["job"]["summary"]["tenant"] = tenant
    monkeypatch.setattr(Client, "get", lambda *_args, **_given: answer)
    assert explain.job("job") == 0
    assert capsys.readouterr().out.startswith(f"job: Running, {owner}, 1 replica\n")


def test_replicas_are_named_in_runs() -> None:
    assert explain.names_text(["j/b/1", "j/a/10", "j/a/9", "j/b/2", "j/b/0"]) == "b/0-2, a/9-10"


def test_a_long_story_is_cut_with_a_word_and_keeps_the_submission_and_every_eviction(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    story = [StoryLine(at_ms=0, what="submitted: 1 replica in 1 task")]
    story += [
        StoryLine(at_ms=n * 1_000, what=f"line {n}" + (" (exit, evicted)" if n in (3, 9) else "")) for n in range(1, 60)
    ]
    account = EvictionAccount(
        eviction="ev-1",
        at_ms=3_000,
        node="n1",
        job="job",
        replica="job/main/0",
        attempt=1,
        reason="memory-watermark",
        state="left",
        sentence="the evictor decided",
        requested=an_eviction("job/main/0"),
        not_chosen=tuple(NotChosen(replica=f"r{n}", attempt=1, why="priority 5 is above 0") for n in range(5)),
    )
    answer = an_explanation(story=story, evicted=3, evictions=[account])
    monkeypatch.setattr(Client, "get", lambda *_args, **_given: answer)
    assert explain.job("job") == 0
    cut = capsys.readouterr().out
    lines = cut[cut.index("Story") :].splitlines()
    assert lines[0].endswith("times since then):")
    assert [line[11:].strip() for line in lines[1:7]] == [
        "submitted: 1 replica in 1 task",
        "2 earlier lines (--all)",
        "line 3 (exit, evicted)",
        "5 earlier lines (--all)",
        "line 9 (exit, evicted)",
        "30 earlier lines (--all)",
    ]
    assert len(lines) == 7 + 20
    assert "ev-1  the evictor decided\n" in cut
    assert (
        "not chosen: r0 (priority 5 is above 0), r1 (priority 5 is above 0), r2 (priority 5 is above 0) and 2 more"
        in cut
    )
    assert "2 evictions more, from before the gateway started" in cut
    assert explain.job("job", whole=True) == 0
    whole = capsys.readouterr().out
    assert whole[whole.index("Story") :].count("\n") == 1 + 60


def test_work_that_runs_already_has_no_limit_of_the_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    request = ResourceRequest(cpu_mcpu=2_000, memory_bytes=4 << 30)
    runs = (AttachSpec(unit="shop.service"), AttachSpec(cgroup="web/shop", kill_on_stop=True))
    tasks = [
        TaskSpec(name=f"t{number}", replicas=1, request=request, run=RunSpec(attach=attach))
        for number, attach in enumerate(runs)
    ]
    monkeypatch.setattr(Client, "get", lambda *_args, **_given: an_explanation(tasks=tasks))
    assert explain.job("job") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "t0: requests CPU 2, memory 4Gi; limits CPU none, memory none" in lines
    assert "t0: attached to shop.service, which somebody else starts; a stop leaves its processes alone" in lines
    assert "t1: attached to web/shop, which somebody else starts; a stop ends its processes" in lines


def test_limits_stand_beside_requests(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def a_task(name: str, replicas: int, limits: ResourceLimits | None) -> TaskSpec:
        request = ResourceRequest(cpu_mcpu=2_000, memory_bytes=4 << 30)
        return TaskSpec(name=name, replicas=replicas, request=request, run=RunSpec(limits=limits))

    tasks = [
        a_task("plain", 3, None),
        a_task("both", 1, ResourceLimits(cpu_mcpu=4_500, memory_bytes=8 << 30)),
        a_task("cpu", 2, ResourceLimits(cpu_mcpu=2_000)),
        *[a_task(f"more-{number}", 1, None) for number in range(9)],
    ]
    monkeypatch.setattr(Client, "get", lambda *_args, **_given: an_explanation(tasks=tasks))
    assert explain.job("job") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "plain: each of 3 requests CPU 2, memory 4Gi; limits CPU none, memory 4Gi" in lines
    assert "both: requests CPU 2, memory 4Gi; limits CPU 4.5, memory 8Gi" in lines
    assert "cpu: each of 2 requests CPU 2, memory 4Gi; limits CPU 2, memory 4Gi" in lines
    assert "and 2 tasks more; --output json lists them" in lines
