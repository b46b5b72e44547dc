"""Which modules are pure, and whether the import contract in pyproject.toml names them all.

Pure is the rule: a module of a service is pure unless its name is listed here. `python -m tests.repo.purity --write`
(`just purity`) brings the contract up to date; without `--write` it prints what is missing or too much.
"""

from __future__ import annotations

import sys
import tomllib
from typing import Final

from tests.repo.tree import ROOT, SERVICES, dotted, modules, service_package

#: Modules and packages of services that may touch clock, loop, files, network or processes. A new name needs a reason.
#: A name with a service before the dot holds in that service only.
IMPURE: Final = {
    "__main__": "starts the service",
    "assembly": "makes the reader of the machine",
    "body": "reads HTTP request bodies",
    "bounded_files": "reads files of the machine on threads",
    "cgroup": "reads or writes cgroup files",
    "cgroup_hierarchy": "reads where cgroups are mounted",
    "device_fence": "attaches programs to cgroups",
    "files": "reads or writes files of the machine",
    "group_dirs": "reads and removes cgroup directories",
    "group_signals": "signals processes",
    "new_group": "reads which files cgroups beside a new one have",
    "http": "answers HTTP",
    "journal": "keeps the old values of kernel files on disk",
    "kubelet_client": "asks a kubelet",
    "metric_scraper": "asks workloads over HTTP",
    "kernel_triggers": "waits for the kernel in a thread",
    "machine": "reads the files of this machine",
    "main": "composition root",
    "process": "starts and stops processes",
    "settings": "reads files and environment",
    "shell": "asyncio",
    "responses": "answers HTTP",
    "sse": "streams events over HTTP",
    "streams": "streams events over HTTP",
    "trials_file": "reads and writes a file",
    "zone_gauges": "registers metrics",
    "colo_gateway.api": "answers HTTP",
    "colo_gateway.audit_routes": "answers HTTP",
    "colo_gateway.door.audit": "hands events to the service, and logs",
    "colo_gateway.door.door": "answers HTTP",
    "colo_gateway.door.file_changes": "looks at a file of the machine",
    "colo_gateway.door.issuer_keys": "fetches keys",
    "colo_gateway.door.key_file": "reads a file",
    "colo_gateway.door.oidc": "fetches keys",
    "colo_gateway.door.server_refusals": "hears servers",
    "colo_gateway.door.tls": "reads certificates",
    "colo_gateway.door.token_file": "reads a file",
    "colo_gateway.door.token_rows": "reads and writes a file",
    "colo_gateway.event_query": "reads the query of HTTP requests",
    "colo_gateway.clock_headers": "answers HTTP",
    "colo_gateway.external": "answers HTTP",
    "colo_gateway.known_query": "answers HTTP",
    "colo_gateway.policy.routes": "answers HTTP",
    "colo_gateway.reservations": "answers HTTP",
    "colo_gateway.restrictions.routes": "answers HTTP",
    "colo_gateway.state": "answers HTTP",
    "colo_gateway.story_routes": "answers HTTP",
    "colo_gateway.dead_letters": "answers HTTP",
    "colo_gateway.submissions": "answers HTTP",
    "colo_gateway.trace_routes": "answers HTTP",
    "colo_gateway.suggestions": "answers HTTP",
    "colo_gateway.own_problems": "asks services of its process",
    "colo_gateway.survey": "asks the bus",
    "colo_overcommit.history_store": "reads and writes the store",
    "colo_scheduler.commit.pending": "asks another service",
    "colo_scheduler.commit.starts": "asks another service",
    "colo_scheduler.figures": "keeps metrics, and logs",
    "colo_scheduler.ledger.redis": "speaks to Redis",
    "colo_scheduler.reservations.store": "reads the store and asks other services",
}
#: Whole packages that are pure; everything below them is covered by their name.
PURE_PACKAGES: Final = ("colo_common.events", "colo_common.model")
BEGIN: Final = "    # purity: begin\n"
END: Final = "    # purity: end\n"


def pure_modules() -> tuple[str, ...]:
    """Return the import names of every pure module or package, in order of name."""
    found = set(PURE_PACKAGES)
    for path in modules("services"):
        if path.name == "__init__.py":
            # The contract of a package would hold for everything below it, shells included.
            continue
        package, *rest = dotted(path).split(".")
        is_in_a_service = any(path.is_relative_to(service_package(service)) for service in SERVICES)
        name = ".".join((package, *rest))
        if is_in_a_service and rest and name not in IMPURE and not IMPURE.keys() & set(rest):
            found.add(name)
    return tuple(sorted(found))


def contract_modules() -> tuple[str, ...]:
    """Return what the purity contract names now, in its order."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    return tuple(next(c for c in contracts if c["name"].startswith("pure modules"))["source_modules"])


def write_contract() -> None:
    """Rewrite the list between the two marks of pyproject.toml; nothing else changes."""
    path = ROOT / "pyproject.toml"
    before, rest = path.read_text().split(BEGIN)
    _, after = rest.split(END)
    lines = "".join(f'    "{name}",\n' for name in pure_modules())
    path.write_text(before + BEGIN + lines + END + after)


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--write"]):
        sys.stderr.write("usage: python -m tests.repo.purity [--write]\n")
        return 2
    if arguments:
        write_contract()
    wanted, named = set(pure_modules()), set(contract_modules())
    for name in sorted(wanted - named):
        sys.stdout.write(f"missing from the purity contract: {name}\n")
    for name in sorted(named - wanted):
        sys.stdout.write(f"in the purity contract, but not a pure module: {name}\n")
    return 0 if wanted == named else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
