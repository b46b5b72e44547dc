"""The key with which a process proves to NATS who it is, read again at every connection, so that a rotated one is taken.

A file of credentials (.creds) holds a JWT and its seed. The library would read it, too: without a JWT in it for ever, so that the
process does nothing else any more, and without a seed it never connects again.

A file of a seed has it on its first line and may have the name of the NATS user on its second one, from which the inbox follows: a
server that lets each user listen to its own inbox alone keeps answers from everybody else.
"""

import base64
from collections.abc import Callable
from pathlib import Path

import nats.aio.client
import nats.errors
from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = ["Creds", "Nkey", "inbox_of", "jwt_reader", "read_creds", "read_nkey", "signer"]


class Nkey(Struct, frozen=True):
    """A seed (it is secret) and the user whose it is, "" where the file names none."""

    seed: str
    user: str = ""


class Creds(Struct, frozen=True):
    """The two parts of a file of credentials; the seed is secret."""

    jwt: str
    seed: str


def inbox_of(user: str) -> str:
    """The prefix of the inboxes of a NATS user."""
    return f"_INBOX.{user}"


def read_nkey(path: str) -> Nkey:
    """Read the file. Raises InvalidInput when it cannot be read or holds no seed of a user."""
    try:
        lines = Path(path).read_text("ascii").split("\n")
    except (OSError, ValueError) as error:
        raise InvalidInput("nats_nkey_file", f"must be a file that this process may read: {error}", path) from error
    seed, user = lines[0].strip(), lines[1].strip() if len(lines) > 1 else ""
    if not seed.startswith("SU"):
        raise InvalidInput("nats_nkey_file", "must have the seed of a user (SU...) on its first line", path)
    return Nkey(seed, user)


def read_creds(path: str) -> Creds:
    """Read the file. Raises InvalidInput when it cannot be read or lacks a part."""
    try:
        lines = [line.strip() for line in Path(path).read_text("ascii").splitlines()]
    except (OSError, ValueError) as error:
        raise InvalidInput("nats_creds_file", f"must be a file that this process may read: {error}", path) from error
    parts = {}
    for name in ("USER JWT", "USER NKEY SEED"):
        begin = next((number for number, line in enumerate(lines) if "BEGIN" in line and name in line), len(lines))
        parts[name] = next((line for line in lines[begin + 1 : begin + 2] if not line.startswith("-")), "")
    if not all(parts.values()) or not parts["USER NKEY SEED"].startswith("SU"):
        rule = "must have a user's JWT and seed, as in a .creds file of NATS"
        raise InvalidInput("nats_creds_file", rule, path)
    return Creds(parts["USER JWT"], parts["USER NKEY SEED"])


def jwt_reader(path: str) -> Callable[[], bytes]:
    """What gives the JWT that the file of credentials has now."""

    def read() -> bytes:
        try:
            return read_creds(path).jwt.encode()
        except InvalidInput as error:
            raise nats.errors.Error(str(error)) from error

    return read


def signer(client: nats.aio.client.Client, seed: Callable[[], str]) -> Callable[[str], bytes]:
    """What signs the server's challenge with the seed that its file has now."""
    import nkeys

    def sign(nonce: str) -> bytes:
        try:
            pair = nkeys.from_seed(bytearray(seed().encode()))
        except (InvalidInput, ValueError, nkeys.NkeysError) as error:
            # Any other error would end the library's attempts to connect; the file may be back at the next one.
            raise nats.errors.Error(str(error)) from error
        # The library keeps the public key of its first connection; a rotated key has another one.
        client._public_nkey = pair.public_key.decode()
        signature = base64.b64encode(pair.sign(nonce.encode()))
        pair.wipe()
        return signature

    return sign
