"""Which device files a batch replica may open: what every program expects, what it was given, what the operator names."""

import os
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import DeviceShare
from colo_executor.located_devices import DeviceAddress
from colo_executor.process.device_files import (
    EVERYBODYS,
    DevicePlaces,
    check_patterns,
    device_rules,
    why_unfenced,
)
from colo_executor.process.settings import ProcessPolicy
from tests.support.builders import a_placement


def a_rule(path: str) -> str:
    number = os.stat(path).st_rdev
    return f"c {os.major(number)}:{os.minor(number)} rwm"


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """Links to devices that every machine has stand for those of drivers."""
    (tmp_path / "dri").mkdir()
    (tmp_path / "net").mkdir()
    for name, target in (
        ("nvidia0", "/dev/full"),
        ("dri/card0", "/dev/tty"),
        ("net/tun", "/dev/ptmx"),
        ("gone", "/nowhere"),
    ):
        (tmp_path / name).symlink_to(target)
    (tmp_path / "nvidia-file").write_text("")
    return tmp_path


def of(dev: Path, *kinds: str, patterns: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    shares = tuple(DeviceShare(kind=kind, device=0, zone=0) for kind in kinds)
    return device_rules(replace(a_placement(), devices=shares), patterns, DevicePlaces(dev_root=str(dev)))


def test_without_a_device_it_opens_what_every_program_expects(dev: Path) -> None:
    assert of(dev) == EVERYBODYS
    everybodys = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")
    assert {a_rule(f"/dev/{name}") for name in everybodys} < set(EVERYBODYS)


def test_a_kind_that_it_was_given_and_the_operators_files_are_open_too(
    dev: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colo_executor.process.device_files.EVERYBODYS", ())
    assert of(dev) == ()
    assert of(dev, "gpu") == tuple(sorted((a_rule("/dev/full"), a_rule("/dev/tty"))))
    assert of(dev, "nic") == ()
    assert of(dev, patterns=("net/t*", "gone", "absent")) == (a_rule("/dev/ptmx"),)


@pytest.mark.parametrize(
    ("kinds", "lacking", "devices", "why"),
    [
        ((), "no right", "given", ""),
        (("gpu",), "", "given", ""),
        (("gpu",), "no right", "given", "no right"),
        (("gpu",), "no right", "all", ""),
        (("gpu", "odd"), "", "given", "nobody knows the files of devices of the kind odd"),
        (("odd",), "no right", "given", "no right"),
    ],
)
def test_why_a_replica_with_devices_can_open_others(
    kinds: tuple[str, ...], lacking: str, devices: Literal["given", "all"], why: str
) -> None:
    placement = replace(
        a_placement("job/main/0"), devices=tuple(DeviceShare(kind=kind, device=0, zone=0) for kind in kinds)
    )
    assert why_unfenced(ProcessPolicy(devices=devices), placement, lacking) == why


def test_a_kind_whose_files_nobody_knows_leaves_its_replica_without_a_fence(dev: Path) -> None:
    assert of(dev, "gpu", "quantum") is None


@pytest.fixture
def two_gpus(tmp_path: Path) -> DevicePlaces:
    """One of NVIDIA's, divided into instances, and one whose driver lists its files below it; their numbers are crossed."""
    files = {
        "sys/bus/pci/devices/0000:3b:00.0/drm/card1/dev": "226:1\n",
        "sys/bus/pci/devices/0000:3b:00.0/drm/renderD129/dev": "226:129\n",
        "sys/bus/pci/devices/0000:af:00.0/class": "0x030200\n",
        "proc/driver/nvidia/gpus/0000:af:00.0/information": "Model: \t A100\nDevice Minor: \t 0\n",
        "proc/driver/nvidia/capabilities/gpu0/mig/gi1/access": "DeviceFileMinor: 12\nDeviceFileMode: 256\n",
        "proc/driver/nvidia/capabilities/gpu0/mig/config": "DeviceFileMinor: 1\n",
        "proc/driver/nvidia/capabilities/gpu1/mig/gi1/access": "DeviceFileMinor: 147\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "dev/nvidia-caps").mkdir(parents=True)
    for name, target in (
        ("nvidiactl", "/dev/null"),
        ("nvidia0", "/dev/zero"),
        ("nvidia1", "/dev/zero"),
        ("nvidia-caps/nvidia-cap12", "/dev/full"),
        ("nvidia-caps/nvidia-cap147", "/dev/random"),
        ("nvidia-caps/nvidia-cap1", "/dev/random"),
    ):
        (tmp_path / "dev" / name).symlink_to(target)
    return DevicePlaces(
        addresses=(
            DeviceAddress(kind="gpu", device=0, address="0000:3b:00.0"),
            DeviceAddress(kind="gpu", device=1, address="0000:af:00.0"),
            DeviceAddress(kind="gpu", device=2, address="../../../0000:3b:00.0"),
        ),
        dev_root=str(tmp_path / "dev"),
        sys_root=str(tmp_path / "sys"),
        proc_root=str(tmp_path / "proc"),
    )


@pytest.mark.parametrize(
    ("gpus", "opened"),
    [
        ((0,), ["c 226:129 rwm", "c 226:1 rwm", "/dev/null"]),
        ((1,), ["c 195:0 rwm", "/dev/full", "/dev/null"]),
        ((0, 1), ["c 226:129 rwm", "c 226:1 rwm", "c 195:0 rwm", "/dev/full", "/dev/null"]),
        # Nobody knows where this one is.
        ((2,), ["/dev/null", "/dev/zero", "/dev/full", "/dev/random"]),
    ],
    ids=["the kernel tells", "NVIDIA tells", "both", "unknown"],
)
def test_a_share_of_a_gpu_opens_the_files_of_that_gpu(
    two_gpus: DevicePlaces, monkeypatch: pytest.MonkeyPatch, gpus: tuple[int, ...], opened: list[str]
) -> None:
    monkeypatch.setattr("colo_executor.process.device_files.EVERYBODYS", ())
    shares = tuple(DeviceShare(kind="gpu", device=number, zone=0, core_pct=50) for number in gpus)
    rules = device_rules(replace(a_placement(), devices=shares), (), two_gpus)
    assert rules == tuple(sorted(each if each.startswith("c ") else a_rule(each) for each in opened))


@pytest.mark.parametrize("pattern", ["/etc/passwd", "../etc", "net/../..", "", "net//tun"])
def test_a_pattern_stays_below_dev(pattern: str) -> None:
    check_patterns(["fuse", "net/tun"], "process_device_files")
    with pytest.raises(InvalidInput) as refused:
        check_patterns(["fuse", pattern], "process_device_files")
    assert refused.value.field == "process_device_files[1]"
