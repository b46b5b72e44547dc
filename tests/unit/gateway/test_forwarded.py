"""Whose address counts behind proxies: no header of a stranger, and nothing that a stranger could have written into one."""

from __future__ import annotations

import pytest

from colo_common.model.invalid import InvalidInput
from colo_gateway.door.forwarded import address_of, networks_of
from colo_gateway.settings import GatewaySettings

PROXIES = networks_of(("10.1.0.0/16", "192.0.2.7", "fd00::/8"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        # A stranger's header says nothing, and without a header the peer is who asks.
        ("203.0.113.9", ["1.2.3.4"], "203.0.113.9"),
        ("10.1.2.3", [], "10.1.2.3"),
        ("10.1.2.3", ["203.0.113.9"], "203.0.113.9"),
        ("::ffff:10.1.2.3", ["203.0.113.9"], "203.0.113.9"),
        ("fd00::1", ["2001:db8::5"], "2001:db8::5"),
        # What the client wrote itself stands left of what the proxy added.
        ("10.1.2.3", ["127.0.0.1, 203.0.113.9"], "203.0.113.9"),
        ("10.1.2.3", ["127.0.0.1", "203.0.113.9"], "203.0.113.9"),
        ("10.1.2.3", ["nonsense, 203.0.113.9 ,192.0.2.7"], "203.0.113.9"),
        ("10.1.2.3", ["203.0.113.9, 10.1.9.9, 192.0.2.7"], "203.0.113.9"),
        # Forms that proxies write.
        ("10.1.2.3", ["203.0.113.9:41234"], "203.0.113.9"),
        ("10.1.2.3", ["[2001:db8::5]:41234"], "2001:db8::5"),
        ("10.1.2.3", ["::ffff:203.0.113.9"], "203.0.113.9"),
        ("10.1.2.3", ["fe80::1%eth0"], "fe80::1"),
        # All of them proxies: the first of the chain asked.
        ("10.1.2.3", ["10.1.0.1, 10.1.0.2"], "10.1.0.1"),
        # Reading ends at what is no address.
        ("10.1.2.3", ["203.0.113.9, unknown"], "10.1.2.3"),
        ("10.1.2.3", ["203.0.113.9, unknown, 192.0.2.7"], "192.0.2.7"),
        ("10.1.2.3", ["", " , ,"], "10.1.2.3"),
        ("10.1.2.3", ["203.0.113.9:"], "10.1.2.3"),
        ("10.1.2.3", ["203.0.113.9:99999999"], "10.1.2.3"),
        ("10.1.2.3", ["[::1"], "10.1.2.3"),
        ("10.1.2.3", ["[::1]x"], "10.1.2.3"),
        ("10.1.2.3", ["1.2.3.4 5.6.7.8"], "10.1.2.3"),
        ("", ["203.0.113.9"], ""),
    ],
)
def test_whose_address_counts(peer: str, forwarded: list[str], address: str) -> None:
    assert address_of(peer, forwarded, PROXIES) == address
    assert address_of(peer, forwarded, ()) == peer


def test_a_chain_that_is_made_up_ends() -> None:
    assert address_of("10.1.2.3", ["203.0.113.9" + ", 10.1.0.1" * 1_000], PROXIES) == "10.1.0.1"


@pytest.mark.parametrize("given", ["10.1.2.3/16", "proxy.example", "0.0.0.0/0", "::/0", ""])
def test_what_is_no_network_or_every_address_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        GatewaySettings(trusted_proxies=(given,)).validate()
    assert refused.value.field == "trusted_proxies"
