"""Whether an address is this machine's own."""

import ipaddress

__all__ = ["host_of", "is_loopback", "is_loopback_url"]


def is_loopback(host: str) -> bool:
    """Whether the host is "localhost" or an address that no other machine reaches (127.0.0.0/8, ::1)."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(address: str) -> str:
    """The host of "host", "host:port" or "[::1]:port"."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address if address.count(":") > 1 else address.partition(":")[0]


def is_loopback_url(url: str) -> bool:
    """Whether the URL names this machine: a loopback address, or a Unix socket."""
    scheme, _, rest = url.partition("://")
    address = rest.partition("/")[0].partition("?")[0].rpartition("@")[2]
    return scheme == "unix" or is_loopback(host_of(address))
