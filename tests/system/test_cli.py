"""The `colo` command as people type it, against running services."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support.running import RunningColo
from tests.support.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.asyncio(loop_scope="session")]

LIMIT_S = 120
IMPORT_S_MOST = 0.3
HEAVY = ("aiohttp", "nats", "redis", "rich", "pandas", "numpy", "opentelemetry", "prometheus_client", "structlog")
STAGES = ["submit", "queue.wait", "decide", "filter", "score", "commit", "command", "apply"]
JOB = {"name": "typed", "replicas": 2, "cpu": "500m", "memory": "64Mi", "work": "1000 cpu-h"}


class Printed(NamedTuple):
    """What a command left: its exit code and its two streams."""

    code: int
    out: str
    err: str


async def colo_command(*words: str, api: str = "", stdin: bytes = b"") -> Printed:
    environment = {**os.environ, "COLO_API": api} if api else {k: v for k, v in os.environ.items() if k != "COLO_API"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "colo_cli",
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    async with asyncio.timeout(LIMIT_S):
        out, err = await process.communicate(stdin)
    return Printed(process.returncode or 0, out.decode(), err.decode())


async def submitted(colo: RunningColo, **changes: Any) -> str:
    reported = await colo_command(
        "submit", "-f", "-", "-o", "json", api=colo.api, stdin=yaml.safe_dump({**JOB, **changes}).encode()
    )
    assert reported.code == 0, reported.err
    return str(json.loads(reported.out)["job"])


async def test_the_example_job_is_accepted_as_a_file(colo: RunningColo) -> None:
    reported = await colo_command("submit", "-f", "examples/job.yaml", api=colo.api)
    assert (reported.code, reported.err) == (0, "")
    job, state = reported.out.split()
    assert job.startswith("hello-")
    assert state in ("Pending", "Inqueue")


async def test_a_bad_job_file_is_refused_naming_field_and_rule(colo: RunningColo, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**JOB, "cpu": "-1"}))
    reported = await colo_command("submit", "-f", str(path), api=colo.api)
    assert (reported.code, reported.out) == (2, "")
    assert reported.err.startswith(f"colo: {path}: cpu: ")
    missing = await colo_command("submit", "-f", str(tmp_path / "none.yaml"), api=colo.api)
    assert missing.code == 2
    assert "cannot be read" in missing.err


async def test_several_jobs_of_a_file_are_all_submitted_or_none(colo: RunningColo, tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    jobs = [{**JOB, "name": name} for name in ("first-of-two", "second-of-two")]
    path.write_text(yaml.safe_dump_all([jobs[0], {**jobs[1], "queue": "nowhere"}]))
    for command in ("plan", "submit"):
        refused = await colo_command(command, "-f", str(path), api=colo.api)
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith(f"colo: {path}: document 2: queue: there is no such queue")
    assert (await colo.get("/v1/jobs?name=first-of-two"))["total"] == 0

    path.write_text(yaml.safe_dump_all(jobs))
    planned = await colo_command("plan", "-f", str(path), api=colo.api)
    assert (planned.code, planned.err) == (0, "")
    assert planned.out.startswith("document 1 (first-of-two):\nfits: ")
    assert "\ndocument 2 (second-of-two):\nfits: " in planned.out
    words = ("submit", "-f", str(path), "--idempotency-key", "both", "-o", "json")
    accepted = [json.loads((await colo_command(*words, api=colo.api)).out) for _ in range(2)]
    assert [each["job"] for each in accepted[0]["jobs"]] == [each["job"] for each in accepted[1]["jobs"]]
    for job in jobs:
        assert (await colo.get(f"/v1/jobs?name={job['name']}"))["total"] == 1
    one = await colo_command("submit", "-f", str(path), "--check-index", "0", api=colo.api)
    assert (one.code, one.err) == (2, f"colo: check index: belongs to one job, and {path} has 2\n")
    await colo.cancel_all()


async def test_a_submission_that_nobody_answered_is_one_job_when_it_is_repeated(
    colo: RunningColo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**JOB, "name": "unanswered"}))
    words = ("submit", "-f", str(path))
    # A service that is stopped by a signal takes no request, and gets all of them when it goes on.
    jobs = colo.process("jobs").process
    jobs.send_signal(signal.SIGSTOP)
    try:
        unknown = await colo_command(*words, api=colo.api)
    finally:
        jobs.send_signal(signal.SIGCONT)
    assert (unknown.code, unknown.out) == (3, "")
    assert "jobs: does not answer now: it is not known whether the job was accepted\n" in unknown.err
    assert unknown.err.endswith(f"to repeat, never twice: colo submit -f {path}\n")
    (find_out,) = [line.partition("colo ")[2] for line in unknown.err.splitlines() if "to find out:" in line]
    job = find_out.split()[-1]

    async def accepted() -> bool:
        return (await colo_command(*find_out.split(), api=colo.api)).code == 0

    await eventually(accepted, "the job that was said not to be known")
    again = await colo_command(*words, api=colo.api)
    assert (again.code, again.out.split()[0]) == (0, job), again.err
    assert "repeats the submission" in again.err
    assert (await colo.get("/v1/jobs?name=unanswered"))["total"] == 1
    other = await colo_command(*words, api=colo.api)
    assert other.out.split()[0] != job
    for each in (job, other.out.split()[0]):
        assert (await colo_command("cancel", each, api=colo.api)).code == 0


@pytest.mark.parametrize(("what", "key", "column"), [("nodes", "nodes", "NODE"), ("queues", "queues", "QUEUE")])
async def test_lists_come_as_table_json_and_yaml(colo: RunningColo, what: str, key: str, column: str) -> None:
    table = await colo_command("get", what, api=colo.api)
    as_json = await colo_command("get", what, "-o", "json", api=colo.api)
    as_yaml = await colo_command("get", what, "--output", "yaml", api=colo.api)
    assert (table.code, as_json.code, as_yaml.code) == (0, 0, 0)
    assert table.out.startswith(column)
    rows = json.loads(as_json.out)[key]
    assert (
        len(rows)
        == len(yaml.safe_load(as_yaml.out)[key])
        # Below the rows is what people are told: that times are simulated.
        == len([line for line in table.out.partition("\n\n")[0].splitlines() if line and line[0] != "("]) - 1
    )


async def test_jobs_are_listed_and_filtered_by_state(colo: RunningColo) -> None:
    job = await submitted(colo, name="listed")
    await colo.reaches(job, "Running")
    running = json.loads((await colo_command("get", "jobs", "--state", "Running", "-o", "json", api=colo.api)).out)
    assert job in [row["job"] for row in running["jobs"]]
    failed = await colo_command("get", "jobs", "--state", "Failed", api=colo.api)
    assert (failed.code, failed.out.strip()) == (0, "no jobs")


async def test_a_job_is_named_by_its_name_or_the_beginning_of_its_id(colo: RunningColo) -> None:
    job = await submitted(colo, name="by-name")
    await colo.reaches(job, "Running")
    for name in ("by-name", job[:-2]):
        shown = await colo_command("get", "job", name, api=colo.api)
        assert (shown.code, shown.err) == (0, "")
        assert shown.out.startswith(f"{job}: Running, queue default, class BE, 2 replicas, submitted ")
        assert f"{job}/main/1" in shown.out
    one = await colo_command("explain", "job", "by-name/main/1", api=colo.api)
    assert one.code == 0, one.err
    assert "main/1: running on " in one.out
    assert "main/0: " not in one.out
    other = await submitted(colo, name="by-name")
    both = await colo_command("cancel", "by-name", api=colo.api)
    assert both.code == 2
    assert both.err.startswith('colo: job: 2 unfinished jobs have the name "by-name"; say which by its id:\n')
    assert f"  {job}  Running" in both.err
    newest = await colo_command("get", "job", "by-name", api=colo.api)
    assert (newest.code, newest.out.split(":")[0]) == (0, other)
    assert 'note: 2 jobs have the name "by-name"; this is the newest that has not ended' in newest.err
    assert (await colo_command("cancel", other, api=colo.api)).code == 0
    await colo.reaches(other, "Terminated")
    mistyped = await colo_command("get", "job", "bye-name", api=colo.api)
    assert mistyped.code == 1
    assert "did you mean `by-name`?" in mistyped.err
    cancelled = await colo_command("cancel", "by-name", api=colo.api)
    assert (cancelled.code, cancelled.out) == (0, f"{job} Terminating\n")
    assert "this is the only one that has not ended" in cancelled.err
    await colo.reaches(job, "Terminated")
    ended = await colo_command("explain", "job", "by-name", "-o", "json", api=colo.api)
    assert (ended.code, json.loads(ended.out)["job"]["summary"]["job"]) == (0, other)
    assert "this is the newest, " in ended.err
    unknown = await colo_command("explain", "job", "nobody", api=colo.api)
    assert (unknown.code, unknown.out) == (1, "")
    assert "there is no such job" in unknown.err


async def test_a_running_job_is_explained_with_node_and_scores(colo: RunningColo) -> None:
    job = await submitted(colo, name="explained")
    await colo.reaches(job, "Running")
    reported = await colo_command("explain", "job", job, api=colo.api)
    assert reported.code == 0, reported.err
    assert f"{job}: Running, queue default, 2 replicas" in reported.out
    assert "main/0: " in reported.out
    assert "score" in reported.out
    assert "Story" in reported.out


async def test_a_waiting_job_is_explained_with_the_nearest_miss(colo: RunningColo) -> None:
    job = await submitted(colo, name="waiting", cpu="60", replicas=1)

    async def explained() -> str:
        reported = await colo_command("explain", "job", job, api=colo.api)
        return reported.out if "0 of 2 nodes fit" in reported.out else ""

    text = await eventually(explained, "the scheduler looked at it")
    assert "nearest miss" in text
    assert "short" in text


async def test_a_nodes_number_is_explained_term_by_term(colo: RunningColo) -> None:
    reported = await colo_command("explain", "overcommit", "node-01", api=colo.api)
    assert reported.code == 0, reported.err
    for word in ("cpu_online_used", "memory_held", "= allocatable", "ZONE 3", "raw = capacity"):
        assert word in reported.out, word
    unknown = await colo_command("explain", "overcommit", "nowhere", api=colo.api)
    assert (unknown.code, unknown.err) == (1, "colo: node: is not known; known nodes: node-01 node-02 (got nowhere)\n")


async def test_a_job_is_cancelled_and_a_second_time_is_a_refusal(colo: RunningColo) -> None:
    job = await submitted(colo, name="stopped")
    await colo.reaches(job, "Running")
    reported = await colo_command("cancel", job, api=colo.api)
    assert (reported.code, reported.out) == (0, f"{job} Terminating\n")
    await colo.reaches(job, "Terminated")
    again = await colo_command("cancel", job, api=colo.api)
    assert again.code == 1
    assert again.err.startswith("colo: ")
    nobody = await colo_command("cancel", "nobody", api=colo.api)
    assert nobody.code == 1


async def test_a_placement_is_printed_as_a_tree(colo: RunningColo) -> None:
    job = await submitted(colo, name="traced", replicas=1)

    async def printed() -> str:
        reported = await colo_command("trace", job, api=colo.api)
        return reported.out if len(reported.out.splitlines()) > len(STAGES) else ""

    lines = (await eventually(printed, "the trace is whole")).splitlines()
    assert lines[0].startswith(f"{job}/main/0 attempt 1, trace ")
    names = [line.split()[0] for line in lines[1:]]
    assert names == STAGES


async def test_facts_are_followed_line_by_line(colo: RunningColo) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "colo_cli",
        "watch",
        "--json-lines",
        "--types",
        "JobSubmitted",
        "--since",
        "0",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "COLO_API": colo.api},
    )
    try:
        job = await submitted(colo, name="watched")
        assert process.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            while True:
                fact = json.loads(await process.stdout.readline())
                assert fact["type"] == "JobSubmitted"
                if fact["job"] == job:
                    break
    finally:
        process.terminate()
        await process.wait()


async def test_without_a_gateway_one_sentence_says_so() -> None:
    reported = await colo_command("get", "jobs", api="http://127.0.0.1:9")
    assert reported.code == 1
    assert reported.err.startswith("colo: no gateway answers at http://127.0.0.1:9")
    assert (await colo_command("get", "jobs", api="ftp://x")).code == 2


async def test_a_wrong_call_ends_with_two() -> None:
    for words in (("get", "pods"), ("nonsense",), ("submit",), ("lab", "--nodes", "many")):
        reported = await colo_command(*words)
        assert reported.code == 2, words
        assert reported.err.startswith("colo: "), words


async def test_a_shell_gets_the_names_that_it_completes(colo: RunningColo) -> None:
    nodes = await colo_command("complete-names", "nodes", api=colo.api)
    assert (nodes.code, nodes.out.split()) == (0, ["node-01", "node-02"])
    silent = await colo_command("complete-names", "jobs", api="http://127.0.0.1:9")
    assert (silent.code, silent.out, silent.err) == (1, "", "")


async def test_version_and_doctor_answer_without_a_gateway() -> None:
    version = await colo_command("version")
    assert version.code == 0
    assert version.out.startswith("colo ")
    rows = json.loads((await colo_command("doctor", "-o", "json")).out)
    assert {"python", "cgroup", "psi", "nats-server", "redis-server"} <= {row["name"] for row in rows}


async def test_a_call_starts_without_the_heavy_libraries() -> None:
    # What the call costs is CPU time, which is the same on a busy machine; a user on an idle one waits as long.
    code = (
        "import time; begun = time.process_time(); import colo_cli.main as m; took = time.process_time() - begun;"
        "import sys; m.main(['version']);"
        f"print(sorted(name for name in {HEAVY!r} if name in sys.modules)); print(took)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    *_, heavy, took_s = out.decode().splitlines()
    assert heavy == "[]"
    assert float(took_s) <= IMPORT_S_MOST


async def test_a_policy_is_checked_applied_shown_and_rolled_back(colo: RunningColo, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    document = {"apiVersion": "colo.io/v1", "kind": "ColocationPolicy", "defaults": {"cpu_reclaim_pct": 10}}
    path.write_text(yaml.safe_dump(document))

    async def typed(*words: str, file: bool = True) -> Printed:
        return await colo_command("policy", *words, *(("-f", str(path)) if file else ()), api=colo.api)

    async def previewed() -> bool:
        preview = json.loads((await typed("check", "-o", "json")).out)["preview"]
        return bool(preview["nodes"] and preview["would_cpu_mcpu"] < preview["batch_cpu_mcpu"])

    await eventually(previewed, "the preview shows that less would be promised", limit_s=LIMIT_S)
    checked = await typed("check")
    assert checked.code == 0, checked.err
    assert "defaults.cpu_reclaim_pct" in checked.out
    assert (await typed("diff")).code == 1
    # Nothing was changed so far; what is applied now changes no number.
    assert "no policy was applied" in (await typed("show", file=False)).out
    path.write_text(yaml.safe_dump({**document, "defaults": {"ramp_ms": 59_999, "cpu_evict_pct": 99}}))
    applied = await typed("apply", "--reason", "a try", "--as", "ana")
    revision = (await colo.get("/v1/policy"))["reply"]["current"]["revision"]
    assert applied.out.startswith(f"policy revision {revision} is in force, by ana: a try\n"), applied.err
    assert "not in force" not in applied.out
    assert (await typed("apply")).out == f"{path} is in force already\n"
    stale = await typed("apply", "--expected", "0")
    assert (stale.code, stale.out) == (1, "")
    assert f"revision {revision} is" in stale.err

    async def followed() -> bool:
        reply = (await colo.get("/v1/policy"))["reply"]
        return bool(reply["followed"] == reply["current"]["revision"] == revision)

    await eventually(followed, "overcommit follows the policy", limit_s=LIMIT_S)
    shown = (await typed("show", file=False)).out
    assert f"revision {revision} since " in shown
    assert "ramp_ms" in shown
    back = await typed("rollback", "--to", "0", "--as", "bo", file=False)
    assert re.fullmatch(r"policy revision \d+ is in force, by bo\n", back.out), back.err
    path.write_text("{apiVersion: colo.io/v1, kind: ColocationPolicy, defaults: {cpu_reclame_pct: 1}}")
    refused = await typed("apply")
    assert (refused.code, refused.out) == (2, "")
    assert "defaults.cpu_reclame_pct: no service owns this key; did you mean `cpu_reclaim_pct`?" in refused.err


async def test_a_system_outside_bounds_a_node_for_a_time_and_lifts_it(colo: RunningColo) -> None:
    node = (await colo.get("/v1/nodes"))["nodes"][0]["node"]

    async def typed(*words: str) -> Printed:
        return await colo_command("external", *words, api=colo.api)

    async def terms() -> list[str]:
        explained = await colo.get(f"/v1/nodes/{node}/explain")
        return [term["source"] for term in explained["published"]["explanation"]["terms"] if "external" in term["name"]]

    async def is_bound() -> bool:
        return any("external capacity of yarn" in source for source in await terms())

    async def is_free() -> bool:
        return not await terms()

    # More than any machine has: it is a term of the explanation and takes nothing from the jobs of other tests.
    asked = await typed("set", node, "--source", "yarn", "--cpu", "100000", "--for", "1h", "--as", "ana")
    assert asked.code == 0, asked.err
    assert asked.out.startswith(f"{node}: yarn gives batch work at most 100000 CPU for "), asked.out
    await eventually(is_bound, "the explanation has the bound", limit_s=LIMIT_S)
    shown = await colo_command("get", "node", node, api=colo.api)
    assert "yarn gives batch work at most 100000 CPU for " in shown.out
    assert "(by ana)" in shown.out
    cleared = await typed("clear", node, "--source", "yarn")
    assert cleared.out == f"{node}: no system outside bounds batch work\n", cleared.err
    await eventually(is_free, "the bound is gone", limit_s=LIMIT_S)
    refused = await typed("set", node, "--source", "yarn", "--for", "1h")
    assert (refused.code, refused.out) == (2, "")
    assert "cpu or memory must be given" in refused.err
    unknown = await typed("clear", "no-such-node", "--source", "yarn")
    assert unknown.code == 1
    assert "is not known" in unknown.err
