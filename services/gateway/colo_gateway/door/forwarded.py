"""Who asks, where proxies stand before the gateway: the nearest address that no trusted proxy has."""

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

from colo_common.model.invalid import InvalidInput

__all__ = ["Network", "address_of", "networks_of"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NETWORKS_MOST: Final = 100
# A chain of more proxies than this is a text that somebody made up.
_HOPS_MOST: Final = 32


def networks_of(given: Sequence[str]) -> tuple[Network, ...]:
    """The networks of the setting `trusted_proxies`. Raises InvalidInput for one that is none, or that is every address."""
    if len(given) > _NETWORKS_MOST:
        raise InvalidInput("trusted_proxies", f"must be at most {_NETWORKS_MOST} networks", len(given))
    found: list[Network] = []
    for text in given:
        try:
            network = ipaddress.ip_network(text)
        except ValueError as error:
            rule = "must be addresses or networks such as 10.1.2.3 or 10.1.0.0/16"
            raise InvalidInput("trusted_proxies", rule, text) from error
        if network.prefixlen == 0:
            raise InvalidInput("trusted_proxies", "must not be every address: whoever asks could choose his own", text)
        found.append(network)
    return tuple(found)


def address_of(peer: str, forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """The address of who asks: the peer's, or what the peer says where it is a trusted proxy.

    `forwarded` are the values of all headers X-Forwarded-For, in their order. They are read from the right, where each proxy adds
    the address that it was reached from; the first one that is no trusted proxy's counts, for what stands left of it is said by
    whoever asks. When all are proxies the left-most one counts; reading ends at a part that is no address.
    """
    nearest = _parsed(peer)
    if nearest is None or not _is_in(nearest, trusted):
        return peer
    for text in _from_the_right(forwarded):
        found = _parsed(text)
        if found is None:
            break
        nearest = found
        if not _is_in(found, trusted):
            break
    return str(nearest)


def _from_the_right(forwarded: Sequence[str]) -> Iterable[str]:
    parts = [part for value in forwarded for part in value.split(",")]
    return reversed(parts[-_HOPS_MOST:])


def _parsed(text: str) -> _Address | None:
    """The address of "1.2.3.4", "1.2.3.4:80", "::1", "[::1]" or "[::1]:80"; None for anything else."""
    host = text.strip()
    if host.startswith("["):
        host, bracket, port = host[1:].partition("]")
        if not bracket or (port and not _is_port(port)):
            return None
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
        if not _is_port(f":{port}"):
            return None
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address):
        # A socket for both versions names IPv4 peers so; a zone is a matter of the machine that wrote it.
        return found.ipv4_mapped or ipaddress.IPv6Address(int(found))
    return found


def _is_port(text: str) -> bool:
    return text.startswith(":") and len(text) <= 6 and text[1:].isascii() and text[1:].isdigit()


def _is_in(address: _Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)
