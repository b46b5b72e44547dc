"""The program of a device fence, run by a small machine over accesses, and attached to a group of this kernel's cgroup v2."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colo_common.model.invalid import InvalidInput
from colo_executor.device_access import ALL
from colo_executor.device_fence import DeviceFence
from colo_executor.device_program import device_program, program_name
from colo_executor.process.device_files import EVERYBODYS

TYPES = {"b": 1, "c": 2}
MODES = {"m": 1, "r": 2, "w": 4}
EVERYBODY = "\n".join(EVERYBODYS)
SEVERAL = "c 1:3 rwm\nc 1:5 r\nb 7:* rw\nc *:9 m\nc 1:5 m"


def ran(program: bytes, kind: str, modes: str, major: int, minor: int) -> int:
    """What the program returns for an access. It must end within its length: it never jumps back."""
    access = sum(MODES[mode] for mode in modes)
    context = struct.pack("<III", access << 16 | TYPES[kind], major, minor)
    registers, at = [0] * 11, 0
    for _ in range(len(program) // 8):
        code, both, offset, number = struct.unpack_from("<BBhi", program, 8 * at)
        target, source = both & 15, both >> 4
        at += 1
        match code:
            case 0x61:
                assert source == 1
                (registers[target],) = struct.unpack_from("<I", context, offset)
            case 0xB7:
                registers[target] = number
            case 0xBF:
                registers[target] = registers[source]
            case 0x57:
                registers[target] &= number
            case 0x77:
                registers[target] >>= number
            case 0x55:
                assert offset > 0
                at += offset if registers[target] != number else 0
            case 0x95:
                return registers[0]
            case _:
                raise AssertionError(f"instruction {code:#x}")
    raise AssertionError("the program does not end")


def granted(rules: str, kind: str, modes: str, major: int, minor: int) -> bool:
    """The kernel's rule for cgroup v1: one rule grants the whole access; rules of the same device are one."""
    is_granted, modes_of = False, dict[str, set[str]]()
    for line in rules.splitlines():
        device, _, opened = line.rpartition(" ")
        modes_of.setdefault(device, set()).update(opened)
    for device, opened in modes_of.items():
        rule_kind, _, numbers = device.partition(" ")
        rule_major, _, rule_minor = numbers.partition(":")
        if rule_kind == kind and rule_major in ("*", str(major)) and rule_minor in ("*", str(minor)):
            is_granted = is_granted or set(modes) <= opened
    return is_granted


@pytest.mark.parametrize(
    ("rules", "kind", "modes", "major", "minor", "is_open"),
    [
        (EVERYBODY, "c", "rw", 1, 3, True),
        (EVERYBODY, "c", "rw", 136, 7, True),
        (EVERYBODY, "c", "r", 1, 1, False),
        (EVERYBODY, "c", "m", 1, 1, True),
        (EVERYBODY, "c", "rm", 1, 1, False),
        (EVERYBODY, "b", "r", 7, 0, False),
        (EVERYBODY, "b", "m", 7, 0, True),
        (EVERYBODY, "b", "r", 1, 3, False),
        (SEVERAL, "c", "r", 1, 5, True),
        (SEVERAL, "c", "rm", 1, 5, True),
        (SEVERAL, "c", "rw", 1, 5, False),
        (SEVERAL, "b", "rw", 7, 300, True),
        (SEVERAL, "b", "rw", 8, 0, False),
        (SEVERAL, "c", "m", 4_000, 9, True),
        ("", "c", "r", 1, 3, False),
    ],
)
def test_the_program_opens_what_the_rules_say(
    rules: str, kind: str, modes: str, major: int, minor: int, is_open: bool
) -> None:
    assert granted(rules, kind, modes, major, minor) is is_open
    assert ran(device_program(rules), kind, modes, major, minor) == is_open


numbers = st.sampled_from(["*", "0", "1", "3", "195", "1048575"])
modes = st.sampled_from(["r", "w", "m", "rw", "rm", "wm", "rwm"])
rule = st.builds("{} {}:{} {}".format, st.sampled_from("bc"), numbers, numbers, modes)


@given(
    st.lists(rule, max_size=12).map("\n".join),
    st.sampled_from("bc"),
    st.one_of(st.just(""), modes),
    st.sampled_from([0, 1, 3, 4, 195]),
    st.sampled_from([0, 1, 3, 4, 1_048_575]),
)
def test_the_program_equals_the_rule_of_cgroup_v1(rules: str, kind: str, access: str, major: int, minor: int) -> None:
    assert ran(device_program(rules), kind, access, major, minor) == granted(rules, kind, access, major, minor)


def test_rules_without_a_program_are_refused_and_the_same_rules_have_the_same_name() -> None:
    for rules in (ALL, "c 2147483648:0 r"):
        with pytest.raises(InvalidInput):
            device_program(rules)
    names = {program_name(device_program(rules)) for rules in (EVERYBODY, SEVERAL, EVERYBODY)}
    assert len(names) == 2
    assert all(len(name) <= 15 for name in names)


@pytest.fixture
def group() -> Iterator[Path]:
    """A group of cgroup v2 to which this process may attach programs."""
    roots = [Path(root) for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")]
    root = next((root for root in roots if (root / "cgroup.controllers").exists()), None)
    if root is None:
        pytest.skip("no cgroup v2 is mounted here")
    path = root / f"colo-fence-{os.getpid()}"
    try:
        path.mkdir()
    except OSError:
        pytest.skip(f"no group can be made in {root}")
    with opened(path) as fd:
        lacking = DeviceFence().lacking(fd)
    if lacking:
        path.rmdir()
        pytest.skip(lacking)
    yield path
    path.rmdir()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


OPENS = (
    'echo $$ > "$0/cgroup.procs" || exit 1; for each in "<> /dev/null" "< /dev/zero" "> /dev/zero" "< /dev/full"; do'
    ' (eval "exec 3$each") 2>&- && echo open || echo closed; done'
)


def opens(path: Path) -> list[str]:
    """What a process of the group may do with null, zero (to read and to write) and full."""
    command = ["sh", "-c", OPENS, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.kernel
def test_the_kernel_takes_the_program_keeps_to_it_and_shows_its_rules(group: Path) -> None:
    rules = "c *:* m\nc 1:3 rwm\nc 1:5 r"
    assert opens(group) == ["open", "open", "open", "open"]
    with opened(group) as fd:
        fence = DeviceFence()
        assert fence.read(fd) == ALL
        fence.write(fd, rules)
        assert fence.read(fd) == rules
        assert opens(group) == ["open", "open", "closed", "closed"]
        # Another process does not know the rules until it is told them; a program that it replaces is gone.
        later = DeviceFence()
        assert later.read(fd) == f"# program {program_name(device_program(rules))}"
        later.learn(rules)
        assert later.read(fd) == rules
        later.write(fd, "c 1:7 r")
        assert later.read(fd) == "c 1:7 r"
        assert opens(group) == ["closed", "closed", "closed", "open"]
        later.write(fd, ALL)
        assert later.read(fd) == ALL
    assert opens(group) == ["open", "open", "open", "open"]


def test_what_is_no_group_cannot_be_fenced_and_says_why(tmp_path: Path) -> None:
    with opened(tmp_path) as fd:
        fence = DeviceFence()
        assert fence.lacking(fd).startswith("bpf(2) refused with E")
        with pytest.raises(OSError, match="."):
            fence.write(fd, EVERYBODY)
