"""Connections to Redis under TLS that read their certificates whenever they are made."""

from collections.abc import Mapping
from typing import Any

import redis.exceptions
from redis.asyncio.connection import SSLConnection
from redis.asyncio.sentinel import SentinelManagedSSLConnection

from colo_common.adapters.tls_files import TlsFiles
from colo_common.model.invalid import InvalidInput

__all__ = ["ManagedTlsConnection", "TlsConnection"]


class TlsConnection(SSLConnection):
    """A connection that takes renewed files when it is made again, and trusts the authority that is named and no other.

    The library keeps what it read first for as long as the connection is kept in its pool, and adds to it the authorities of the
    machine.
    """

    def _connection_arguments(self) -> Mapping[str, Any]:
        files = TlsFiles(ca_file=self.ca_certs or "", cert_file=self.certfile or "", key_file=self.keyfile or "")
        try:
            context = files.context("redis")
        except InvalidInput as error:
            # The other half of a renewed pair may be there at the next attempt.
            raise redis.exceptions.ConnectionError(str(error)) from error
        if context is not None:
            context.check_hostname = self.check_hostname
            context.verify_mode = self.cert_reqs
            self.ssl_context.context = context
        return super()._connection_arguments()


class ManagedTlsConnection(TlsConnection, SentinelManagedSSLConnection):
    """The same to the server that sentinels name."""
