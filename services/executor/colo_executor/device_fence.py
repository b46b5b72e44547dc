"""Rules of devices on groups of cgroup v2, which has no file for them: programs that are attached by bpf(2).

No library of the registry is used: those there are drive a compiler or wrap a C library, and an agent needs five system calls.
"""

import contextlib
import ctypes
import errno
import os
import platform
import struct
import sys
from collections import OrderedDict
from typing import Final

from colo_common.model.linux_capability import CAP_SYS_ADMIN, has_capability
from colo_executor.device_access import ALL, rules_in
from colo_executor.device_program import NAME_PREFIX, device_program, program_name
from colo_executor.refusal import error_name

__all__ = ["DeviceFence", "has_sys_admin"]

_SYSCALL: Final = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "loongarch64": 280, "ppc64le": 361}
"""The number of bpf(2) by machine; all of these are little-endian."""
_LOAD, _ATTACH, _DETACH, _OPEN_BY_ID, _INFO, _QUERY = 5, 8, 9, 13, 15, 16
_PROGRAM_TYPE: Final = 15
_ATTACH_TYPE: Final = 6
_ALLOW_MULTI: Final = 2
_INFO_BYTES: Final = 80
_NAME_AT: Final = 64
_NAME_BYTES: Final = 16
_LOG_BYTES: Final = 1 << 16
_LOG_SHOWN: Final = 300
_PROGRAMS_MOST: Final = 64
_KNOWN_MOST: Final = 4_096
_NOTHING_OPEN: Final = "b 0:0 m"
"""Rules of no device that exists, to try whether the kernel takes a program."""


class DeviceFence:
    """Rules of devices by the descriptor of a group's directory. Every method raises OSError with the kernel's reason.

    A group has one program of colo's at most, known by its name; programs of others stay, and the kernel opens what all of them
    open. A program goes with its group. Several threads may use a fence.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, str] = OrderedDict()
        self._lacking: str | None = None

    def lacking(self, dir_fd: int) -> str:
        """Why this process can attach no program to groups, "" when it can: asked of the kernel once, by a program that is loaded
        and attached nowhere.
        """
        if self._lacking is None:
            try:
                os.close(_loaded(device_program(_NOTHING_OPEN)))
                self._names(dir_fd)
                self._lacking = ""
            except OSError as error:
                name = error_name(error.errno)
                self._lacking = f"bpf(2) refused with {name} ({error.strerror})"
        return self._lacking

    def learn(self, rules: str) -> None:
        """Let `read` show a program of these rules as the rules, also one that an earlier executor attached."""
        if rules_in(rules) is not None:
            self._known[program_name(device_program(rules))] = rules
            while len(self._known) > _KNOWN_MOST:
                self._known.popitem(last=False)

    def read(self, dir_fd: int) -> str:
        """The rules that are attached to the group, "a *:* rwm" for none; of a program that is not known its name, as a comment."""
        names = sorted({name for _, name in self._names(dir_fd)})
        if not names:
            return ALL
        if len(names) == 1 and names[0] in self._known:
            return self._known[names[0]]
        return "\n".join(f"# program {name}" for name in names)

    def write(self, dir_fd: int, rules: str) -> None:
        """Attach the program of the rules, then take the earlier one away, so that nothing opens in between."""
        wanted = ""
        attached = self._names(dir_fd)
        if rules_in(rules) is not None:
            program = device_program(rules)
            wanted = program_name(program)
            self.learn(rules)
            if wanted not in {name for _, name in attached}:
                fd = _loaded(program)
                try:
                    _bpf(_ATTACH, struct.pack("<IIII", dir_fd, fd, _ATTACH_TYPE, _ALLOW_MULTI))
                finally:
                    os.close(fd)
        for number, name in attached:
            if name != wanted:
                # One that somebody else takes away meanwhile is gone as well.
                with contextlib.suppress(FileNotFoundError):
                    self._detach(dir_fd, number)

    def _detach(self, dir_fd: int, number: int) -> None:
        fd = _bpf(_OPEN_BY_ID, struct.pack("<III", number, 0, 0))
        try:
            _bpf(_DETACH, struct.pack("<III", dir_fd, fd, _ATTACH_TYPE))
        finally:
            os.close(fd)

    def _names(self, dir_fd: int) -> list[tuple[int, str]]:
        """Number and name of the group's programs that are colo's."""
        found = []
        for number in _attached(dir_fd):
            with contextlib.suppress(FileNotFoundError):
                name = _name_of(number)
                if name.startswith(NAME_PREFIX):
                    found.append((number, name))
        return found


def _attached(dir_fd: int) -> tuple[int, ...]:
    numbers = ctypes.create_string_buffer(4 * _PROGRAMS_MOST)
    query = struct.pack("<IIIIQII", dir_fd, _ATTACH_TYPE, 0, 0, ctypes.addressof(numbers), _PROGRAMS_MOST, 0)
    buffer = ctypes.create_string_buffer(query, len(query))
    _call(_QUERY, buffer)
    (count,) = struct.unpack_from("<I", buffer.raw, 24)
    return struct.unpack_from(f"<{min(count, _PROGRAMS_MOST)}I", numbers.raw)


def _name_of(number: int) -> str:
    fd = _bpf(_OPEN_BY_ID, struct.pack("<III", number, 0, 0))
    try:
        info = ctypes.create_string_buffer(_INFO_BYTES)
        _bpf(_INFO, struct.pack("<IIQ", fd, _INFO_BYTES, ctypes.addressof(info)))
    finally:
        os.close(fd)
    return info.raw[_NAME_AT : _NAME_AT + _NAME_BYTES].split(b"\0", 1)[0].decode("ascii", "replace")


def _loaded(program: bytes) -> int:
    """A descriptor of the program. What the verifier says of one that it refuses is in the error."""
    try:
        return _load(program, None)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EINVAL):
            raise
        log = ctypes.create_string_buffer(_LOG_BYTES)
        try:
            return _load(program, log)
        except OSError:
            text = " ".join(log.value.decode("ascii", "replace").split())[-_LOG_SHOWN:]
            raise OSError(error.errno, f"{error.strerror}; the verifier says: {text}") from error


def _load(program: bytes, log: "ctypes.Array[ctypes.c_char] | None") -> int:
    code = ctypes.create_string_buffer(program, len(program))
    # Says that the program may call functions of the kernel that ask for a licence; this one calls none.
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    request = struct.pack(
        "<IIQQIIQII16sII",
        _PROGRAM_TYPE,
        len(program) // 8,
        ctypes.addressof(code),
        ctypes.addressof(licence),
        0 if log is None else 1,
        0 if log is None else _LOG_BYTES,
        0 if log is None else ctypes.addressof(log),
        0,
        0,
        program_name(program).encode(),
        0,
        0,
    )
    return _bpf(_LOAD, request)


def _bpf(command: int, request: bytes) -> int:
    return _call(command, ctypes.create_string_buffer(request, len(request)))


def _call(command: int, request: "ctypes.Array[ctypes.c_char]") -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None or sys.maxsize < 1 << 32:
        raise OSError(errno.ENOSYS, f"no number of bpf(2) is known for {platform.machine()}")
    result = int(_LIBC.syscall(ctypes.c_long(number), ctypes.c_long(command), request, ctypes.c_long(len(request))))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


def has_sys_admin() -> bool:
    """Whether this process has CAP_SYS_ADMIN."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        return has_capability(file.read(), CAP_SYS_ADMIN)
