"""A service as a command: `colo scheduler --nats-url ...` is what an image, a unit and a chart start."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

__all__ = ["SERVICES", "run_service", "services_text"]

#: The word on the command line -> the module whose `main` runs it until a signal comes.
SERVICES: Final[Mapping[str, str]] = {
    "collector": "colo_collector.main",
    "executor": "colo_executor.main",
    "overcommit": "colo_overcommit.main",
    "jobs": "colo_jobs.main",
    "scheduler": "colo_scheduler.main",
    "evictor": "colo_evictor.main",
    "gateway": "colo_gateway.main",
    "sim": "colo_sim.host",
    "feed": "colo_cli.feed",
}


def run_service(words: Sequence[str]) -> int:
    """Run the service that the first word names, with the others as its settings. Returns its exit code."""
    name, *settings = words
    if not settings and sys.stderr.isatty():
        # A person may have meant something else: `colo jobs` lists none.
        listed = "; `colo get jobs` lists jobs" if name == "jobs" else ""
        sys.stderr.write(f"colo: runs the service {name} until Ctrl-C{listed}\n")
    # A service reads its words where every program has them; its messages begin with its own name.
    sys.argv[:] = [f"colo {name}", *settings]
    code: int = import_module(SERVICES[name]).main()
    return code


def services_text() -> str:
    """One line about the services, for the end of `colo --help`."""
    return f"Services, each with a --help of its own: {', '.join(f'colo {name}' for name in SERVICES)}\n"
