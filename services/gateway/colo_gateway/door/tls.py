"""TLS of the gateway: its certificate, and the authority of its clients' certificates."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog
from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = ["TlsPolicy", "keep_fresh", "server_context"]

_LOOK_EVERY_S: Final = 10.0


class TlsPolicy(Struct, frozen=True, kw_only=True):
    """`cert` and `key` are PEM files ("": plain HTTP). With `client_ca` only clients are let in whose certificate it signed."""

    cert: str = ""
    key: str = ""
    client_ca: str = ""

    def validate(self) -> None:
        """Raise InvalidInput for half a pair."""
        if bool(self.cert) != bool(self.key):
            field, other = ("tls_key", "tls_cert") if self.cert else ("tls_cert", "tls_key")
            raise InvalidInput(field, f"must be given together with {other}", "")
        if self.client_ca and not self.cert:
            raise InvalidInput("tls_client_ca", "needs tls_cert and tls_key", self.client_ca)


def server_context(policy: TlsPolicy) -> ssl.SSLContext | None:
    """The context of the server; None for plain HTTP. Raises InvalidInput for files that cannot be read or do not match."""
    if not policy.cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(policy.cert, policy.key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            "tls_cert", f"must be a PEM certificate with its key in tls_key: {error}", policy.cert
        ) from error
    if policy.client_ca:
        try:
            context.load_verify_locations(policy.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise InvalidInput("tls_client_ca", f"must be a PEM certificate: {error}", policy.client_ca) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def keep_fresh(context: ssl.SSLContext, policy: TlsPolicy, every_s: float = _LOOK_EVERY_S) -> None:
    """Take a renewed certificate for new connections, without a restart. A certificate that does not match its key yet is tried
    again.
    """
    log = structlog.get_logger(source="tls")
    loaded = _stamps(policy)
    while True:
        await asyncio.sleep(every_s)
        stamps = _stamps(policy)
        if stamps == loaded:
            continue
        with suppress(OSError, ssl.SSLError):
            context.load_cert_chain(policy.cert, policy.key)
            loaded = stamps
            log.info("certificate-renewed", cert=policy.cert)


def _stamps(policy: TlsPolicy) -> list[int]:
    found: list[int] = []
    for name in (policy.cert, policy.key):
        with suppress(OSError):
            found.append(Path(name).stat().st_mtime_ns)
    return found
