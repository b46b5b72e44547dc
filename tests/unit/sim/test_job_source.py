"""Batch jobs of a simulated fleet: the seeded mix, the table, the feeder."""

import gzip
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from colo_common.model.invalid import InvalidInput
from colo_sim.job_source import MIB, GeneratedJobs, JobFeeder, JobShape, TableJobs, fit_shape
from colo_sim.job_table import read_job_table

GIB = 2**30
HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)
ROWS = (
    "p-ls,12000,16384,1,1000,,LS,Running,0,999,0\n"
    "p-late,1000,2048,0,0,,BE,Running,1000,1300,1000\n"
    "p-big,32000,49152,8,1000,,BE,Failed,500,505,500\n"
    "p-long,4000,15258,1,220,,BE,Running,700,900000,700\n"
)


def written(folder: Path, text: str, name: str = "pods.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def test_the_seeded_mix_stays_in_its_limits_and_repeats() -> None:
    source = GeneratedJobs(7)
    jobs = [source.job(index) for index in range(2_000)]
    assert jobs == [GeneratedJobs(7).job(index) for index in range(2_000)]
    assert jobs != [GeneratedJobs(8).job(index) for index in range(2_000)]
    assert len({job.name for job in jobs}) == 2_000
    assert {job.cpu_mcpu for job in jobs} == {500, 1_000, 2_000, 4_000, 8_000}
    assert {job.replicas for job in jobs} == {1, 2, 4, 8}
    assert all(256 * MIB <= job.memory_bytes <= 8 * GIB for job in jobs)
    runtimes_ms = [job.work_mcpu_ms / job.cpu_mcpu for job in jobs]
    assert min(runtimes_ms) >= 60_000
    assert max(runtimes_ms) <= 30 * 60_000
    assert max(runtimes_ms) > 25 * 60_000
    assert Counter(job.cpu_mcpu for job in jobs)[1_000] > 500


def test_arrivals_start_with_a_backlog_and_then_follow_what_the_spare_cpu_works_off() -> None:
    source = GeneratedJobs(7, spare_mcpu=400_000, backlog_ratio_pct=250)
    jobs = [source.job(index) for index in range(3_000)]
    assert all(earlier.arrival_ms <= later.arrival_ms for earlier, later in pairwise(jobs))
    backlog_mcpu = sum(job.total_cpu_mcpu for job in jobs if job.arrival_ms == 0)
    assert 2 * 400_000 <= backlog_mcpu <= 3 * 400_000
    later = [job for job in jobs if job.arrival_ms > 0]
    asked_mcpu_ms = sum(job.work_mcpu_ms * job.replicas for job in later)
    offered_mcpu = asked_mcpu_ms / (later[-1].arrival_ms - later[0].arrival_ms)
    assert 0.85 < offered_mcpu / 400_000 < 1.2


@pytest.mark.parametrize(
    ("shape", "fitted"),
    [
        pytest.param((1_000, GIB, 90_000), (1_000, GIB, 90_000), id="fits"),
        pytest.param((32_000, 8 * GIB, 90_000), (8_000, 2 * GIB, 90_000), id="too many CPUs"),
        pytest.param((4_000, 32 * GIB, 90_000), (2_000, 16 * GIB, 90_000), id="too much memory"),
        pytest.param((1_000, GIB, 5_000), (1_000, GIB, 60_000), id="too short"),
        pytest.param((1_000, GIB, 10**9), (1_000, GIB, 1_800_000), id="too long"),
    ],
)
def test_a_shape_shrinks_in_proportion_until_a_zone_hosts_it(shape, fitted) -> None:
    asked = JobShape(cpu_mcpu=shape[0], memory_bytes=shape[1], runtime_ms=shape[2])
    found = fit_shape(asked, max_cpu_mcpu=8_000, max_memory_bytes=16 * GIB)
    assert (found.cpu_mcpu, found.memory_bytes, found.runtime_ms) == fitted


@pytest.mark.parametrize("name", ["pods.csv", "pods.csv.gz"])
def test_the_be_pods_of_a_table_become_jobs_in_order_of_arrival(tmp_path: Path, name: str) -> None:
    jobs = read_job_table(written(tmp_path, HEADER + ROWS, name), max_cpu_mcpu=8_000, max_memory_bytes=16 * GIB).jobs
    assert len(jobs) == 3
    first = jobs.job(0)
    assert (first.name, first.cpu_mcpu, first.memory_bytes, first.arrival_ms) == ("p-big", 8_000, 12 * GIB, 0)
    assert first.work_mcpu_ms == 8_000 * 60_000
    assert [jobs.job(index).arrival_ms for index in range(3)] == [0, 200_000, 500_000]
    assert jobs.job(2).work_mcpu_ms == 1_000 * 300_000
    again = jobs.job(3)
    assert (again.name, again.arrival_ms) == ("p-big-1", 500_001)
    assert len({jobs.job(index).name for index in range(30)}) == 30


def test_pods_without_a_class_or_times_are_all_jobs_of_ten_minutes(tmp_path: Path) -> None:
    read = read_job_table(
        written(tmp_path, "name,cpu_milli,memory_mib\na,1000,1024\nb,500,512\n"),
        max_cpu_mcpu=8_000,
        max_memory_bytes=GIB,
    )
    assert [read.jobs.job(index).name for index in range(2)] == ["a", "b"]
    assert read.jobs.job(0).work_mcpu_ms == 1_000 * 600_000
    assert "2 pods without a class are the jobs; their sizes are used, each runs 10 min" in read.notices[0]
    assert read.notices[0].endswith("their arrival times and GPUs are not: the lab submits as much as --load says")


def test_the_tasks_of_2017_become_jobs_whose_instances_are_the_replicas(tmp_path: Path) -> None:
    rows = (
        "-1078,2891,9741,63358,250,Terminated,100,0.015625\n"
        "10,70,9741,-3,2,Terminated,50,0.0078125\n"
        "20,80,9741,5,2,Waiting,50,0.0078125\n"
        "20,80,9741,6,2,Terminated,,\n"
        "90,80,9741,7,2,Terminated,50,0.0078125\n"
    )
    read = read_job_table(written(tmp_path, rows), max_cpu_mcpu=8_000, max_memory_bytes=16 * GIB)
    first, second = read.jobs.job(0), read.jobs.job(1)
    assert (first.name, first.replicas, first.cpu_mcpu) == ("task-9741-63358", 100, 1_000)
    assert first.memory_bytes == 96 * GIB // 64
    # A task of more than half an hour is brought into half an hour.
    assert first.work_mcpu_ms == 1_000 * 1_800_000
    assert (second.name, second.replicas, second.work_mcpu_ms) == ("task-9741-m3", 2, 500 * 60_000)
    assert "2 tasks are the jobs, 2 that did not end or say no size are left out" in read.notices[0]
    assert "1 rows are left out, the first one because" in read.notices[1]
    assert "must not be before create_timestamp" in read.notices[1]


def test_arrivals_of_a_table_may_be_sped_up(tmp_path: Path) -> None:
    table = written(tmp_path, HEADER + ROWS)
    jobs = read_job_table(table, max_cpu_mcpu=8_000, max_memory_bytes=GIB, speed_up=100).jobs
    assert [jobs.job(index).arrival_ms for index in range(3)] == [0, 2_000, 5_000]


@pytest.mark.parametrize(
    ("text", "field", "rule"),
    [
        pytest.param("", "pods.csv line 1", "must name the columns", id="empty"),
        pytest.param("name,cpu_milli,qos\n", "pods.csv line 1", "memory_mib", id="a column missing"),
        pytest.param(HEADER, "pods.csv", "at least one pod", id="no row"),
        pytest.param(HEADER + ROWS.splitlines()[0] + "\n", "pods.csv", "at least one pod", id="no BE pod"),
        pytest.param(HEADER + "p,1,1,,,,BE,,5\n", "pods.csv line 2", "must have 11 columns", id="cut row"),
        pytest.param(HEADER + "p,-1,1,,,,BE,,0,5,0\n", "pods.csv line 2 cpu_milli", "whole number", id="negative"),
        pytest.param(HEADER + "p,nan,1,,,,BE,,0,5,0\n", "pods.csv line 2 cpu_milli", "whole number", id="NaN"),
        pytest.param(HEADER + "p,0,1,,,,BE,,0,5,0\n", "pods.csv line 2 cpu_milli, memory_mib", "at least 1", id="zero"),
        pytest.param(
            HEADER + "p,1,1,,,,BE,,9,5,0\n", "pods.csv line 2 deletion_time", "not be before", id="ends first"
        ),
        pytest.param(HEADER + ",1,1,,,,BE,,0,5,0\n", "pods.csv line 2 name", "not be empty", id="no name"),
    ],
)
def test_a_wrong_table_gets_one_sentence_with_file_line_and_rule(
    tmp_path: Path, text: str, field: str, rule: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_job_table(written(tmp_path, text), max_cpu_mcpu=8_000, max_memory_bytes=GIB)
    assert caught.value.field == field
    assert rule in caught.value.rule


def test_rows_that_break_a_rule_are_left_out_and_counted(tmp_path: Path) -> None:
    text = HEADER + ROWS + "p-zero,1,0,,,,BE,,0,5,0\n" + "p-cut,1\n"
    read = read_job_table(written(tmp_path, text), max_cpu_mcpu=8_000, max_memory_bytes=16 * GIB)
    assert len(read.jobs) == 3
    notices = "\n".join(read.notices)
    assert "3 BE pods are the jobs" in notices
    assert "2 rows are left out, the first one because pods.csv line" in notices
    assert "memory_mib: must be at least 1" in notices


def test_a_table_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"absent.csv: must be a readable file"):
        read_job_table(tmp_path / "absent.csv", max_cpu_mcpu=1, max_memory_bytes=1)
    with pytest.raises(InvalidInput, match="speed_up"):
        read_job_table(tmp_path / "absent.csv", max_cpu_mcpu=1, max_memory_bytes=1, speed_up=0)


def test_table_rows_out_of_order_are_refused() -> None:
    shape = JobShape(cpu_mcpu=1, memory_bytes=1, runtime_ms=1)
    with pytest.raises(InvalidInput, match="must not fall"):
        TableJobs([("a", shape, 5), ("b", shape, 4)])
    with pytest.raises(InvalidInput):
        TableJobs([])


def test_the_feeder_fills_the_backlog_and_then_waits() -> None:
    feeder = JobFeeder(GeneratedJobs(1), backlog_ratio_pct=250)
    first = feeder.feed(5, spare_mcpu=40_000, outstanding_mcpu=0, outstanding_jobs=0)
    asked_mcpu = sum(job.total_cpu_mcpu for job in first)
    assert asked_mcpu >= 100_000
    assert asked_mcpu - first[-1].total_cpu_mcpu < 100_000
    assert {job.arrival_ms for job in first} == {5}
    assert feeder.feed(6, spare_mcpu=40_000, outstanding_mcpu=asked_mcpu, outstanding_jobs=len(first)) == ()
    (later, *_) = feeder.feed(7, spare_mcpu=40_000, outstanding_mcpu=99_999, outstanding_jobs=len(first))
    assert later.name not in {job.name for job in first}


def test_the_feeder_never_exceeds_its_limits() -> None:
    feeder = JobFeeder(GeneratedJobs(1), max_jobs=30, max_batch=20)
    assert len(feeder.feed(0, spare_mcpu=10**9, outstanding_mcpu=0, outstanding_jobs=0)) == 20
    assert len(feeder.feed(0, spare_mcpu=10**9, outstanding_mcpu=0, outstanding_jobs=20)) == 10
    assert feeder.feed(0, spare_mcpu=10**9, outstanding_mcpu=0, outstanding_jobs=30) == ()
    with pytest.raises(InvalidInput):
        JobFeeder(GeneratedJobs(1), max_jobs=0)
