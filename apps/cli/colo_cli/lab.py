"""The command `colo lab`: all of colo on this machine."""

import sys
from typing import TYPE_CHECKING

from colo_cli.failure import Failure

if TYPE_CHECKING:
    from colo_cli.lab_verdict import LabVerdict

__all__ = ["lab"]


def lab(
    *,
    nodes: int = 12,
    gpus: int = 4,
    nics: int = 2,
    device_nodes: int = 2,
    load: int = 70,
    real: bool = False,
    trace: str = "",
    jobs: str = "",
    speed: int = 60,
    duration: str = "",
    seed: int = 1,
    nats_url: str = "",
    redis_url: str = "",
    port: int = 0,
    nats_port: int = 0,
    otlp_endpoint: str = "",
    keep: str = "",
    json: bool = False,
) -> int:
    """Run servers, all services and simulated nodes under a real trace, feed batch jobs, and print a verdict.

    Exit code 0 when the verdict is OK (or there was too little time for one), 1 when it is not or a part of the lab failed, 2 when
    the input was wrong. Times are simulated unless they are called wall time.

    Args:
        nodes: Simulated nodes (2 sockets x 2 NUMA zones x 16 CPUs each).
        gpus: GPUs in each NUMA zone of the nodes that have devices, two on a PCIe root.
        nics: Network cards in each NUMA zone of these nodes, on the roots of its GPUs in turn.
        device_nodes: How many nodes, the last ones, have devices, huge pages and the label disk=ssd.
        load: CPU of the jobs that are kept submitted, in percent of what may be promised; above 100 a queue builds up.
        real: Add this machine as one more node that runs the submitted commands in real control groups, as the user who starts the
            lab (needs root).
        trace: Online load: Alibaba machine usage, CSV time,node,cpu_pct,mem_pct, a Prometheus range answer, or the CPU and memory
            percent of Google's virtual machines, one file or an archive (tar) of them; may be gzip.
        jobs: Batch jobs shaped like the pods or tasks of a table (Alibaba 2023 openb or 2017 batch_task; plain or gzip).
        speed: Simulated seconds per second, 1 to 600; the clock slows down while this machine cannot keep up, and says so.
        duration: How long to run ("60s", "10m"); until Ctrl-C when absent.
        seed: Same seed, same machines and jobs.
        nats_url: Use this NATS server (with JetStream) instead of starting one.
        redis_url: Use this empty Redis database instead of starting one.
        port: The gateway's port; 8088 or any free one when 0.
        nats_port: The port of the lab's NATS server; any free one when 0.
        otlp_endpoint: Send traces to this address (OTLP over HTTP).
        keep: Keep logs and data in this directory.
        json: Print one JSON object instead of a table.
    """
    from colo_cli.lab_progress import LabProgress

    progress = LabProgress(is_quiet=json)
    progress.say("starts")
    import asyncio

    from colo_cli.lab_options import LabOptions, parse_span_ms
    from colo_cli.lab_processes import LabFailed
    from colo_common.model.invalid import InvalidInput
    from colo_common.ports import PortError, Refused

    try:
        options = LabOptions(
            nodes=nodes,
            gpus=gpus,
            nics=nics,
            device_nodes=device_nodes,
            load_pct=load,
            real=real,
            trace=trace,
            jobs=jobs,
            speed=speed,
            duration_ms=parse_span_ms(duration, "duration") if duration else None,
            seed=seed,
            nats_url=nats_url,
            redis_url=redis_url,
            port=port,
            nats_port=nats_port,
            otlp_endpoint=otlp_endpoint,
            keep=keep,
            json=json,
        )
        options.validate()
        from colo_cli.lab_run import run_lab

        verdict = asyncio.run(run_lab(options, progress))
    except (InvalidInput, Refused) as error:
        raise Failure(str(error), 2) from error
    except (LabFailed, PortError) as error:
        raise Failure(f"the lab failed: {error}", 1) from error
    finally:
        progress.clear()
    try:
        _print(verdict, is_json=json)
    except OSError:
        # The terminal is gone: there is nobody to tell.
        sys.stdout = None
    return 1 if verdict.ok is False else 0


def _print(verdict: "LabVerdict", *, is_json: bool) -> None:
    if is_json:
        import msgspec

        sys.stdout.write(msgspec.json.encode(verdict).decode() + "\n")
    else:
        from colo_cli.lab_table import print_verdict

        print_verdict(verdict)
    sys.stdout.flush()
