"""A process that is a user by a file of credentials: one that is none is told in a sentence, and one that comes back is taken."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import nkeys
import pytest
from msgspec import Struct

from colo_cli.servers import NatsServer
from colo_common.adapters.bus_nats import NatsBus
from colo_common.adapters.nats_access import NatsAccess
from colo_common.model.invalid import InvalidInput
from tests.support.waiting import eventually

pytestmark = pytest.mark.server

JWT_PART: Final = "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n"
SEED_PART: Final = "-----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n"
NONE_AT_ALL: Final = {
    "words": "garbage\n",
    "jwt-only": JWT_PART.format("ey"),
    "seed-only": SEED_PART.format("SUAMLK2ZNL35WSMW37E7UD4VZ7ELPKW7DHC3BWBSD2GCZ7IUQQXZIORRBU"),
    "cut": JWT_PART.format("ey") + "-----BEGIN USER NKEY SEED-----\n",
    "no-text": "\x00\x01",
}


class Key:
    """A key pair of an operator, an account or a user."""

    def __init__(self, prefix: int) -> None:
        self.seed = bytes(nkeys.encode_seed(os.urandom(32), prefix)).decode()
        self._pair = nkeys.from_seed(bytearray(self.seed.encode()))
        self.public = self._pair.public_key.decode()

    def jwt(self, subject: str, nats: dict[str, Any]) -> str:
        """What this key says of the subject."""
        claims = {
            "jti": "1",
            "iat": 1,
            "iss": self.public,
            "sub": subject,
            "name": "test",
            "nats": {**nats, "version": 2},
        }
        text = ".".join(_encoded(part) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, claims))
        return f"{text}.{base64.urlsafe_b64encode(self._pair.sign(text.encode())).rstrip(b'=').decode()}"


def _encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


class Known(Struct):
    """A server, and the credentials of a user whom it knows."""

    url: str
    creds: str


@pytest.fixture
async def known(tmp_path: Path) -> AsyncIterator[Known]:
    operator, user = Key(nkeys.PREFIX_BYTE_OPERATOR), Key(nkeys.PREFIX_BYTE_USER)
    account, system = Key(nkeys.PREFIX_BYTE_ACCOUNT), Key(nkeys.PREFIX_BYTE_ACCOUNT)
    most = dict.fromkeys(("subs", "data", "payload"), -1)
    whole = {**most, "imports": -1, "exports": -1, "conn": -1, "leaf": -1, "wildcards": True}
    accounts = {
        each.public: operator.jwt(each.public, {"type": "account", "limits": whole}) for each in (account, system)
    }
    of_user = account.jwt(user.public, {"type": "user", **most})
    config = (
        f"operator: {operator.jwt(operator.public, {'type': 'operator'})}\n"
        f"system_account: {system.public}\nresolver: MEMORY\nresolver_preload: {json.dumps(accounts)}\n"
    )
    async with NatsServer(directory=tmp_path / "nats", config=config) as server:
        yield Known(server.url, JWT_PART.format(of_user) + "\n" + SEED_PART.format(user.seed))


@pytest.mark.parametrize("text", NONE_AT_ALL.values(), ids=NONE_AT_ALL)
def test_a_file_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "user.creds"
    path.write_text(text, "latin-1")
    with pytest.raises(InvalidInput, match="nats_creds_file: must have a user's JWT and seed"):
        NatsAccess(url="nats://a", creds_file=str(path)).options()


# The library leaves a connection to the collector that it does not come to the end of.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["jwt-only", "seed-only"])
async def test_a_process_whose_file_is_broken_for_a_while_does_its_other_work_and_comes_back(
    tmp_path: Path, known: Known, name: str
) -> None:
    path = tmp_path / "user.creds"
    path.write_text(known.creds)
    bus = NatsBus(NatsAccess(url=known.url, creds_file=str(path)), name="creds", streams={})
    bus.start()

    async def is_connected() -> bool:
        return bus.present_connection > 0

    async def names_the_file() -> bool:
        return "nats_creds_file" in await bus.ready()

    try:
        await eventually(is_connected, "a connection")
        path.write_text(NONE_AT_ALL[name], "latin-1")
        await bus._connection.client.force_reconnect()
        await eventually(names_the_file, "the file is named")
        path.write_text(known.creds)
        async with asyncio.timeout(30):
            assert await eventually(is_connected, "a connection again")
    finally:
        await bus.close()
