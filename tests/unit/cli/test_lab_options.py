"""Every bad option of the lab is one sentence that names it."""

import pytest

from colo_cli.lab_options import LabOptions, parse_span_ms
from colo_common.model.invalid import InvalidInput
from colo_executor.lease import LeasePolicy


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [("60s", 60_000), ("90", 90_000), ("1.5h", 5_400_000), ("250ms", 250), ("10m", 600_000), ("1d", 86_400_000)],
)
def test_a_span_is_read(text: str, span_ms: int) -> None:
    assert parse_span_ms(text, "duration") == span_ms


@pytest.mark.parametrize("text", ["", "0", "0s", "-1s", "1w", "abc", "1e3", "31d", "nan", "1.s"])
def test_a_bad_span_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="^duration: "):
        parse_span_ms(text, "duration")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": 0}, "nodes: must be 1 to 1000"),
        ({"nodes": 1001}, "nodes: must be 1 to 1000"),
        ({"speed": 0}, "speed: must be 1 to 600"),
        ({"load_pct": 0}, "load: must be 1 to 1000 percent"),
        ({"device_nodes": -1}, "device_nodes: must be 0 to 1000"),
        ({"nats_port": 65_536}, "nats_port: must be 0"),
        ({"nats_port": 4222, "nats_url": "nats://h"}, "nats_port: is the port of the lab's own server"),
        ({"gpus": -1}, "gpus: must be 0 to 64"),
        ({"nics": 65}, "nics: must be 0 to 64"),
        ({"seed": -1}, "seed: must be 0"),
        ({"port": 70_000}, "port: must be 0"),
        ({"trace": "no/such/file.csv"}, "trace: must be a file"),
        ({"jobs": "no/such/file.csv"}, "jobs: must be a file"),
        ({"nats_url": "http://x"}, "nats_url: must begin with nats://"),
        ({"redis_url": "localhost"}, "redis_url: must begin with redis://"),
    ],
)
def test_a_bad_option_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        LabOptions(**changes).validate()  # type: ignore[arg-type]


def test_the_lease_outlives_several_samples_and_is_one_that_nodes_accept() -> None:
    for speed in (1, 4, 60, 400, 600):
        options = LabOptions(speed=speed)
        assert options.lease_ms >= 4 * options.sample_period_ms >= 4000
        LeasePolicy(default_ms=options.lease_ms).validate()
