"""Where a node's kubelet is asked for its pods, and the rules of these settings."""

from __future__ import annotations

from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = ["KubeletAccess", "check_access"]


class KubeletAccess(Struct, frozen=True, kw_only=True):
    """Where the kubelet is (https://127.0.0.1:10250 or http://127.0.0.1:10255; "" none), and what it asks for."""

    url: str = ""
    token_file: str = ""
    ca_file: str = ""
    period_ms: int = 10_000


def check_access(access: KubeletAccess, field: str = "kubelet") -> None:
    """Raise InvalidInput for an address of another form, a token without TLS, or a period below a second."""
    if access.url and not access.url.startswith(("https://", "http://")):
        raise InvalidInput(f"{field}_url", "must begin with https:// or http://", access.url)
    if access.token_file and not access.url.startswith("https://"):
        raise InvalidInput(
            f"{field}_token_file", "needs kubelet_url with https://: a token is not sent in the clear", access.url
        )
    if access.period_ms < 1_000:
        raise InvalidInput(f"{field}_period_ms", "must be at least 1000", access.period_ms)
