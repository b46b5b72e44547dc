"""One run of the virtual machine: the emulator's command line, its streams, its time limit, and what to say when it fails."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from msgspec import Struct

from colo_cli.server_process import tied_command
from tests.kernel.lab.refused import MachineFailed
from tests.kernel.lab.variants import Variant

__all__ = ["GUEST_SERVERS", "Server", "boot", "emulator_command"]

GUEST_SERVERS: Final = "10.0.2.100"
"""The address, inside the machine, of the servers of the host that it may reach."""

_TAIL_LINES: Final = 25
_PANIC: Final = "Kernel panic - not syncing"
_PUMP_S: Final = 5.0
_UP: Final = "up\n"
_BOOT_S: Final = 90.0
"""It takes ten; an emulator that is in everybody's way may take many times that."""
_DISTANCES: Final = (10, 11, 21)
"""To the node itself, to another of the socket, to one of another socket."""
_KERNEL: Final = (
    "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic psi=1 mitigations=off random.trust_cpu=on tsc=nowatchdog"
    " apparmor=0 audit=0 net.ifnames=0 cgroup_no_v1=none"
)


class Server(Struct, frozen=True, kw_only=True):
    """A server of the host on `host`:`port`, which the machine sees at GUEST_SERVERS and `guest_port`."""

    guest_port: int
    host: str
    port: int


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
) -> int:
    """Run the machine until it is off; the status of the command inside, whose output goes to `out` as it comes.

    No machine stays: it dies with this process, and at the time limit, which is that of booting until the command begins.
    Raises MachineFailed when there is no status.
    """
    console, status, complaints = (scratch / name for name in ("console", "status", "complaints"))
    command = emulator_command(emulator, kernel, image, variant, servers=servers, console=console, status=status)
    with complaints.open("wb") as said:
        # Ends with this process even when that is killed, so that no machine is left behind.
        process = subprocess.Popen(
            tied_command(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
        )
    pump = threading.Thread(target=_copy, args=(process.stdout, out), daemon=True)
    pump.start()
    try:
        _wait(process, status, console, limit_s)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        pump.join(_PUMP_S)
    return _status(status, console, complaints.read_text(errors="replace").strip(), process.returncode)


def _wait(process: subprocess.Popen[bytes], status: Path, console: Path, limit_s: float) -> None:
    boot_s = min(limit_s, _BOOT_S)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(boot_s)
        return
    if not _began(status):
        sentence = f"the machine did not come up within {boot_s:g} s; it was ended"
        raise MachineFailed(sentence, _tail(console), timed_out=True, began=False)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(limit_s - boot_s)
        return
    sentence = f"the command did not end within {limit_s:g} s; the machine was ended"
    raise MachineFailed(sentence, _tail(console), timed_out=True)


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
        str(emulator), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
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


def _status(status: Path, console: Path, complaints: str, returned: int) -> int:
    text = status.read_text().removeprefix(_UP) if status.exists() else ""
    if text.endswith("\n") and text.strip().isdigit():
        return int(text)
    said = console.read_text(errors="replace") if console.exists() else ""
    if _PANIC in said:
        panic = next(line for line in said.splitlines() if _PANIC in line)
        raise MachineFailed(f"the kernel panicked: {panic.partition(_PANIC)[2].lstrip(': ')}", _tail(console))
    if returned != 0:
        raise MachineFailed(f"the emulator ended with {returned}: {complaints or 'no message'}", _tail(console))
    raise MachineFailed("the machine went off before the command had ended", _tail(console))


def _began(status: Path) -> bool:
    return status.exists() and status.read_text().startswith(_UP)


def _tail(console: Path) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(console.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
    return ""


def _copy(source: BinaryIO | None, target: BinaryIO) -> None:
    if source is None:
        return
    with source:
        while data := os.read(source.fileno(), 65_536):
            target.write(data)
            target.flush()
