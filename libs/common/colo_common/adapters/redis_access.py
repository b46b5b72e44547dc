"""How a process reaches Redis and who it is there: one server, or the primary that Sentinel names; TLS, user and password."""

import re
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from msgspec import Struct
from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError

from colo_common.adapters.nats_access import secret_of, without_password
from colo_common.adapters.tls_files import TlsFiles
from colo_common.model.invalid import InvalidInput

__all__ = ["RedisAccess", "SentinelAddress"]

_PLAIN: Final = ("redis://", "rediss://", "unix://")
_SENTINEL: Final = ("redis+sentinel://", "rediss+sentinel://")
_SENTINEL_PORT: Final = 26379
_PARTS: Final = re.compile(r"[a-z+]+://(?P<hosts>[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?")


class SentinelAddress(Struct, frozen=True, kw_only=True):
    """The sentinels, the name of the primary that they watch, the database, and whether connections use TLS."""

    sentinels: tuple[tuple[str, int], ...]
    primary: str
    db: int
    is_tls: bool
    user: str
    password: str


class RedisAccess(TlsFiles, frozen=True, kw_only=True):
    """An address and files.

    `url` is redis://, rediss://, unix:// or redis+sentinel://host:26379,host2:26379/NAME?db=0 (rediss+sentinel:// for TLS), where
    NAME is what the sentinels call the primary. `user` and the first line of `password_file` go before what stands in the address;
    `sentinel_password_file` is for the sentinels themselves. With `ca_file`, `cert_file` and `key_file` (PEM) the scheme must be
    one of TLS.
    """

    url: str
    user: str = ""
    password_file: str = ""
    sentinel_password_file: str = ""

    @property
    def shown(self) -> str:
        """The address without its password, for people."""
        return without_password(self.url)

    def sentinel(self) -> SentinelAddress | None:
        """The parts of a sentinel address, None for another one. Raises InvalidInput."""
        if not self.url.startswith(_SENTINEL):
            return None
        rule = "must look like redis+sentinel://host:26379,host2:26379/NAME?db=0"
        # Not by urlsplit: newer Pythons refuse a list of hosts in which one is an IPv6 address.
        split = _PARTS.fullmatch(self.url)
        if split is None:
            raise InvalidInput("redis_url", rule, self.shown)
        credentials, _, hosts = split["hosts"].rpartition("@")
        query = dict(parse_qsl(split["query"] or ""))
        name, db = (split["path"] or "").strip("/"), query.pop("db", "0")
        sentinels = []
        for part in hosts.split(","):
            host, _, port = part.strip().rpartition(":") if _has_port(part) else (part.strip(), "", str(_SENTINEL_PORT))
            if not host or not port.isdigit() or not 0 < int(port) < 65_536:
                raise InvalidInput("redis_url", rule, self.shown)
            sentinels.append((host.strip("[]"), int(port)))
        if not name or "/" in name or query or not db.isdigit():
            raise InvalidInput("redis_url", rule, self.shown)
        user, _, password = credentials.partition(":")
        return SentinelAddress(
            sentinels=tuple(sentinels),
            primary=unquote(name),
            db=int(db),
            is_tls=self.url.startswith("rediss"),
            user=unquote(user),
            password=unquote(password),
        )

    def options(self) -> dict[str, Any]:
        """The library's arguments for identity and TLS. Raises InvalidInput for files that cannot be read or do not go together."""
        if not self.url.startswith((*_PLAIN, *_SENTINEL)):
            raise InvalidInput("redis_url", f"must begin with one of {', '.join((*_PLAIN, *_SENTINEL))}", self.shown)
        found: dict[str, Any] = {}
        if self.user and not self.password_file:
            raise InvalidInput("redis_user", "must be given together with redis_password_file", self.user)
        if self.password_file:
            secret_of("redis_password_file", self.password_file)
            in_address = self.url.partition("://")[2].rpartition("@")[0].partition(":")[0]
            found["credential_provider"] = _FromFile(self.user or unquote(in_address), self.password_file)
        # Each connection reads them when it is made; here they are only checked.
        if self.context("redis") is not None:
            if not self.url.startswith("rediss"):
                raise InvalidInput("redis_url", "must begin with rediss when certificates are given", self.shown)
            files = {"ssl_ca_certs": self.ca_file, "ssl_certfile": self.cert_file, "ssl_keyfile": self.key_file}
            found |= {option: path for option, path in files.items() if path}
        return found


class _FromFile(CredentialProvider):
    """The user, and the password that the file has when a connection is made, so that a rotated one is taken without a restart."""

    def __init__(self, user: str, path: str) -> None:
        self._user = user
        self._path = path

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        try:
            password = secret_of("redis_password_file", self._path)
        except InvalidInput as error:
            # The file may be back at the next connection.
            raise AuthenticationError(str(error)) from error
        return (self._user, password) if self._user else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        # The library's own does the same, and complains of it at every connection.
        return self.get_credentials()


def _has_port(part: str) -> bool:
    return ":" in part.rpartition("]")[2]
