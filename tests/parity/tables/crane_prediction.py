"""Crane's prediction. The estimator `dsp` is Crane's: its cases go through it. The value-weighted percentile is nobody's here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from colo_overcommit.estimators.gapless import GaplessSeries
from colo_overcommit.estimators.spectrum import (
    Floats,
    Largest,
    NoiseFilter,
    autocorrelation,
    best_of,
    choose_period,
    filtered_period,
    find_period,
    largest_of_periods,
    prediction_error,
    usable_period,
    without_outliers,
)
from tests.parity.peers.crane_prediction import Buckets, weighted_percentile
from tests.parity.table import JsonObject, Result, kind_of, reference_only, table_of_kinds


def _floats(values: Any) -> Floats:
    return np.asarray(values, dtype=np.float64)


def _percentile(case: JsonObject) -> object:
    shape = case["histogram"]
    if shape["type"] == "linear":
        buckets = Buckets(shape["max"], shape["bucket_size"])
    else:
        buckets = Buckets(shape["max"], shape["first_bucket"], shape["growth"])
    found = weighted_percentile(
        case["samples"], buckets, case["percentile"], case["min_sample_weight"], shape["epsilon"]
    )
    return {
        "estimate": found * (1 + case["margin_fraction"]) / case["target_utilization"],
        "num_buckets": buckets.count,
    }


def _ready(case: JsonObject) -> object:
    return {"ready": case["samples_count"] * case["sample_interval_s"] >= case["history_length_s"]}


def _error(case: JsonObject) -> object:
    relative, error = prediction_error(_floats(case["actual"]), _floats(case["predicted"]))
    return {"mape": relative, "error": error}


def _autocorrelation(case: JsonObject) -> object:
    found = autocorrelation(_floats(case["samples"]))
    return {"values": [float(found[lag]) for lag in case["lags"]]}


def _preprocess(case: JsonObject) -> object:
    interval_s = case["interval_s"]
    series = GaplessSeries(interval_s, len(case["samples"]) * 100)
    if not all(series.add(at_s, value) for at_s, value in case["samples"]):
        return {"error": True, "samples": None}
    values = series.whole(case["truncate_unit_s"])
    first_s = series.end_s - (len(values) - 1) * interval_s
    return {"error": False, "samples": [[first_s + n * interval_s, value] for n, value in enumerate(values)]}


def _outliers(case: JsonObject) -> object:
    values = case["values"]
    found = without_outliers(_floats(values)).tolist()
    replaced = [n for n, (before, after) in enumerate(zip(values, found, strict=True)) if before != after]
    return {"replaced_indices": replaced, "value_at": {key: found[int(key)] for key in case["asked"]}}


def _periods(period_s: int) -> object:
    return {"period_s": period_s, "usable_period_s": usable_period(period_s)}


def _find(case: JsonObject) -> object:
    return _periods(find_period(_floats(case["samples"]), case["interval_s"]))


def _choose(case: JsonObject) -> object:
    return _periods(choose_period(_floats(case["samples"]), case["interval_s"]))


def _largest(case: JsonObject) -> object:
    found = largest_of_periods(_floats(case["samples"]), case["samples_per_period"], case["margin_fraction"])
    return {"estimation": found.tolist()}


def _filter(case: JsonObject) -> NoiseFilter:
    return NoiseFilter(
        least_items=case.get("min_items", 3),
        low_amplitude=case.get("low_amplitude", 1.0),
        margin=case["margin_fraction"],
        most_items=case.get("max_items", 100),
        high_hz=case.get("high_freq_hz", 1 / 3_600),
    )


def _fft(case: JsonObject) -> object:
    found = filtered_period(_floats(case["samples"]), case["samples_per_period"], case["interval_s"], _filter(case))
    return {"estimation": found.tolist()}


def _best(case: JsonObject) -> object:
    """The estimator with the least error on the newest period, which it does not see."""
    candidates = [
        Largest(each["margin_fraction"]) if each["type"] == "max" else _filter(each) for each in case["estimators"]
    ]
    samples = _floats(case["samples"])
    best, errors = best_of(candidates, samples, len(samples) // case["periods"], case["interval_s"])
    return {"best_index": best, "errors": errors}


_KINDS: Final = table_of_kinds(
    "crane_prediction",
    {
        "percentile_histogram": reference_only(_percentile),
        "percentile_ready": reference_only(_ready),
        "prediction_error": _error,
        "autocorrelation": _autocorrelation,
        "preprocess": _preprocess,
        "preprocess_outliers": _outliers,
        "find_period": _find,
        "choose_period": _choose,
        "max_value_estimator": _largest,
        "fft_estimator": _fft,
        "best_estimator": _best,
    },
)


def _run(document: JsonObject) -> Iterator[Result]:
    """As every table; but which values of a cleaned series are compared is written beside what they must be."""
    cases = []
    for case in document.get("cases", ()):
        if kind_of(case) == "preprocess_outliers" and "value_at" in case.get("expected", {}):
            case = {**case, "input": {**case["input"], "asked": list(case["expected"]["value_at"])}}
        cases.append(case)
    return _KINDS.run({"cases": cases})


TABLE: Final = replace(_KINDS, run=_run)
