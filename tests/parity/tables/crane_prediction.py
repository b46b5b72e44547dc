"""Crane's prediction: percentile, period, estimators. colo's estimators are others, so every case is `reference only`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tests.parity.peers.crane_prediction import (
    Buckets,
    Filter,
    Floats,
    autocorrelation,
    choose_period,
    filtered_period,
    find_period,
    largest_of_periods,
    prediction_error,
    preprocessed,
    usable_period,
    weighted_percentile,
    without_outliers,
)
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
    relative, error = prediction_error(case["actual"], case["predicted"])
    return {"mape": relative, "error": error}


def _autocorrelation(case: JsonObject) -> object:
    found = autocorrelation(_floats(case["samples"]))
    return {"values": [float(found[lag]) for lag in case["lags"]]}


def _preprocess(case: JsonObject) -> object:
    samples = [(at_s, value) for at_s, value in case["samples"]]
    found = preprocessed(samples, case["interval_s"], case["truncate_unit_s"])
    return {"error": found is None, "samples": found}


def _outliers(case: JsonObject) -> object:
    values = case["values"]
    found = without_outliers(values)
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


def _filtered(case: JsonObject, samples: Floats, per_period: int, interval_s: int) -> Floats:
    keep = Filter(case["min_items"], case["max_items"], case["high_freq_hz"], case["low_amplitude"])
    return filtered_period(samples, per_period, interval_s, keep, case["margin_fraction"])


def _fft(case: JsonObject) -> object:
    found = _filtered(case, _floats(case["samples"]), case["samples_per_period"], case["interval_s"])
    return {"estimation": found.tolist()}


def _best(case: JsonObject) -> object:
    """The estimator with the least error on the newest period, which it does not see."""
    samples = _floats(case["samples"])
    per_period = len(samples) // case["periods"]
    seen, held_out = samples[:-per_period], samples[-per_period:]
    errors = []
    for estimator in case["estimators"]:
        if estimator["type"] == "max":
            guess = largest_of_periods(seen, per_period, estimator["margin_fraction"])
        else:
            guess = _filtered({**_FILTER, **estimator}, seen, per_period, case["interval_s"])
        errors.append(prediction_error(held_out.tolist(), guess.tolist())[1])
    return {"best_index": errors.index(min(errors)), "errors": errors}


_FILTER: Final = {
    "min_items": 3,
    "max_items": 100,
    "high_freq_hz": 1 / 3600,
    "low_amplitude": 1.0,
    "margin_fraction": 0.0,
}

_KINDS: Final = table_of_kinds(
    "crane_prediction",
    {
        "percentile_histogram": reference_only(_percentile),
        "percentile_ready": reference_only(_ready),
        "prediction_error": reference_only(_error),
        "autocorrelation": reference_only(_autocorrelation),
        "preprocess": reference_only(_preprocess),
        "preprocess_outliers": reference_only(_outliers),
        "find_period": reference_only(_find),
        "choose_period": reference_only(_choose),
        "max_value_estimator": reference_only(_largest),
        "fft_estimator": reference_only(_fft),
        "best_estimator": reference_only(_best),
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
