"""Refuses what a page of another site would make a browser send: no site but the gateway's own may use it."""

from colo_common.model.loopback import host_of, is_loopback

__all__ = ["is_cross_origin", "is_own_host"]


def is_cross_origin(origin: str, host: str) -> bool:
    """Whether the `Origin` header names another site than the `Host` header does; a missing one is no browser's."""
    return bool(origin) and origin.rpartition("://")[2].lower() != host.lower()


def is_own_host(host: str) -> bool:
    """Whether the `Host` header is a name of this machine; else a foreign name was made to point here (DNS rebinding)."""
    return is_loopback(host_of(host))
