"""`colo feed`: jobs for simulated nodes, as the lab submits them, from a process of its own."""

import sys

from colo_cli.lab_feed import LabFeed
from colo_cli.lab_watch import LabCore, lab_hears
from colo_common.model.invalid import InvalidInput
from colo_common.runtime.process import ServiceProcess, run
from colo_common.runtime.service import Service
from colo_common.runtime.settings import Common
from colo_sim.job_source import GeneratedJobs

__all__ = ["FeedSettings", "build", "main"]


class FeedSettings(Common, frozen=True, kw_only=True):
    """Jobs of `seed` are submitted until their CPU is `load_pct` percent of what `nodes` simulated nodes may be promised.

    `avoids_devices`: nodes with devices are left to the jobs of people.
    """

    nodes: int = 12
    load_pct: int = 70
    seed: int = 1
    avoids_devices: bool = True

    def validate(self) -> None:
        """Raise InvalidInput for the first value that is out of range."""
        if not 1 <= self.nodes <= 1_000:
            raise InvalidInput("nodes", "must be 1 to 1000", self.nodes)
        if not 1 <= self.load_pct <= 1_000:
            raise InvalidInput("load_pct", "must be 1 to 1000 percent of what may be promised", self.load_pct)
        if not 0 <= self.seed < 2**63:
            raise InvalidInput("seed", "must be 0 to 2^63 - 1", self.seed)


async def build(process: ServiceProcess, settings: FeedSettings) -> None:
    """Add a listener to every event, and the feeder that compares what is promised with what is outstanding."""
    core = LabCore()
    process.add(
        Service(
            name="feed",
            core=core,
            bus=process.bus,
            clock=process.clock,
            subscriptions=lab_hears(),
            metrics=process.metrics,
            discoverable=False,
        )
    )
    feed = LabFeed(
        process.bus,
        process.clock,
        core.seen,
        GeneratedJobs(settings.seed),
        nodes=settings.nodes,
        load_pct=settings.load_pct,
        avoids_devices=settings.avoids_devices,
    )
    submitted = process.metrics.gauge("colo_feed_submitted_jobs", "jobs submitted since the start")
    submitted.set_function(lambda: float(feed.submitted))
    process.background(feed.run())


def main() -> int:
    """Run until SIGTERM and return the exit code."""
    return run("feed", FeedSettings, build)


if __name__ == "__main__":
    sys.exit(main())
