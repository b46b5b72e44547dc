"""The certificate of the gateway and the authority of its clients: renewed without a stop, and kept while new ones are broken."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs

from colo_common.model.invalid import InvalidInput
from colo_gateway.door.tls import ServerCertificates, TlsPolicy

HOST = "gateway.example"


class Files:
    """The three files of a policy, as somebody renews them."""

    def __init__(self, folder: Path) -> None:
        names = ("cert", "key", "client_ca")
        self.cert, self.key, self.client_ca = (folder / f"{name}.pem" for name in names)

    def policy(self, *, is_mutual: bool = False) -> TlsPolicy:
        return TlsPolicy(cert=str(self.cert), key=str(self.key), client_ca=str(self.client_ca) if is_mutual else "")

    def put_cert(self, leaf: trustme.LeafCert) -> None:
        leaf.cert_chain_pems[0].write_to_path(str(self.cert))

    def put_key(self, leaf: trustme.LeafCert) -> None:
        leaf.private_key_pem.write_to_path(str(self.key))

    def put_pair(self, leaf: trustme.LeafCert) -> None:
        self.put_cert(leaf)
        self.put_key(leaf)


class Client:
    """A client that trusts an authority, with a certificate or without; it keeps its sessions, as programs do."""

    def __init__(self, authority: trustme.CA, own: trustme.LeafCert | None = None, *, is_old: bool = False) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority.configure_trust(self._context)
        if own is not None:
            own.configure_cert(self._context)
        if is_old:
            self._context.maximum_version = ssl.TLSVersion.TLSv1_2
        self._session: ssl.SSLSession | None = None

    def problem(self, certificates: ServerCertificates) -> str:
        """Why no connection comes about, as one of both sides says it; empty when one does."""
        here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = certificates.context.wrap_bio(here, there, server_side=True)
        client = self._context.wrap_bio(there, here, server_hostname=HOST, session=self._session)
        pending = [client.do_handshake, server.do_handshake]
        try:
            for _ in range(5):
                for step in tuple(pending):
                    with suppress(ssl.SSLWantReadError):
                        step()
                        pending.remove(step)
            # With them comes the session that the client may resume.
            server.write(b"hello")
            client.read(5)
        except ssl.SSLError as error:
            return str(error)
        self._session = client.session
        return ""


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_renewed_certificate_is_taken_and_half_of_one_changes_nothing(files: Files) -> None:
    old, new = trustme.CA(), trustme.CA()
    files.put_pair(old.issue_cert(HOST))
    certificates = ServerCertificates(files.policy())
    before, after = Client(old), Client(new)
    assert before.problem(certificates) == ""
    renewed = new.issue_cert(HOST)
    with capture_logs() as logged:
        files.put_cert(renewed)
        certificates.refresh(10.0)
        assert before.problem(certificates) == "", "the key is still that of the last one"
        certificates.refresh(20.0)
        files.put_key(renewed)
        certificates.refresh(30.0)
    assert [each["event"] for each in logged] == ["certificate-unreadable", "certificate-renewed"]
    assert "tls_cert: must be a PEM certificate with its key in tls_key" in logged[0]["error"]
    assert after.problem(certificates) == ""
    assert "certificate verify failed" in Client(old).problem(certificates)


@pytest.mark.parametrize("is_old", [False, True], ids=["tls 1.3", "tls 1.2"])
def test_another_authority_of_clients_is_taken_and_the_one_before_lets_nobody_in(files: Files, is_old: bool) -> None:
    own, first, second = trustme.CA(), trustme.CA(), trustme.CA()
    files.put_pair(own.issue_cert(HOST))
    first.cert_pem.write_to_path(str(files.client_ca))
    certificates = ServerCertificates(files.policy(is_mutual=True))
    old = Client(own, first.issue_cert("old.example"), is_old=is_old)
    new = Client(own, second.issue_cert("new.example"), is_old=is_old)
    assert old.problem(certificates) == ""
    assert new.problem(certificates) != ""
    # Both, while one follows the other.
    files.client_ca.write_bytes(first.cert_pem.bytes() + second.cert_pem.bytes())
    certificates.refresh(10.0)
    assert (old.problem(certificates), new.problem(certificates)) == ("", "")
    second.cert_pem.write_to_path(str(files.client_ca))
    certificates.refresh(20.0)
    assert old.problem(certificates) != "", "also by a session that it has"
    assert new.problem(certificates) == ""
    assert Client(own, is_old=is_old).problem(certificates) != "", "without a certificate"


@pytest.mark.parametrize("broken", ["no authority", None])
def test_an_authority_that_cannot_be_read_changes_nothing(files: Files, broken: str | None) -> None:
    own, clients = trustme.CA(), trustme.CA()
    files.put_pair(own.issue_cert(HOST))
    clients.cert_pem.write_to_path(str(files.client_ca))
    certificates = ServerCertificates(files.policy(is_mutual=True))
    if broken is None:
        files.client_ca.unlink()
    else:
        files.client_ca.write_text(broken)
    with capture_logs() as logged:
        certificates.refresh(10.0)
        certificates.refresh(20.0)
    assert [each["event"] for each in logged] == ["certificate-unreadable"], "once for each state"
    assert logged[0]["error"].startswith("tls_client_ca: must be a PEM certificate")
    assert Client(own, clients.issue_cert("client.example")).problem(certificates) == ""
    assert Client(own).problem(certificates) != ""


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(files: Files) -> None:
    leaf = trustme.CA().issue_cert(HOST)
    files.put_pair(leaf)
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    files.key.write_bytes(key.private_bytes(*form, serialization.BestAvailableEncryption(b"secret")))
    with pytest.raises(InvalidInput, match="tls_cert: must be a PEM certificate with its key in tls_key"):
        ServerCertificates(files.policy())
