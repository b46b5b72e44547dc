"""The folder of credentials: users, their secrets, and the files that NATS and Redis read."""

import hashlib
import importlib.util
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from colo_cli.bus_config import STORES, BusUser, nats_users, redis_users
from colo_cli.bus_rights import user_of
from colo_cli.failure import Failure

__all__ = [
    "NATS_FILE",
    "REDIS_FILE",
    "USERS_FILE",
    "chosen_of",
    "made",
    "new_user",
    "read_users",
    "with_new_secrets",
    "write_users",
]

USERS_FILE: Final = "users.json"
NATS_FILE: Final = "nats-users.conf"
REDIS_FILE: Final = "redis-users.acl"
_SEED_BYTES: Final = 32


def new_user(role: str, node: str = "") -> BusUser:
    """A user without keys. Raises InvalidInput for what cannot be a node's name."""
    return BusUser(name=user_of(role, node), role=role, node=node)


def made(folder: Path) -> Path:
    """The folder, which only its owner can read when it was not there. Raises Failure."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"directory: must be writable ({error})", 2) from error
    return folder


def read_users(folder: Path) -> list[BusUser]:
    """The users of the folder. Raises Failure."""
    try:
        return list(msgspec.json.decode((folder / USERS_FILE).read_bytes(), type=list[BusUser]))
    except (OSError, msgspec.MsgspecError) as error:
        rule = "must be one that `colo admin credentials init` made"
        raise Failure(f"directory: {rule} ({error}; got {folder})", 2) from error


def chosen_of(users: Sequence[BusUser], given: Sequence[str]) -> set[str]:
    """The names of the users that are given by their names, or by the names of their nodes. Raises Failure for an unknown one."""
    found: set[str] = set()
    for name in given:
        matching = {user.name for user in users if name == user.name or (name and name == user.node)}
        if not matching:
            raise Failure(f"user: there is none of this name, and nothing was changed (got {name})")
        found |= matching
    return found


def with_new_secrets(folder: Path, user: BusUser) -> BusUser:
    """The user with one more key, and one more password where it has a store; its files hold the new ones."""
    if importlib.util.find_spec("nkeys") is None:
        raise Failure("credentials need the signing library: pip install 'colo[nkeys]'", 2)
    import nkeys

    seed = nkeys.encode_seed(secrets.token_bytes(_SEED_BYTES), nkeys.PREFIX_BYTE_USER)
    pair = nkeys.from_seed(bytearray(seed))
    _put(folder / f"{user.name}.nkey", f"{seed.decode()}\n{user.name}\n", 0o400)
    changed = structs.replace(user, keys=(*user.keys, pair.public_key.decode()))
    if user.role in STORES:
        password = secrets.token_urlsafe(_SEED_BYTES)
        _put(folder / f"{user.name}.redis-password", f"{password}\n", 0o400)
        digest = hashlib.sha256(password.encode()).hexdigest()
        changed = structs.replace(changed, passwords=(*user.passwords, digest))
    return changed


def write_users(folder: Path, users: Sequence[BusUser]) -> None:
    """Write the users and what the servers read, each file whole. Raises Failure when the folder cannot be written."""
    ordered = sorted(users, key=lambda user: user.name)
    _put(folder / NATS_FILE, nats_users(ordered), 0o644)
    _put(folder / REDIS_FILE, redis_users(ordered), 0o644)
    _put(folder / USERS_FILE, msgspec.json.format(msgspec.json.encode(ordered), indent=2).decode() + "\n", 0o644)


def _put(path: Path, text: str, mode: int) -> None:
    """Replace a file; nobody sees a half of it, and its mode is never wider than `mode`."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError as error:
        raise Failure(f"directory: must be writable ({error})", 2) from error
