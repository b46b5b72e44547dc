"""Labs of one machine: no two of them have one port for their gateways."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from colo_cli.lab_options import LabOptions
from colo_cli.lab_servers import LabServers
from colo_common.model.invalid import InvalidInput

pytestmark = [pytest.mark.server]


async def test_labs_that_start_at_once_have_ports_of_their_own(tmp_path: Path) -> None:
    """No gateway listens yet, so that each port is still free for whoever looks at it alone."""
    options = LabOptions()
    for name in "abc":
        (tmp_path / name).mkdir()
    async with LabServers(options, tmp_path / "a") as first, LabServers(options, tmp_path / "b") as second:
        assert first.gateway_port != second.gateway_port
        taken = replace(options, port=first.gateway_port)
        with pytest.raises(InvalidInput, match="port: must be a port that no other lab of this machine has"):
            await LabServers(taken, tmp_path / "c").__aenter__()
    async with LabServers(taken, tmp_path / "c") as third:
        assert third.gateway_port == first.gateway_port
