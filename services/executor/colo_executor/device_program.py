"""Rules of devices as a program of the kernel: instructions of BPF for a control group of cgroup v2.

The kernel calls the program with type, access and numbers of a device that a process wants to open or make (struct
bpf_cgroup_dev_ctx of linux/bpf.h), and refuses it where the program returns 0. As under cgroup v1 one rule must grant the whole
access (linux/security/device_cgroup.c, match_exception). Instructions: linux/Documentation/bpf/standardization/instruction-set.rst;
those of little-endian machines.
"""

import hashlib
import struct
from typing import Final

from colo_common.model.invalid import InvalidInput
from colo_executor.device_access import rules_in

__all__ = ["NAME_PREFIX", "device_program", "program_name"]

NAME_PREFIX: Final = "colo_"
"""How the names of all these programs begin."""
_INSTRUCTION: Final = struct.Struct("<BBhi")
_LOAD, _MOVE, _MOVE_TO, _AND, _SHIFT_RIGHT, _UNLESS_EQUAL, _EXIT = 0x61, 0xB7, 0xBF, 0x57, 0x77, 0x55, 0x95
"""Opcodes, in the notation of the kernel's documents: w0 = *(u32 *)(r1 + off); w0 = imm; w0 = w1; w0 &= imm; w0 >>= imm;
if w0 != imm goto off; exit.
"""
_RESULT, _CONTEXT, _TYPE, _ACCESS, _MAJOR, _MINOR, _REST = 0, 1, 2, 3, 4, 5, 6
"""Registers. `_CONTEXT` points to the kernel's bpf_cgroup_dev_ctx, `_REST` is the part of the access that a rule does not grant."""
_TYPES: Final = {"b": 1, "c": 2}
_MODES: Final = {"m": 1, "r": 2, "w": 4}
_NUMBER_MOST: Final = (1 << 31) - 1
"""The greatest number that an instruction holds; those of devices have at most 20 bits."""


def device_program(rules: str) -> bytes:
    """The instructions that open what the rules open ("c 1:3 rwm", one a line), and refuse the rest.

    Raises InvalidInput for rules that open everything, which need no program, and for a number that no device has.
    """
    opened = rules_in(rules)
    if opened is None:
        raise InvalidInput("devices", "must be rules that leave something closed", rules)
    program = [
        _one(_LOAD, _TYPE, _CONTEXT, offset=0),
        _one(_MOVE_TO, _ACCESS, _TYPE),
        _one(_AND, _TYPE, number=0xFFFF),
        _one(_SHIFT_RIGHT, _ACCESS, number=16),
        _one(_LOAD, _MAJOR, _CONTEXT, offset=4),
        _one(_LOAD, _MINOR, _CONTEXT, offset=8),
    ]
    for name, modes in opened.items():
        program += _rule(name, modes)
    program += _returned(0)
    return b"".join(program)


def program_name(program: bytes) -> str:
    """The name by which the kernel shows the program: the same for the same instructions, at most 15 characters."""
    return NAME_PREFIX + hashlib.sha256(program).hexdigest()[:10]


def _rule(name: str, modes: frozenset[str]) -> list[bytes]:
    """Return 1 where the rule grants the access, else go on behind it."""
    kind, _, numbers = name.partition(" ")
    refused = sum(bit for mode, bit in _MODES.items() if mode not in modes)
    checks = [(_TYPE, _TYPES[kind])]
    before: list[bytes] = []
    if refused:
        before = [_one(_MOVE_TO, _REST, _ACCESS), _one(_AND, _REST, number=refused)]
        checks.append((_REST, 0))
    for register, text in zip((_MAJOR, _MINOR), numbers.split(":"), strict=True):
        if text != "*":
            checks.append((register, _number(text, name)))
    granted = _returned(1)
    jumps = [
        _one(_UNLESS_EQUAL, register, offset=len(checks) - 1 - index + len(granted), number=number)
        for index, (register, number) in enumerate(checks)
    ]
    return [*before, *jumps, *granted]


def _number(text: str, name: str) -> int:
    number = int(text)
    if number > _NUMBER_MOST:
        raise InvalidInput("devices", f"must have numbers of at most {_NUMBER_MOST}", name)
    return number


def _returned(result: int) -> list[bytes]:
    return [_one(_MOVE, _RESULT, number=result), _one(_EXIT)]


def _one(code: int, target: int = 0, source: int = 0, *, offset: int = 0, number: int = 0) -> bytes:
    return _INSTRUCTION.pack(code, source << 4 | target, offset, number)
