"""Job files: what people write, what it means, and how each mistake is answered."""

from typing import Any

import msgspec
import pytest
import yaml

from colo_common.model.invalid import InvalidInput
from colo_common.model.job_file import check_job_id, job_from_mapping, validate_spec
from colo_common.model.qos import PriorityBand, QosClass
from colo_common.model.workload import AttachSpec, JobSpec, ResourceLimits, ResourceRequest, RunSpec, TaskSpec

FULL = """
name: render
queue: films
qos: LS
band: mid
priority: 7
labels: {team: films}
tasks:
  - name: frames
    replicas: 3
    cpu: "2"
    memory: 4Gi
    command: [render, --from, 60]
    env: {LEVEL: 3}
    work: 30 cpu-min
    grace: 1m30s
    max_retry: 2
    min_succeeded: 2
    max_failed: 3
  - {name: join, cpu: 500m, memory: 512Mi, command: "join 'a b' c"}
"""


def test_limits_stand_beside_the_request_and_may_be_left_out() -> None:
    limited = job_from_mapping(a_job(limits={"cpu": 4, "memory": "8Gi"}, directory="/srv/films")).tasks[0]
    assert limited.run.limits == ResourceLimits(cpu_mcpu=4_000, memory_bytes=8 << 30)
    assert (limited.request.cpu_mcpu, limited.run.directory) == (2_000, "/srv/films")
    assert job_from_mapping(a_job(limits={"memory": "4Gi"})).tasks[0].run.limits == ResourceLimits(memory_bytes=4 << 30)
    assert job_from_mapping(a_job()).tasks[0].run.limits is None
    own = a_job(qos="LSE", limits={"cpu": "2", "memory": "4Gi"})
    assert job_from_mapping(own).tasks[0].run.limits == ResourceLimits(cpu_mcpu=2_000, memory_bytes=4 << 30)


def test_work_that_runs_already_is_named_by_its_group_or_its_unit() -> None:
    by_unit = job_from_mapping(an_attached(attach={"unit": "web@1.service", "kill_on_stop": True}, work="1 cpu-h"))
    assert by_unit.tasks[0].run.attach == AttachSpec(unit="web@1.service", kill_on_stop=True)
    by_group = job_from_mapping(an_attached(qos="LSR", attach={"cgroup": "kubepods.slice/pod_1.slice"}))
    assert by_group.tasks[0].run.attach == AttachSpec(cgroup="kubepods.slice/pod_1.slice")


def a_job(**change: Any) -> dict[str, Any]:
    return {"name": "render", "cpu": "2", "memory": "4Gi", "command": ["true"], **change}


def an_attached(**change: Any) -> dict[str, Any]:
    return {"name": "web", "qos": "LS", "cpu": 1, "memory": "1Gi", "attach": {"unit": "web.service"}, **change}


def with_task(**change: Any) -> dict[str, Any]:
    task = {"name": "main", "cpu": "2", "memory": "4Gi", "command": ["true"], **change}
    return {"name": "render", "tasks": [{key: value for key, value in task.items() if value is not None}]}


def test_a_full_file_becomes_the_job_it_describes() -> None:
    assert job_from_mapping(yaml.safe_load(FULL)) == JobSpec(
        name="render",
        queue="films",
        qos=QosClass.LS,
        band=PriorityBand.MID,
        priority=7,
        labels={"team": "films"},
        tasks=(
            TaskSpec(
                name="frames",
                replicas=3,
                request=ResourceRequest(cpu_mcpu=2000, memory_bytes=4 << 30),
                run=RunSpec(
                    command=("render", "--from", "60"),
                    env={"LEVEL": "3"},
                    work_mcpu_ms=30 * 60 * 1_000_000,
                    grace_ms=90_000,
                ),
                max_retry=2,
                min_succeeded=2,
                max_failed=3,
            ),
            TaskSpec(
                name="join",
                replicas=1,
                request=ResourceRequest(cpu_mcpu=500, memory_bytes=512 << 20),
                run=RunSpec(command=("join", "a b", "c"), grace_ms=10_000),
            ),
        ),
    )


def test_one_task_may_be_written_at_the_top_level() -> None:
    spec = job_from_mapping(a_job(replicas=4, work_cpu_seconds=1.5))
    assert [task.name for task in spec.tasks] == ["main"]
    assert spec.tasks[0].replicas == 4
    assert spec.tasks[0].run.work_mcpu_ms == 1_500_000
    assert (spec.queue, spec.qos, spec.band) == ("default", QosClass.BE, PriorityBand.BATCH)


@pytest.mark.parametrize(
    ("work", "mcpu_ms"),
    [("90 cpu-s", 90_000_000), ("2cpu-h", 7_200_000_000), ("0.5 cpu-min", 30_000_000), ("250 cpu-ms", 250_000)],
)
def test_work_is_cpu_time(work: str, mcpu_ms: int) -> None:
    assert job_from_mapping(a_job(work=work)).tasks[0].run.work_mcpu_ms == mcpu_ms


def test_batch_cpu_is_milli_cpu_as_kubernetes_users_know_it() -> None:
    job = a_job(**{"batch-cpu": 2500, "batch-memory": "1Gi"})
    del job["cpu"], job["memory"]
    assert job_from_mapping(job).tasks[0].request == ResourceRequest(cpu_mcpu=2500, memory_bytes=1 << 30)


MISTAKES: list[tuple[str, Any, str, str]] = [
    ("not a mapping", ["x"], "job", "must be a mapping"),
    ("number as key", {1: 2}, "job", "keys must be text"),
    ("no name", {"cpu": 1, "memory": "1Gi"}, "name", "is needed"),
    ("upper-case name", a_job(name="Render"), "name", "DNS-1123"),
    ("name too long", a_job(name="a" * 64), "name", "DNS-1123"),
    ("name too long for its id", a_job(name="a" * 55), "name", "must have at most 54 characters: the job's id adds"),
    ("name with a slash", a_job(name="a/b"), "name", "DNS-1123"),
    ("queue with a dot", a_job(queue="a.b"), "queue", "DNS-1123"),
    ("unknown key", a_job(replica=3), "replica", "did you mean `replicas`?"),
    ("unknown key in a task", with_task(comand="x"), "tasks[0].comand", "did you mean `command`?"),
    ("key like nothing else", a_job(zzzzzz=1), "zzzzzz", "known keys: name queue"),
    ("task field beside tasks", {**with_task(), "cpu": 1}, "cpu", "belongs into a task"),
    ("tasks is text", {"name": "a", "tasks": "x"}, "tasks", "must be a list of tasks"),
    ("no task", {"name": "a", "tasks": []}, "tasks", "from 1 to 100 tasks"),
    ("too many tasks", {"name": "a", "tasks": [{}] * 101}, "tasks", "from 1 to 100 tasks"),
    ("task without a name", with_task(name=None), "tasks[0].name", "is needed"),
    ("same task twice", {"name": "a", "tasks": with_task()["tasks"] * 2}, "tasks[1].name", "must differ"),
    ("no cpu", with_task(cpu=None), "tasks[0].cpu", "is needed"),
    ("negative cpu", with_task(cpu=-1), "tasks[0].cpu", "must not be negative"),
    ("zero cpu", with_task(cpu=0), "tasks[0].cpu", "from 10m to 1024 CPUs"),
    ("cpu too small", a_job(cpu="8m"), "cpu", 'write "8" if you mean 8 CPUs'),
    ("cpu absurd", a_job(cpu=1025), "cpu", "from 10m to 1024 CPUs"),
    ("cpu not a number", a_job(cpu=float("nan")), "cpu", "finite"),
    ("cpu no quantity", a_job(cpu="two"), "cpu", "CPU quantity"),
    ("batch-cpu 8", with_task(cpu=None, **{"batch-cpu": 8}), "tasks[0].batch-cpu", '"8c" or 8000'),
    ("cpu twice", with_task(**{"batch-cpu": 8000}), "tasks[0].batch-cpu", "must not stand beside `cpu`"),
    ("limit below the request", a_job(limits={"cpu": "1"}), "limits.cpu", "must be from the request, 2, to 1024"),
    (
        "limit of memory below it",
        with_task(limits={"memory": "1Gi"}),
        "tasks[0].limits.memory",
        "from the request, 4Gi",
    ),
    (
        "limit of own CPUs",
        a_job(qos="LSR", limits={"cpu": 3}),
        "limits.cpu",
        "must equal the request, 2: work of class LSR",
    ),
    ("limit of what", a_job(limits={"disc": 3}), "limits.disc", "is not a key"),
    ("limit of disk", a_job(limits={"disk": "3"}), "limits.disk", "from 1Mi to 1Pi"),
    ("limit of attached disk", an_attached(limits={"disk": "1Gi"}), "limits.disk", "no working directory of colo"),
    ("limit no mapping", a_job(limits=3), "limits", "mapping"),
    ("attached by what", a_job(command=[], qos="LS", attach={}), "attach", "exactly one of `cgroup` and `unit`"),
    (
        "attached by both",
        with_task(command=None, attach={"cgroup": "web", "unit": "web.service"}),
        "tasks[0].attach",
        "exactly one of `cgroup` and `unit`",
    ),
    ("attached to a unit of what kind", an_attached(attach={"unit": "web.timer"}), "attach.unit", "must be a .service"),
    ("attached to the root", an_attached(attach={"cgroup": "/"}), "attach.cgroup", "must be names of letters"),
    ("attached from the root", an_attached(attach={"cgroup": "/web"}), "attach.cgroup", "must be names of letters"),
    ("attached above", an_attached(attach={"cgroup": "web/../colo"}), "attach.cgroup", "must be names of letters"),
    ("attached to many", an_attached(attach={"cgroup": "web/*"}), "attach.cgroup", "must be names of letters"),
    (
        "attached and killed how",
        an_attached(attach={"unit": "a.service", "kill_on_stop": 1}),
        "attach.kill_on_stop",
        "true",
    ),
    ("attached and what", an_attached(attach={"pid": 1}), "attach.pid", "is not a key here; known keys: cgroup unit"),
    ("attached and started", an_attached(command=["sleep", "1"]), "command", "must not stand beside `attach`"),
    ("attached with variables", an_attached(env={"A": "1"}), "env", "must not stand beside `attach`"),
    ("attached somewhere", an_attached(directory="/srv"), "directory", "must not stand beside `attach`"),
    ("attached twice", an_attached(replicas=2), "replicas", "must be 1 beside `attach`: the group exists once"),
    ("attached batch work", an_attached(qos="BE"), "qos", "only online work can be attached"),
    ("attached work of the mid band", an_attached(band="mid"), "qos", "LS in band prod"),
    ("attached with devices", an_attached(place={"devices": {"gpu": 1}}), "place.devices", "is given none"),
    ("attached with pages", an_attached(place={"huge_pages": {"2Mi": "2Mi"}}), "place.huge_pages", "is given none"),
    ("relative directory", a_job(directory="films"), "directory", "must be an absolute path"),
    ("work of the node", a_job(qos="SYSTEM"), "qos", "SYSTEM is the node's own work, which is not placed"),
    ("memory too small", a_job(memory=1024), "memory", "from 1Mi to 16Ti"),
    ("memory absurd", a_job(memory="17Ti"), "memory", "from 1Mi to 16Ti"),
    ("memory negative", a_job(memory="-1Gi"), "memory", "must not be negative"),
    ("no replicas", a_job(replicas=0), "replicas", "from 1 to 10000"),
    ("replicas is true", a_job(replicas=True), "replicas", "whole number"),
    ("replicas is text", a_job(replicas="3"), "replicas", "whole number"),
    ("too many replicas", a_job(replicas=10_001), "replicas", "from 1 to 10000"),
    ("retry negative", a_job(max_retry=-1), "max_retry", "from 0 to 100"),
    ("more successes than replicas", a_job(replicas=2, min_succeeded=3), "min_succeeded", "from 1 to 2"),
    ("no failure allowed", a_job(max_failed=0), "max_failed", "from 1 to 1"),
    ("neither command nor work", a_job(command=[]), "command", "is needed"),
    ("command is a number", a_job(command=5), "command", "list of words"),
    ("command for a shell", a_job(command="a | b"), "command", "without a shell"),
    ("open quote", a_job(command="say 'x"), "command", "quote"),
    ("argument is a float", a_job(command=["sleep", 0.5]), "command[1]", "quotes"),
    ("argument is true", with_task(command=["x", True]), "tasks[0].command[1]", "quotes"),
    ("NUL", a_job(command=["a\0b"]), "command[0]", "NUL"),
    ("lone surrogate", a_job(command=["a\udc80"]), "command[0]", "UTF-8"),
    ("empty program", a_job(command=[""]), "command[0]", "name a program"),
    ("too many arguments", a_job(command=["x"] * 1001), "command", "at most 1000"),
    ("long command", a_job(command=["x" * 65_536]), "command", "64 KiB"),
    ("env is a list", a_job(env=["A=1"]), "env", "must be a mapping"),
    ("env name", a_job(env={"A-B": "1"}), "env", "letters, digits"),
    ("env value true", a_job(env={"A": True}), "env.A", "quotes"),
    ("env too many", a_job(env={f"A{i}": "1" for i in range(101)}), "env", "at most 100"),
    ("env too large", a_job(env={"A": "x" * 65_536}), "env", "64 KiB"),
    ("label too long", a_job(labels={"a": "x" * 254}), "labels", "at most 253"),
    ("work without a unit", a_job(work=30), "work", "30 cpu-min"),
    ("work negative", a_job(work="-1 cpu-s"), "work", "30 cpu-min"),
    ("work too fine", a_job(work="0.000001 cpu-ms"), "work", "whole number"),
    ("work absurd", a_job(work="1000001 cpu-h"), "work", "a million CPU hours"),
    ("seconds negative", a_job(work_cpu_seconds=-1), "work_cpu_seconds", "at least 0"),
    ("seconds infinite", a_job(work_cpu_seconds=float("inf")), "work_cpu_seconds", "at least 0"),
    ("work twice", a_job(work="1 cpu-s", work_cpu_seconds=1), "work_cpu_seconds", "must not stand beside"),
    ("grace no time", a_job(grace="soon"), "grace", "must be a time"),
    ("grace too long", a_job(grace="2h"), "grace", "from 0 to 1h"),
    ("grace negative", a_job(grace=-1), "grace", "from 0 to 1h"),
    ("unknown class", a_job(qos="GOLD"), "qos", "must be one of"),
    ("unknown band", a_job(band="gold"), "band", "must be one of"),
    ("pair not legal", a_job(qos="BE", band="prod"), "band", "QoS class BE may only have"),
    ("priority absurd", a_job(priority=10**9), "priority", "from -1000000"),
]


@pytest.mark.parametrize(("job", "field", "rule"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_a_mistake_is_answered_with_its_path_and_rule(job: Any, field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        job_from_mapping(job)
    assert caught.value.field == field
    assert rule in caught.value.rule


def test_replicas_are_limited_in_sum() -> None:
    task = {"cpu": 1, "memory": "1Gi", "command": "true", "replicas": 5_001}
    with pytest.raises(InvalidInput, match="at most 10000 replicas"):
        job_from_mapping({"name": "a", "tasks": [{**task, "name": "x"}, {**task, "name": "y"}]})


def test_a_job_that_came_over_the_wire_is_checked_by_the_same_rules() -> None:
    good = job_from_mapping(with_task())
    validate_spec(good)
    task = good.tasks[0]
    bad = msgspec.structs.replace(
        good, tasks=(msgspec.structs.replace(task, request=ResourceRequest(cpu_mcpu=-5, memory_bytes=1 << 30)),)
    )
    with pytest.raises(InvalidInput) as caught:
        validate_spec(bad)
    assert caught.value.field == "tasks[0].cpu"


@pytest.mark.parametrize("job", ["", "A", "a/b", "a.b", "-a", "a" * 64, "a_b", 5])
def test_a_job_id_is_one_safe_word(job: object) -> None:
    with pytest.raises(InvalidInput):
        check_job_id(job)
