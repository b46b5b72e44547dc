"""The key with which a process proves to NATS who it is, read again at every connection, so that a rotated one is taken.

The file holds the seed on its first line and may hold the name of the NATS user on its second one, from which the inbox follows: a
server that lets each user listen to its own inbox alone keeps answers from everybody else.
"""

import base64
from collections.abc import Callable
from pathlib import Path

import nats.aio.client
import nats.errors
from msgspec import Struct

from colo_common.model.invalid import InvalidInput

__all__ = ["Nkey", "inbox_of", "read_nkey", "signer"]


class Nkey(Struct, frozen=True):
    """A seed (it is secret) and the user whose it is, "" where the file names none."""

    seed: str
    user: str = ""


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


def signer(client: nats.aio.client.Client, path: str) -> Callable[[str], bytes]:
    """What signs the server's challenge with the key that the file has now."""
    import nkeys

    def sign(nonce: str) -> bytes:
        try:
            pair = nkeys.from_seed(bytearray(read_nkey(path).seed.encode()))
        except (InvalidInput, nkeys.NkeysError) as error:
            # Any other error would end the library's attempts to connect; the file may be back at the next one.
            raise nats.errors.Error(str(error)) from error
        # The library keeps the public key of its first connection; a rotated key has another one.
        client._public_nkey = pair.public_key.decode()
        signature = base64.b64encode(pair.sign(nonce.encode()))
        pair.wipe()
        return signature

    return sign
