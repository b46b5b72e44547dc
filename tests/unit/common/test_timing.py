"""A Timing is exposed as the library's histogram is."""

import re

from colo_common.runtime.metrics import SECONDS, Metrics


def text_without_date(metrics: Metrics) -> str:
    return re.sub(r"(?m)^(\w+_created) .*$", r"\1", metrics.text().decode())


def test_a_timing_is_exposed_as_a_histogram_is() -> None:
    timed, wanted = Metrics(), Metrics()
    timing = timed.timing("colo_test_handle_seconds", "time of one event")
    histogram = wanted.histogram("colo_test_handle_seconds", "time of one event")
    assert text_without_date(timed) == text_without_date(wanted)
    for span_s in (0.0, 0.000001, *SECONDS, 0.3, 10.5, 3600.0):
        timing.observe(span_s)
        histogram.observe(span_s)
    assert text_without_date(timed) == text_without_date(wanted)


def test_asking_twice_returns_the_same_timing() -> None:
    metrics = Metrics()
    assert metrics.timing("colo_test_handle_seconds", "time") is metrics.timing("colo_test_handle_seconds", "time")
