"""A lease goes on over a restart: an executor that starts again and again without a control plane reaches the floor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from colo_executor.lease import LastLease, LeasePhase
from colo_executor.local import CeilingWritten, FastReading, RenewLease, SetCeiling
from colo_executor.process import lease_file
from colo_executor.process.lease_file import LeaseFile
from colo_executor.process.runtime import ProcessRuntime
from colo_executor.process.settings import ProcessPolicy
from colo_executor.reflex import Reflex
from colo_executor.reflex_policy import ReflexPolicy
from tests.support.adopted import adopted

BOOT = "2b1c7f5e-0000-4000-8000-000000000001"


class BootTime:
    """The time since the machine's boot."""

    def __init__(self) -> None:
        self.now_ms = 500_000

    def clock_gettime_ns(self, clock: int) -> int:
        return self.now_ms * 1_000_000

    CLOCK_BOOTTIME = 7


@pytest.fixture
def boot_time(monkeypatch: pytest.MonkeyPatch) -> BootTime:
    made = BootTime()
    monkeypatch.setattr(lease_file, "time", made)
    return made


def test_a_start_renews_nothing_and_hearing_does(tmp_path: Path, boot_time: BootTime) -> None:
    assert LeaseFile(tmp_path, BOOT).continued() == LastLease(age_ms=0, lease_ms=0)
    boot_time.now_ms += 9_000
    second = LeaseFile(tmp_path, BOOT)
    assert second.continued() == LastLease(age_ms=9_000, lease_ms=0)
    boot_time.now_ms += 9_000
    assert LeaseFile(tmp_path, BOOT).continued() == LastLease(age_ms=18_000, lease_ms=0)
    second.renewed(30_000)
    # An order renews the lease for as long as it was.
    boot_time.now_ms += 1_000
    second.renewed(0)
    boot_time.now_ms += 500
    assert LeaseFile(tmp_path, BOOT).continued() == LastLease(age_ms=500, lease_ms=30_000)


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "2b1c7f5e-0000-4000-8000-000000000002 400000 15000\n", f"{BOOT} 900000 15000\n", f"{BOOT} 4000"],
    ids=["empty", "nonsense", "another boot", "of the future", "half a line"],
)
def test_what_says_nothing_about_this_boot_begins_a_lease(tmp_path: Path, boot_time: BootTime, text: str) -> None:
    (tmp_path / "lease").write_text(text)
    assert LeaseFile(tmp_path, BOOT).continued() == LastLease(age_ms=0, lease_ms=0)


def test_a_place_that_takes_no_file_stops_nothing_and_no_link_is_followed(tmp_path: Path, boot_time: BootTime) -> None:
    LeaseFile(tmp_path / "absent", BOOT).renewed(15_000)
    target = tmp_path / "target"
    os.symlink(target, tmp_path / "lease")
    LeaseFile(tmp_path, BOOT).renewed(15_000)
    assert not target.exists()


def test_an_executor_that_starts_every_ten_seconds_and_hears_nothing_steps_batch_work_down(
    tmp_path: Path, boot_time: BootTime
) -> None:
    policy, ceiling_mcpu = ReflexPolicy(), 8_000
    for _ in range(5):
        last_lease = LeaseFile(tmp_path, BOOT).continued()
        reflex = Reflex(policy, capacity_mcpu=10_000, now_ms=0, ceiling_mcpu=ceiling_mcpu, last_lease=last_lease)
        for now_ms in range(0, 10_000, 100):
            reading = FastReading(at_ms=now_ms, capacity_mcpu=10_000, online_used_mcpu=0)
            for effect in reflex.handle(reading, now_ms):
                assert isinstance(effect, SetCeiling)
                ceiling_mcpu = effect.ceiling_mcpu
                reflex.handle(CeilingWritten(ceiling_mcpu=ceiling_mcpu), now_ms)
        boot_time.now_ms += 10_000
    assert ceiling_mcpu == policy.suppress.floor_mcpu
    assert reflex.phase(10_000) is LeasePhase.STEPPING
    # The first word of the control plane gives it back.
    reflex.handle(RenewLease(lease_ms=15_000), 10_000)
    assert reflex.phase(10_000) is LeasePhase.HELD


@pytest.mark.kernel
async def test_the_next_executor_of_this_machine_goes_on_with_the_lease(tmp_path: Path) -> None:
    policy = ProcessPolicy(state_dir=str(tmp_path / "state"), subtree=f"colo-lease-{os.getpid()}")
    first = ProcessRuntime(policy)
    await first.adopt(1)
    assert first.continued_lease().lease_ms == 0
    first.note_lease(20_000)
    await first.close()
    async with adopted(policy) as runtime:
        last_lease = runtime.continued_lease()
        assert last_lease.lease_ms == 20_000
        assert 0 <= last_lease.age_ms < 20_000
