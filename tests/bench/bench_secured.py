"""What identity and TLS cost end to end: pairs of two clusters, one where everybody is let in and one where everybody is somebody.

`python -m tests.bench secured [--nodes 1000] [--seconds 8] [--pairs 3] [--quick]`. The second cluster has what `colo admin
credentials` makes: a user for each role with its rights on NATS and in Redis, and TLS to NATS (the Redis of the tests listens
on a socket of this machine, without). Of each pair the one that goes first changes, so that a machine that slows down slows
both. Run it where nobody else works.

Printed: placements a second of each, the CPU that all processes spent on one, the medians of the ratios beside the budget, and the
CPU of the idle services. Where somebody else works neither tells: batches, and with them the CPU of a placement, follow the load.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple

from colo_cli.main import main as colo
from colo_cli.servers import NatsServer, RedisServer
from colo_common.adapters.nats_access import NatsAccess
from colo_common.runtime import logs
from tests.bench.bench_end_to_end import all_published, full_speed, steady
from tests.bench.fleet import SERVICES, running_cluster
from tests.bench.stand_in import FleetCore
from tests.support.secured import secured
from tests.support.servers import nats_server, redis_server

BUDGET_PCT: Final = 15
IDLE_S: Final = 5.0
TRACE_RATIO: Final = 0.01


class Servers(NamedTuple):
    """Both servers, how the load reaches NATS, and what each service is printed besides."""

    nats: NatsServer
    redis: RedisServer
    access: NatsAccess | None
    environments: dict[str, dict[str, str]]


@contextmanager
def open_servers() -> Iterator[Servers]:
    with nats_server() as nats, redis_server() as redis:
        yield Servers(nats, redis, None, {})


@contextmanager
def locked_servers(directory: Path) -> Iterator[Servers]:
    """Servers with users and, on NATS, TLS."""
    import trustme

    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    ca, cert, key = (directory / f"{name}.pem" for name in ("ca", "cert", "key"))
    authority.cert_pem.write_to_path(str(ca))
    certificate.cert_chain_pems[0].write_to_path(str(cert))
    certificate.private_key_pem.write_to_path(str(key))
    with ExitStack() as stack:
        # What the commands tell a person is no figure.
        printed = stack.enter_context(redirect_stdout(StringIO()))
        stack.enter_context(redirect_stderr(printed))
        found = stack.enter_context(secured(directory, streams=f'tls {{ cert_file: "{cert}", key_file: "{key}" }}'))
        url = found.nats.url.replace("nats://", "tls://")
        encrypted = {"COLO_NATS_URL": url, "COLO_NATS_CA_FILE": str(ca)}
        admin = NatsAccess(url=url, ca_file=str(ca), nkey_file=str(found.folder / "admin.nkey"))
        words = ["--nats-url", url, "--nats-ca-file", str(ca), "--nats-nkey-file", admin.nkey_file]
        if colo(["admin", "init", *words]) != 0:
            raise SystemExit(f"the streams could not be made: {printed.getvalue()}")
        environments = {name: found.environment(name) | encrypted for name in SERVICES}
        yield Servers(found.nats, found.redis, admin, environments)


class Measured(NamedTuple):
    """Placements a second, CPU microseconds of all processes a placement, and percent of a core of the services without work."""

    rate: float
    cpu_us: float
    idle_pct: float


async def measure(servers: Servers, nodes: int, seconds: float) -> Measured:
    """What a cluster of its own does at full speed, and at rest."""
    names = [f"node-{index:05}" for index in range(nodes)]
    with tempfile.TemporaryDirectory(prefix="colo-bench-") as directory:
        async with running_cluster(
            servers.nats,
            servers.redis,
            Path(directory),
            names,
            max(2.0, nodes / 250),
            TRACE_RATIO,
            core=FleetCore(),
            access=servers.access,
            environments=servers.environments,
        ) as cluster:
            gc.freeze()
            await (await steady(cluster, "warm-up", 20, 1, 0.5)).settled()
            rate, load, spent_us = await full_speed(cluster, "full", seconds)
            await load.settled()
            await all_published(cluster)
            before = cluster.costs()
            await asyncio.sleep(IDLE_S)
            after = cluster.costs()
            idle_s = sum(after[name][0] - before[name][0] for name in SERVICES)
            return Measured(rate, sum(spent_us.values()), idle_s / IDLE_S * 100)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000, help="nodes of each cluster (default 1000)")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement (default 8)")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of both (default 3)")
    parser.add_argument("--quick", action="store_true", help="one pair of 100 nodes, 3 s each")
    options = parser.parse_args(arguments)
    logs.configure("error")
    nodes, seconds, pairs = (100, 3.0, 1) if options.quick else (options.nodes, options.seconds, options.pairs)
    print(f"{pairs} pairs of {nodes:,} nodes on {os.cpu_count()} CPUs, shared with the servers and the load")
    ratios: list[float] = []
    cpu_ratios: list[float] = []
    for number in range(pairs):
        found: dict[bool, Measured] = {}
        for is_locked in (False, True) if number % 2 == 0 else (True, False):
            with (
                tempfile.TemporaryDirectory(prefix="colo-bench-") as directory,
                locked_servers(Path(directory)) if is_locked else open_servers() as servers,
            ):
                found[is_locked] = asyncio.run(measure(servers, nodes, seconds))
        plain, locked = found[False], found[True]
        ratios.append(locked.rate / plain.rate)
        cpu_ratios.append(locked.cpu_us / plain.cpu_us)
        print(
            f"  pair {number + 1}: {plain.rate:,.0f} placements/s open, {locked.rate:,.0f} with users and TLS ({ratios[-1]:.1%});"
            f" {plain.cpu_us:,.0f} and {locked.cpu_us:,.0f} us of CPU each ({cpu_ratios[-1]:.1%});"
            f" the {len(SERVICES)} services with nodes but no work {plain.idle_pct:.1f} and {locked.idle_pct:.1f} % of a core",
            flush=True,
        )
    cost_pct = 100 * (1 - statistics.median(ratios))
    print(f"  identity and TLS cost {cost_pct:.1f} % of the rate (median of {pairs})   budget {BUDGET_PCT} %")
    print(f"  and {100 * (statistics.median(cpu_ratios) - 1):.1f} % more CPU a placement (median of {pairs})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
