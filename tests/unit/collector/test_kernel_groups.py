"""What the kernel holds for each control group: colo's own, declared ones and foreign ones, under cgroup v1 and v2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from colo_collector.core import CollectorCore
from colo_collector.discover import parse_online_groups
from colo_collector.hierarchy import ControllerMount, Hierarchy
from colo_collector.kernel_groups import GroupsRead, ReadGroups, read_groups
from colo_collector.policy import CollectorPolicy
from colo_common.events.effects import Reply, RequestReceived
from colo_common.events.kernel import KernelGroup, ListKernelGroups, NodeKernelGroups
from colo_common.events.requests import GetJob, Refusal
from colo_common.model.qos import QosClass

V2 = Hierarchy(
    version="v2",
    controllers=tuple(
        ControllerMount(controller=name, version="v2", mount_point="/cg") for name in ("cpu", "cpuset", "memory")
    ),
    unified="/cg",
)
V1 = Hierarchy(
    version="v1",
    controllers=tuple(
        ControllerMount(controller=name, version="v1", mount_point=f"/cg/{name}")
        for name in ("cpu", "cpuset", "memory")
    ),
)


class Found:
    def __init__(self, texts: Mapping[str, str | None]) -> None:
        self.texts = texts


class Files:
    """A tree of files as a mapping of path to text."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def list_directories(self, path: str, limit: int = 10_000) -> tuple[str, ...]:
        inner: set[str] = set()
        for text in self._texts:
            if text.startswith(f"{path}/"):
                first, slash, _ = text[len(path) + 1 :].partition("/")
                if slash:
                    inner.add(first)
        return tuple(sorted(inner))

    def read_all(self, paths: Sequence[str], *, keep: bool = True) -> Found:
        assert not keep, "files that are asked for now and then must not stay open"
        return Found({path: self._texts.get(path) for path in paths})


def by_name(read: GroupsRead) -> dict[str, KernelGroup]:
    return {group.name: group for group in read.groups}


V2_FILES = {
    "/cg/cpuset.cpus.effective": "0-15\n",
    "/cg/cpuset.mems.effective": "0-1\n",
    "/cg/colo/cgroup.procs": "",
    "/cg/colo/batch/cgroup.procs": "",
    "/cg/colo/batch/cpuset.cpus.effective": "2,4-12\n",
    "/cg/colo/batch/cpuset.mems.effective": "0-1\n",
    "/cg/colo/batch/cpu.max": "600000 100000\n",
    "/cg/colo/batch/cpu.weight": "1\n",
    "/cg/colo/batch/job.main.0@2/cgroup.procs": "17\n18\n",
    "/cg/colo/batch/job.main.0@2/cpuset.cpus.effective": "4-7\n",
    "/cg/colo/batch/job.main.0@2/cpuset.mems.effective": "0\n",
    "/cg/colo/batch/job.main.0@2/cpu.max": "max 100000\n",
    "/cg/colo/batch/job.main.0@2/cpu.weight": "79\n",
    "/cg/colo/batch/job.main.0@2/cpu.idle": "1\n",
    "/cg/colo/batch/job.main.0@2/memory.max": "1073741824\n",
    "/cg/colo-online/lse.web.main.0@1/cgroup.procs": "30\n",
    "/cg/colo-online/lse.web.main.0@1/cpuset.cpus.effective": "0-1\n",
    "/cg/kubepods.slice/kubepods-besteffort.slice/pod1/cri-1.scope/cgroup.procs": "40\n",
    "/cg/kubepods.slice/kubepods-burstable.slice/pod2/cri-2.scope/cgroup.procs": "41\n",
    "/cg/kubepods.slice/kubepods-burstable.slice/pod2/cpuset.cpus.effective": "4-15\n",
    "/cg/system.slice/ssh.service/cgroup.procs": "50\n",
    "/cg/system.slice/empty.service/cgroup.procs": "",
    "/cg/db/worker/cgroup.procs": "60\n",
    "/cg/user.slice/user-0/cgroup.procs": "70\n",
}


def test_every_group_with_processes_is_read_with_the_values_that_hold_for_it() -> None:
    online = parse_online_groups(("db=/db:LSR",), "colo")
    read = read_groups(Files(V2_FILES), V2, "colo", online, "q1")
    assert (read.request, read.faults, read.left_out) == ("q1", (), 0)
    found = by_name(read)
    assert sorted(found) == [
        "batch", "colo", "colo-online", "cri-1.scope", "cri-2.scope", "job/main/0#2", "ssh.service", "user-0", "web/main/0#1",
        "worker",
    ]  # fmt: skip
    replica = found["job/main/0#2"]
    assert (replica.qos, replica.is_colo, replica.replica, replica.attempt) == (QosClass.BE, True, "job/main/0", 2)
    assert (replica.cpus, replica.mems, replica.weight, replica.idle) == ("4-7", "0", 79, True)
    assert (replica.cpu_quota_mcpu, replica.memory_limit_bytes, replica.processes) == (None, 1 << 30, 2)
    assert (found["batch"].cpus, found["batch"].cpu_quota_mcpu, found["batch"].is_colo) == ("2,4-12", 6_000, True)
    assert (found["web/main/0#1"].qos, found["web/main/0#1"].cpus) == (QosClass.LSE, "0-1")


def test_foreign_groups_have_the_class_that_their_place_tells_and_the_cpuset_of_the_nearest_group_that_has_one() -> (
    None
):
    found = by_name(read_groups(Files(V2_FILES), V2, "colo", parse_online_groups(("db=/db:LSR",), "colo"), "q"))
    classes = {name: found[name].qos for name in ("cri-1.scope", "cri-2.scope", "ssh.service", "worker", "user-0")}
    assert classes == {
        "cri-1.scope": QosClass.BE,
        "cri-2.scope": QosClass.LS,
        "ssh.service": QosClass.SYSTEM,
        "worker": QosClass.LSR,
        "user-0": None,
    }
    assert not any(found[name].is_colo for name in classes)
    assert (found["cri-2.scope"].cpus, found["cri-1.scope"].cpus) == ("4-15", "0-15")
    assert found["cri-2.scope"].mems == "0-1"


def test_under_v1_each_controller_has_its_own_tree() -> None:
    files = {
        "/cg/cpu/colo/batch/j.t.0@1/cgroup.procs": "9\n",
        "/cg/cpu/colo/batch/j.t.0@1/cpu.shares": "2\n",
        "/cg/cpu/colo/batch/j.t.0@1/cpu.cfs_quota_us": "150000\n",
        "/cg/cpu/colo/batch/j.t.0@1/cpu.cfs_period_us": "100000\n",
        "/cg/memory/colo/batch/j.t.0@1/memory.limit_in_bytes": "9223372036854771712\n",
        "/cg/cpuset/cpuset.cpus": "0-3\n",
        "/cg/cpuset/cpuset.mems": "0\n",
        "/cg/cpuset/colo/batch/cpuset.cpus": "1-3\n",
        "/cg/cpu/lonely/cgroup.procs": "10\n",
        "/cg/cpu/lonely/cpu.cfs_quota_us": "-1\n",
        "/cg/cpu/lonely/cpu.cfs_period_us": "100000\n",
    }
    found = by_name(read_groups(Files(files), V1, "colo", (), "q"))
    one = found["j/t/0#1"]
    assert (one.version, one.cpus, one.mems, one.weight, one.cpu_quota_mcpu) == (1, "1-3", "0", 2, 1_500)
    assert (one.memory_limit_bytes, one.processes) == (None, 1)
    assert (found["lonely"].cpus, found["lonely"].cpu_quota_mcpu, found["lonely"].weight) == ("0-3", None, None)


def test_an_absurd_file_costs_its_group_only() -> None:
    files = V2_FILES | {"/cg/system.slice/ssh.service/cpu.weight": "heavy\n"}
    read = read_groups(Files(files), V2, "colo", (), "q")
    assert "ssh.service" not in by_name(read)
    assert len(read.groups) == 9
    (fault,) = read.faults
    assert fault.startswith("/system.slice/ssh.service: ")


def test_a_machine_without_control_groups_has_none_to_show() -> None:
    assert read_groups(Files({}), Hierarchy(version="none"), "colo", (), "q").groups == ()


def test_the_core_has_the_groups_read_and_answers_the_request_for_which_they_were() -> None:
    core = CollectorCore("n1", CollectorPolicy())
    (effect,) = core.handle(RequestReceived(request="r7", body=ListKernelGroups(node="n1")), 5)
    assert effect == ReadGroups(request="r7")
    group = KernelGroup(name="a", path="/a", version=2)
    (reply,) = core.handle(GroupsRead(request="r7", groups=(group,), left_out=3, simulated=True), 9)
    assert reply == Reply(
        request="r7", body=NodeKernelGroups(node="n1", at_ms=9, groups=(group,), left_out=3, simulated=True)
    )
    (refused,) = core.handle(RequestReceived(request="r8", body=GetJob(job="j")), 5)
    assert isinstance(refused, Reply)
    assert isinstance(refused.body, Refusal)
    assert refused.body.code == 404
