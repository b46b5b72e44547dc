"""The certificates with which a process reaches a server."""

import ssl

from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = ["TlsFiles"]


class TlsFiles(Struct, frozen=True, kw_only=True):
    """`ca_file` is the authority of the servers, `cert_file` and `key_file` are this process's own certificate, all in PEM."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def context(self, server: str) -> ssl.SSLContext | None:
        """A client's context that checks the server's name; None without files. Raises InvalidInput, which names the setting."""
        if not (self.ca_file or self.cert_file or self.key_file):
            return None
        if bool(self.cert_file) != bool(self.key_file):
            field = f"{server}_cert_file" if self.cert_file else f"{server}_key_file"
            other = f"{server}_key_file" if self.cert_file else f"{server}_cert_file"
            raise InvalidInput(field, f"must be given together with {other}", self.cert_file or self.key_file)
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except OSError as error:  # ssl.SSLError is one
            raise InvalidInput(f"{server}_ca_file", f"must be certificates in PEM: {error}", self.ca_file) from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert_file:
            try:
                context.load_cert_chain(self.cert_file, self.key_file)
            except OSError as error:
                rule = f"must be a certificate with its key: {error}"
                raise InvalidInput(f"{server}_cert_file", rule, self.cert_file) from error
        return context
