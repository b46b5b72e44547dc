"""NATS and Redis that let in nobody but the users of `colo admin credentials`, and the credentials of these."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from colo_cli.main import main
from colo_cli.servers import NatsServer, RedisServer

__all__ = ["Secured", "secured"]


class Secured(Struct, frozen=True):
    """Both servers, and the folder of credentials."""

    nats: NatsServer
    redis: RedisServer
    folder: Path

    def environment(self, role: str, node: str = "") -> dict[str, str]:
        """How a program reaches the servers as this role."""
        from colo_cli.bus_rights import user_of

        user = user_of(role, node)
        found = {
            "COLO_NATS_URL": self.nats.url,
            "COLO_REDIS_URL": self.redis.url,
            "COLO_NATS_NKEY_FILE": str(self.folder / f"{user}.nkey"),
        }
        if role == "gateway":
            found["COLO_GATEWAY_NATS_AUDIT_NKEY_FILE"] = str(self.folder / "auditor.nkey")
        password = self.folder / f"{user}.redis-password"
        if password.exists():
            found |= {"COLO_REDIS_USER": user, "COLO_REDIS_PASSWORD_FILE": str(password)}
        return found


@contextmanager
def secured(directory: Path, nodes: Sequence[str] = (), *, streams: str = "") -> Iterator[Secured]:
    """Running servers, with users for all roles and for these nodes. `streams`: more of the configuration of NATS."""
    folder = directory / "credentials"
    assert main(["admin", "credentials", "init", "-d", str(folder)]) == 0
    if nodes:
        assert main(["admin", "credentials", "add-node", *nodes, "-d", str(folder)]) == 0
    home = directory / "nats"
    home.mkdir()
    include = os.path.relpath(folder / "nats-users.conf", home)
    nats = NatsServer(directory=home, config=f"include {include}\n{streams}")
    redis = RedisServer(arguments=("--aclfile", str(folder / "redis-users.acl")))
    nats.start_blocking()
    try:
        redis.start_blocking()
        try:
            yield Secured(nats, redis, folder)
        finally:
            redis.stop_blocking()
    finally:
        nats.stop_blocking()
