"""TLS of the gateway: its certificate, and the authority of its clients' certificates."""

import asyncio
import ssl
from pathlib import Path
from typing import Final

import structlog
from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_gateway.door.file_changes import FileChanges

__all__ = ["ServerCertificates", "TlsPolicy"]

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


class ServerCertificates:
    """The files of a policy that names a certificate, as `context` for a server; it takes renewed ones for new connections.

    Files that cannot be read, or do not belong together, change nothing: the last good ones hold, whole, and the log says so once
    for each state of the files. The constructor raises InvalidInput for such files.
    """

    def __init__(self, policy: TlsPolicy) -> None:
        self._policy = policy
        self._log = structlog.get_logger(source="tls")
        names = (policy.cert, policy.key, policy.client_ca)
        self._changes = [FileChanges(Path(name)) for name in names if name]
        self._newest = self.context = _context_of(policy)
        # A context into which a certificate is loaded without its key serves nobody any more, and an authority never leaves it.
        # So a connection begins with the first one and is handed to the newest.
        self.context.sni_callback = self._hand_over

    def refresh(self, now_s: float) -> None:
        """Look at the files, once a second at most; `now_s` is a clock that only goes forward."""
        changed = [each.has_changed(now_s) for each in self._changes]
        if not any(changed):
            return
        try:
            self._newest = _context_of(self._policy)
            self._log.info("certificate-renewed", cert=self._policy.cert)
        except InvalidInput as error:
            self._log.error("certificate-unreadable", error=str(error))

    async def keep_fresh(self) -> None:
        """Look at the files every ten seconds."""
        now_s = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            self.refresh(now_s())

    def _hand_over(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._newest


def _context_of(policy: TlsPolicy) -> ssl.SSLContext:
    """A context of the files as they are now. Raises InvalidInput for those that cannot be read or do not match."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A key with a passphrase would be asked for on the terminal.
        context.load_cert_chain(policy.cert, policy.key, password="none")
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
        # Whoever resumes a session is not asked for a certificate again: each connection is looked at by the authority of its day.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context
