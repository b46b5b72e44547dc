"""The pressure format before Linux 4.20."""

from __future__ import annotations

import pytest

from colo_common.model.invalid import InvalidInput
from tests.parity.peers.old_pressure import OldPressureLine, parse_old_pressure


def test_the_old_format_is_read_and_nothing_else() -> None:
    old = parse_old_pressure("aggr 316016073\nsome 0.00 0.03 0.05\nfull 1.00 2.00 3.00\n")
    assert old.aggregate_us == 316_016_073
    assert old.some == OldPressureLine(0, 3, 5)
    assert old.full == OldPressureLine(100, 200, 300)
    for bad in ("", "some 0.00 0.03 0.05\n", "aggr 1\n", "aggr x\nsome 0.00 0.03 0.05\n", "aggr 1\nsome 0.00 0.03\n"):
        with pytest.raises(InvalidInput):
            parse_old_pressure(bad)
