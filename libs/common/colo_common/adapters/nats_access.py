"""How a process reaches NATS and who it is there: addresses, TLS, credentials, and how soon it connects again."""

import importlib.util
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from nats.aio.client import Client, Server

from colo_common.adapters.nats_nkey import inbox_of, jwt_reader, read_creds, read_nkey, signer
from colo_common.adapters.tls_files import TlsFiles
from colo_common.model.invalid import InvalidInput

__all__ = ["NatsAccess", "reconnects", "secret_of", "without_password"]

_SCHEMES: Final = ("nats", "tls", "ws", "wss")
#: The most that a first reconnect waits; the bound doubles with every attempt that failed, up to the second one.
_RECONNECT_FIRST_S: Final = 0.2
_RECONNECT_MOST_S: Final = 5.0
_DOUBLINGS_MOST: Final = 8


class NatsAccess(TlsFiles, frozen=True, kw_only=True):
    """The addresses of one cluster, separated by commas, and files. An address after the first may leave its scheme out.

    `creds_file` is a .creds file (JWT and seed), `nkey_file` holds a seed, `user` goes with the first line of `password_file`; at
    most one of the three is given.
    """

    url: str
    creds_file: str = ""
    nkey_file: str = ""
    user: str = ""
    password_file: str = ""

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses, each with its scheme. Raises InvalidInput."""
        found: list[str] = []
        for part in filter(None, (each.strip() for each in self.url.split(","))):
            scheme = found[0].partition("://")[0] if found else "nats"
            address = part if "://" in part else f"{scheme}://{part}"
            try:
                split = urlsplit(address)
                is_address = (
                    split.scheme in _SCHEMES and bool(split.hostname) and (split.port is None or split.port > 0)
                )
            except ValueError:
                is_address = False
            if not is_address:
                rule = f"must be addresses such as nats://host:4222, separated by commas ({', '.join(_SCHEMES)})"
                raise InvalidInput("nats_url", rule, without_password(part))
            found.append(address)
        if not found:
            raise InvalidInput("nats_url", "must name at least one server", self.url)
        return tuple(found)

    @property
    def files(self) -> tuple[str, ...]:
        """The files whose change means that this process has other credentials, or trusts another authority."""
        given = (self.creds_file, self.nkey_file, self.password_file, self.ca_file, self.cert_file, self.key_file)
        return tuple(each for each in given if each)

    @property
    def is_identified(self) -> bool:
        """Whether this process says who it is, by a file, a certificate, or a password in the address."""
        return bool(self.creds_file or self.nkey_file or self.user or self.cert_file) or all(
            "@" in each for each in self.servers
        )

    @property
    def shown(self) -> str:
        """The addresses without passwords, for people."""
        return ",".join(without_password(each.strip()) for each in self.url.split(","))

    def options_for(self, client: Client) -> dict[str, Any]:
        """The arguments of this client's `connect`: `options`, and what signs for it. Raises InvalidInput as `options` does."""
        found = self.options()
        if self.nkey_file:
            found["signature_cb"] = signer(client, lambda: read_nkey(self.nkey_file).seed)
        if self.creds_file:
            found["signature_cb"] = signer(client, lambda: read_creds(self.creds_file).seed)
            found["user_jwt_cb"] = jwt_reader(self.creds_file)
        return found

    def options(self) -> dict[str, Any]:
        """The arguments of the library's `connect`. Raises InvalidInput for files that cannot be read or do not go together."""
        found: dict[str, Any] = {"servers": list(self.servers)}
        tls = self.context("nats")
        if tls is not None:
            found["tls"] = tls
        given = {"nats_creds_file": self.creds_file, "nats_nkey_file": self.nkey_file, "nats_user": self.user}
        names = [name for name, value in given.items() if value]
        if len(names) > 1:
            raise InvalidInput(names[1], f"must not be given together with {names[0]}", given[names[1]])
        if self.password_file and not self.user:
            raise InvalidInput("nats_password_file", "must be given together with nats_user", self.password_file)
        if self.user:
            found["user"] = self.user
            found["password"] = secret_of("nats_password_file", self.password_file)
        # What they are for: see options_for.
        for name, path in (("nats_creds_file", self.creds_file), ("nats_nkey_file", self.nkey_file)):
            if path:
                secret_of(name, path)
                if importlib.util.find_spec("nkeys") is None:
                    raise InvalidInput(name, "needs the signing library: pip install 'colo[nkeys]'", path)
        if self.creds_file:
            read_creds(self.creds_file)
        if self.nkey_file and (user := read_nkey(self.nkey_file).user):
            found["inbox_prefix"] = inbox_of(user)
        return found


def secret_of(field: str, path: str) -> str:
    """The first line of a file; "" for no path. Raises InvalidInput, which names the field, for one that is missing or empty."""
    if not path:
        return ""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise InvalidInput(field, f"must be a file that this process may read: {error}", path) from error
    if not text.strip():
        raise InvalidInput(field, "must not be an empty file", path)
    return text.strip().splitlines()[0]


def reconnects(rng: random.Random) -> Callable[[Sequence[Server], object], tuple[Server, float]]:
    """Which server to try next, and after how many seconds: the one that failed least, after a random part of a growing bound.

    When a server goes, all its clients come to the others: at once they would be a second fault.
    """

    def choose(servers: Sequence[Server], _info: object) -> tuple[Server, float]:
        chosen = min(servers, key=lambda server: server.reconnects)
        bound_s = min(_RECONNECT_MOST_S, _RECONNECT_FIRST_S * 2.0 ** min(chosen.reconnects, _DOUBLINGS_MOST))
        return chosen, rng.uniform(0.0, bound_s)

    return choose


def without_password(url: str) -> str:
    """The address without what stands before "@"."""
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
