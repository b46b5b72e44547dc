"""One run of the virtual machine: the emulator's command line, its streams, its time limit, and what to say when it fails."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from msgspec import Struct

from colo_cli.server_process import tied_command
from tests.kernel.lab.frozen import SILENCE_S, STALL_S, FrozenRule, stalls_in
from tests.kernel.lab.refused import MachineFailed
from tests.kernel.lab.shared_cores import SharedCores
from tests.kernel.lab.variants import Variant

__all__ = ["GUEST_SERVERS", "Server", "boot", "emulator_command"]

GUEST_SERVERS: Final = "10.0.2.100"
"""The address, inside the machine, of the servers of the host that it may reach."""

_TAIL_LINES: Final = 25
_PANIC: Final = "Kernel panic - not syncing"
_NO_PORTS: Final = "kernel-lab: the ports to the host did not appear"
"""What init says when the driver's question was not answered, as when the emulator lost an interrupt."""
_PUMP_S: Final = 5.0
_LOOK_S: Final = 1.0
_OFF_S: Final = 20.0
"""For a machine to go off once the command has ended; it takes two, and nothing of it is needed any more."""
_UP: Final = "up\n"
_BOOT_S: Final = 90.0
"""It takes ten; an emulator that is in everybody's way may take many times that."""
_DISTANCES: Final = (10, 11, 21)
"""To the node itself, to another of the socket, to one of another socket."""
_KERNEL: Final = (
    "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic psi=1 mitigations=off random.trust_cpu=on tsc=nowatchdog"
    " apparmor=0 audit=0 net.ifnames=0 cgroup_no_v1=none"
    f" rcupdate.rcu_cpu_stall_timeout={STALL_S}"
)


class Server(Struct, frozen=True, kw_only=True):
    """A server of the host on `host`:`port`, which the machine sees at GUEST_SERVERS and `guest_port`."""

    guest_port: int
    host: str
    port: int


class Files(Struct, frozen=True, kw_only=True):
    """What one boot leaves behind: the kernel's console, the status port, the emulator's complaints."""

    console: Path
    status: Path
    complaints: Path


def boot(
    emulator: Path,
    kernel: Path,
    image: Path,
    variant: Variant,
    *,
    servers: Sequence[Server],
    limit_s: float,
    scratch: Path,
    out: BinaryIO,
    frozen_after_s: float = SILENCE_S,
    shares_cores: bool = False,
) -> int:
    """Run the machine until it is off; the status of the command inside, whose output goes to `out` as it comes.

    `shares_cores`: the threads of each core share one CPU of the host.
    No machine stays: it dies with this process, when it does not come up, when it freezes (see frozen.py), and at the time limit.
    Raises MachineFailed when there is no status.
    """
    files = Files(**{name: scratch / name for name in ("console", "status", "complaints")})
    for left_by_another_boot in (files.console, files.status):
        left_by_another_boot.unlink(missing_ok=True)
    command = emulator_command(
        emulator, kernel, image, variant, servers=servers, console=files.console, status=files.status
    )
    with files.complaints.open("wb") as reported:
        # Ends with this process even when that is killed, so that no machine is left behind.
        process = subprocess.Popen(
            tied_command(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=reported,
        )
    pump = _Pump(process.stdout, out)
    pump.start()
    cores = SharedCores(process.pid, variant) if shares_cores else None
    try:
        _wait(process, pump, files, limit_s, frozen_after_s, cores)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        pump.join(_PUMP_S)
    return _status(files, process.returncode)


def _wait(
    process: subprocess.Popen[bytes],
    pump: _Pump,
    files: Files,
    limit_s: float,
    frozen_after_s: float,
    cores: SharedCores | None,
) -> None:
    """Return when the machine is off, or should be since the command has ended. Raises MachineFailed when it is given up."""
    begun_s = time.monotonic()
    rule = FrozenRule(frozen_after_s)
    while True:
        left_s = begun_s + limit_s - time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, min(_LOOK_S, left_s)))
            return
        if cores is not None:
            cores.look()
        now_s = time.monotonic()
        status = _text(files.status)
        if _command_status(status) is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, min(_OFF_S, begun_s + limit_s - now_s)))
            return
        began, over = status.startswith(_UP), now_s - begun_s >= limit_s
        frozen = rule.look(now_s, stalls=stalls_in(_text(files.console)), received=pump.copied_bytes + len(status))
        # Booting is quiet, so that a stall which passes could not be told from one that lasts: it has a limit of its own.
        if began and frozen:
            sentence = (
                f"the emulated machine froze: its own kernel reported a stall, and nothing was heard for {frozen_after_s:g} s"
                " after that; it was ended"
            )
            raise MachineFailed(sentence, _tail(files.console), machine_broke=True)
        if began and over:
            sentence = f"the command did not end within {limit_s:g} s; the machine was ended"
            raise MachineFailed(sentence, _tail(files.console), timed_out=True)
        if not began and (over or now_s - begun_s >= _BOOT_S):
            sentence = f"the machine did not come up within {min(limit_s, _BOOT_S):g} s; it was ended"
            raise MachineFailed(sentence, _tail(files.console), timed_out=over, machine_broke=not over, began=False)


def emulator_command(
    emulator: Path,
    kernel: Path,
    image: Path,
    variant: Variant,
    *,
    servers: Sequence[Server],
    console: Path,
    status: Path,
) -> list[str]:
    """The emulator's arguments. The command's output leaves by standard output, its status and the console by files."""
    return [
        str(emulator), "-name", "lab,debug-threads=on", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
        "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", variant.cpu,
        "-smp", _smp(variant), "-m", f"{variant.memory_mib}M", *_numa(variant),
        "-kernel", str(kernel), "-initrd", str(image), "-append", _KERNEL,
        "-chardev", f"file,id=console,path={console}", "-serial", "chardev:console",
        "-device", "virtio-serial-pci",
        "-chardev", "file,id=output,path=/dev/stdout", "-device", "virtserialport,nr=1,chardev=output,name=colo.output",
        "-chardev", f"file,id=status,path={status}", "-device", "virtserialport,nr=2,chardev=status,name=colo.status",
        "-netdev", _network(servers), "-device", "virtio-net-pci,netdev=net,romfile=",
    ]  # fmt: skip


def _smp(variant: Variant) -> str:
    dies = f",dies={variant.dies}" if variant.dies > 1 else ""
    return f"{variant.cpus},sockets={variant.sockets}{dies},cores={variant.cores},threads={variant.threads}"


def _numa(variant: Variant) -> list[str]:
    count = len(variant.zones)
    arguments = []
    for zone, cpus in enumerate(variant.zones):
        arguments += ["-object", f"memory-backend-ram,id=zone{zone},size={variant.memory_mib // count}M"]
        arguments += ["-numa", f"node,nodeid={zone},cpus={cpus},memdev=zone{zone}"]
    for one in range(count):
        for other in range(count):
            far = one // variant.zones_per_socket != other // variant.zones_per_socket
            distance = _DISTANCES[0 if one == other else 2 if far else 1]
            arguments += ["-numa", f"dist,src={one},dst={other},val={distance}"]
    return arguments


def _network(servers: Sequence[Server]) -> str:
    """User-mode, closed: nothing is reached but the servers named, each connection by a relay of its own."""
    forwards = [
        f",guestfwd=tcp:{GUEST_SERVERS}:{server.guest_port}-cmd:"
        f"{sys.executable} {Path(__file__).with_name('relay.py')} {server.host} {server.port}"
        for server in servers
    ]
    return "user,id=net,restrict=on" + "".join(forwards)


def _status(files: Files, returned: int) -> int:
    status = _command_status(_text(files.status))
    if status is not None:
        return status
    reported, tail = _text(files.console), _tail(files.console)
    if _PANIC in reported:
        panic = next(line for line in reported.splitlines() if _PANIC in line)
        raise MachineFailed(f"the kernel panicked: {panic.partition(_PANIC)[2].lstrip(': ')}", tail)
    if _NO_PORTS in reported:
        sentence = "the machine did not come up: the emulator gave it no ports to the host"
        raise MachineFailed(sentence, tail, machine_broke=True, began=False)
    if returned != 0:
        complaints = _text(files.complaints).strip()
        raise MachineFailed(f"the emulator ended with {returned}: {complaints or 'no message'}", tail)
    raise MachineFailed("the machine went off before the command had ended", tail)


def _command_status(reported: str) -> int | None:
    """The number on the status port, once its line is whole."""
    text = reported.removeprefix(_UP)
    return int(text) if text.endswith("\n") and text.strip().isdigit() else None


def _tail(console: Path) -> str:
    return "\n".join(_text(console).splitlines()[-_TAIL_LINES:])


def _text(path: Path) -> str:
    """What is in a file by now; nothing if it is not there yet."""
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


class _Pump(threading.Thread):
    """Carries the command's output from the emulator to its reader, and counts it."""

    def __init__(self, source: BinaryIO | None, target: BinaryIO) -> None:
        super().__init__(daemon=True)
        self._source, self._target = source, target
        self.copied_bytes = 0

    def run(self) -> None:
        if self._source is None:
            return
        with self._source as source:
            while data := os.read(source.fileno(), 65_536):
                self._target.write(data)
                self._target.flush()
                self.copied_bytes += len(data)
