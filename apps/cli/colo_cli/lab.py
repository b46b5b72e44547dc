"""The command `colo lab`: all of colo on this machine."""

import asyncio
import json as json_module
import sys

from colo_cli.failure import Failure
from colo_cli.lab_options import LabOptions, parse_span_ms

__all__ = ["lab"]


def lab(
    *,
    nodes: int = 12,
    gpus: int = 0,
    nics: int = 0,
    real: bool = False,
    trace: str = "",
    jobs: str = "",
    speed: int = 60,
    duration: str = "",
    seed: int = 1,
    nats_url: str = "",
    redis_url: str = "",
    port: int = 0,
    otlp_endpoint: str = "",
    keep: str = "",
    json: bool = False,
) -> int:
    """Run servers, all services and simulated nodes under a real trace, feed batch jobs, and print a verdict.

    Args:
        nodes: Simulated nodes (2 sockets x 2 NUMA zones x 16 CPUs each).
        gpus: GPUs in each NUMA zone of a simulated node, two on a PCIe root.
        nics: Network cards in each NUMA zone, on the roots of its GPUs in turn.
        real: Add this machine as one more node that runs real processes in real control groups (needs root).
        trace: Online load: Alibaba machine usage, CSV time,node,cpu_pct,mem_pct, or a Prometheus range answer; may be gzip.
        jobs: Batch jobs shaped like the BE pods of a pod table (CSV, plain or gzip) instead of generated ones.
        speed: Simulated seconds per second.
        duration: How long to run ("60s", "10m"); until Ctrl-C when absent.
        seed: Same seed, same machines and jobs.
        nats_url: Use this NATS server (with JetStream) instead of starting one.
        redis_url: Use this empty Redis database instead of starting one.
        port: The gateway's port; 8088 or any free one when 0.
        otlp_endpoint: Send traces to this address (OTLP over HTTP).
        keep: Keep logs and data in this directory.
        json: Print one JSON object instead of a table.
    """
    from colo_common.model.invalid import InvalidInput
    from colo_common.ports import PortError

    try:
        options = LabOptions(
            nodes=nodes,
            gpus=gpus,
            nics=nics,
            real=real,
            trace=trace,
            jobs=jobs,
            speed=speed,
            duration_ms=parse_span_ms(duration, "duration") if duration else None,
            seed=seed,
            nats_url=nats_url,
            redis_url=redis_url,
            port=port,
            otlp_endpoint=otlp_endpoint,
            keep=keep,
            json=json,
        )
        options.validate()
        from colo_cli.lab_run import run_lab

        verdict = asyncio.run(run_lab(options))
    except (InvalidInput, PortError) as error:
        raise Failure(str(error), 2) from error
    if json:
        sys.stdout.write(json_module.dumps(verdict) + "\n")
    else:
        from colo_cli.lab_table import print_verdict

        print_verdict(verdict)
    return 0
