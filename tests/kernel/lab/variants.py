"""The machines that the lab can be: one table."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from tests.kernel.lab.refused import LabRefused

__all__ = ["DEFAULT", "VARIANTS", "Variant", "variant_named"]


class Variant(Struct, frozen=True, kw_only=True):
    """One machine. `zones` are the CPUs of each NUMA node by the order in which firmware lists them: threads of a core together.

    `offline` CPUs are taken away before the command runs. Under systemd the command is a service.
    """

    name: str
    says: str
    sockets: int = 2
    dies: int = 1
    cores: int = 4
    threads: int = 2
    zones: tuple[str, ...] = ("0-7", "8-15")
    zones_per_socket: int = 1
    cpu: str = "Skylake-Server-v4"
    cgroup: Literal["v2", "v1", "hybrid"] = "v2"
    init: Literal["busybox", "systemd"] = "busybox"
    offline: tuple[int, ...] = ()
    memory_mib: int = 2_048

    @property
    def cpus(self) -> int:
        """Logical CPUs, the offline ones too. `cores` are those of one die."""
        return self.sockets * self.dies * self.cores * self.threads


_AMD: Final = (
    "EPYC-Rome-v2,x-force-features=on,-rdseed,-sha-ni,-fxsr-opt,-misalignsse,-3dnowprefetch,-osvw,-perfctr-core,-clzero"
    ",-xsaveerptr,-ibpb,-nrip-save,-xsavec,-xsaves,-wbnoinvd,-amd-stibp,-rdpid,-amd-ssbd,-ibrs"
)
"""Emulation shows no topology extension, by which AMD's kernels find their caches, unless it is forced: then everything that it
does not have must be named and left out."""

DEFAULT: Final = "numa2"

VARIANTS: Final = (
    Variant(name=DEFAULT, says="2 sockets, 2 NUMA nodes, hyper-threads, cgroup v2"),
    Variant(name="numa1", says="1 socket, 1 NUMA node", sockets=1, cores=8, zones=("0-15",)),
    Variant(
        name="numa4",
        says="2 sockets of 2 NUMA nodes each",
        zones=("0-3", "4-7", "8-11", "12-15"),
        zones_per_socket=2,
    ),
    Variant(name="no-smt", says="one thread a core", cores=8, threads=1),
    Variant(name="amd", says="AMD, 2 L3 domains a socket", dies=2, cores=2, cpu=_AMD),
    Variant(name="cgroup-v1", says="cgroup v1 only", cgroup="v1"),
    Variant(name="hybrid", says="cgroup v1, and v2 without controllers", cgroup="hybrid"),
    Variant(name="offline-cpu", says="CPUs 3 and 12 are offline", offline=(3, 12)),
    Variant(name="systemd", says="systemd is the first process, and slices are its own", init="systemd"),
)


def variant_named(name: str) -> Variant:
    """The row of that name. Raises LabRefused, naming those there are."""
    for variant in VARIANTS:
        if variant.name == name:
            return variant
    raise LabRefused(f"there is no variant {name!r}; there are {', '.join(one.name for one in VARIANTS)}")
