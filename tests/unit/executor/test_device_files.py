"""Which device files a batch replica may open: what every program expects, what it was given, what the operator names."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import DeviceShare
from colo_executor.process.device_files import EVERYBODYS, check_patterns, device_rules
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
    return device_rules(replace(a_placement(), devices=shares), patterns, str(dev))


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


def test_a_kind_whose_files_nobody_knows_leaves_its_replica_without_a_fence(dev: Path) -> None:
    assert of(dev, "gpu", "quantum") is None


@pytest.mark.parametrize("pattern", ["/etc/passwd", "../etc", "net/../..", "", "net//tun"])
def test_a_pattern_stays_below_dev(pattern: str) -> None:
    check_patterns(["fuse", "net/tun"], "process_device_files")
    with pytest.raises(InvalidInput) as refused:
        check_patterns(["fuse", pattern], "process_device_files")
    assert refused.value.field == "process_device_files[1]"
