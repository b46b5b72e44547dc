"""The shells of simulated processes log as real ones do; of thousands of crashes and cuts only errors are worth a line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from colo_common.runtime import logs


@pytest.fixture(scope="package", autouse=True)
def quiet_shells() -> Iterator[None]:
    logs.configure("error")
    yield
    structlog.reset_defaults()
