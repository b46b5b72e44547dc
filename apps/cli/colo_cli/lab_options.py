"""The options of `colo lab`, which are all checked before a server or service starts."""

from pathlib import Path
from typing import Final

from msgspec import Struct

from colo_common.model.duration import parse_duration_ms
from colo_common.model.invalid import InvalidInput
from colo_executor.lease import LONGEST_LEASE_MS

__all__ = ["LabOptions", "parse_span_ms"]

_DURATION_MS_MAX: Final = 30 * 86_400_000
_DEVICES_MOST: Final = 64


def parse_span_ms(text: str, field: str) -> int:
    """A span longer than 0 and at most 30 days ("90s", "10m", "1h30m") in ms. Raises InvalidInput for anything else."""
    span_ms = parse_duration_ms(text, field, max_ms=_DURATION_MS_MAX)
    if span_ms == 0:
        raise InvalidInput(field, "must be longer than 0", text)
    return span_ms


class LabOptions(Struct, frozen=True, kw_only=True):
    """`duration_ms` is wall time, None: until Ctrl-C. `speed` is simulated seconds a second. `gpus` and `nics` count per zone of
    the last `device_nodes` nodes. `load_pct` is the CPU of submitted jobs in percent of what may be promised. Ports 0: a free one.
    """

    nodes: int = 12
    gpus: int = 4
    nics: int = 2
    device_nodes: int = 2
    load_pct: int = 70
    real: bool = False
    trace: str = ""
    jobs: str = ""
    speed: int = 60
    duration_ms: int | None = None
    seed: int = 1
    nats_url: str = ""
    redis_url: str = ""
    port: int = 0
    nats_port: int = 0
    json: bool = False
    otlp_endpoint: str = ""
    keep: str = ""

    def validate(self) -> None:
        """Raise InvalidInput for the first value that is out of range or names a missing file."""
        if not 1 <= self.nodes <= 1000:
            raise InvalidInput("nodes", "must be 1 to 1000", self.nodes)
        for name, most in (("gpus", _DEVICES_MOST), ("nics", _DEVICES_MOST), ("device_nodes", 1000)):
            if not 0 <= getattr(self, name) <= most:
                raise InvalidInput(name, f"must be 0 to {most}", getattr(self, name))
        if not 1 <= self.load_pct <= 1000:
            raise InvalidInput("load", "must be 1 to 1000 percent of what may be promised", self.load_pct)
        if not 1 <= self.speed <= 600:
            raise InvalidInput("speed", "must be 1 to 600 simulated seconds a second", self.speed)
        if not 0 <= self.seed < 2**63:
            raise InvalidInput("seed", "must be 0 to 2^63 - 1", self.seed)
        for name in ("port", "nats_port"):
            if not 0 <= getattr(self, name) < 65_536:
                raise InvalidInput(name, "must be 0 (any free port) to 65535", getattr(self, name))
        if self.nats_url and self.nats_port:
            raise InvalidInput(
                "nats_port", "is the port of the lab's own server, and nats_url names another", self.nats_port
            )
        for name in ("trace", "jobs"):
            path = getattr(self, name)
            if path and not Path(path).is_file():
                raise InvalidInput(name, "must be a file that can be read", path)
        if self.keep and Path(self.keep).exists() and (not Path(self.keep).is_dir() or any(Path(self.keep).iterdir())):
            raise InvalidInput("keep", "must be a new or empty directory", self.keep)
        for name, schemes in (("nats_url", ("nats://", "tls://")), ("redis_url", ("redis://", "rediss://", "unix://"))):
            url = getattr(self, name)
            if url and not url.startswith(schemes):
                raise InvalidInput(name, f"must begin with {' or '.join(schemes)}", url)

    @property
    def sample_period_ms(self) -> int:
        """Simulated time between samples of a node: 1 s, or a quarter of a wall second at higher speeds."""
        return max(1000, self.speed * 250)

    @property
    def lease_ms(self) -> int:
        """The lease: six sample periods, so that it outlives a late sample, and at most the longest that a node accepts."""
        return min(6 * self.sample_period_ms, LONGEST_LEASE_MS)
