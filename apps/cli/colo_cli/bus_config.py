"""The users of NATS and Redis as their servers read them: a file to include in nats.conf, and an ACL file of Redis.

Neither holds a secret: NATS knows the public keys of its users, Redis the digests of their passwords. A user may have two keys and
two passwords for as long as a rotation takes.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from colo_cli.bus_rights import SYSTEM_ROLES, rights_of
from colo_common.adapters.store_redis import key_of_kind

__all__ = ["STORES", "BusUser", "nats_users", "redis_users"]

# What a role has in Redis: the beginnings of its keys.
_KEYS: Final = {
    "jobs": ("job", "replica-page"),
    "scheduler": ("ledger", "reservation"),
    "overcommit": (),
    "evictor": (),
    "gateway": ("restrictions", "policy", "refused-logins"),
}
_SERVICES: Final = {"gateway": ("gateway", "restrictions", "policy")}
#: The keys that every service may write: whether the server takes writes, whether its replicas have them, and which data it has.
_OF_ALL: Final = ("probe", "replicated", "identity")
#: The roles with a user in Redis.
STORES: Final = (*_KEYS, "admin")
_COMMANDS: Final = (
    "-@all +@read +@write +@connection +@transaction +evalsha +eval +script|load +script|exists +wait +role +time "
    "-@dangerous +info"
)
# The gateway writes down whom Redis refused. The right is to empty that log as well: Redis has no smaller one.
_MORE_COMMANDS: Final = {"gateway": "+acl|log"}
# Nobody can log in as a user that is off. Its rights are those with which Redis reads its append-only file at a start: without them
# it leaves out every transaction and every script that wrote two keys (redis/redis#14541), which is nearly all that it has of colo.
_DEFAULT_OFF: Final = "user default off sanitize-payload ~* &* +@all"
_ANSWER_WITHIN: Final = "1m"


class BusUser(Struct, frozen=True, kw_only=True):
    """A user: `keys` are public keys, the newest last; `passwords` are SHA-256 digests for Redis, the newest last."""

    name: str
    role: str
    node: str = ""
    keys: tuple[str, ...] = ()
    passwords: tuple[str, ...] = ()


def nats_users(users: Sequence[BusUser]) -> str:
    """The file for `include` in nats.conf. A connection without one of these users is refused."""
    system = [user for user in users if user.role in SYSTEM_ROLES]
    lines = [
        "# Written by `colo admin credentials`; include it in nats.conf and reload (SIGHUP).",
        "authorization {",
        "  users: [",
        *_users([user for user in users if user.role not in SYSTEM_ROLES]),
        "  ]",
        "}",
    ]
    if system:
        lines += ["accounts {", "  $SYS { users: [", *_users(system), "  ] }", "}"]
    return "\n".join([*lines, ""])


def _users(users: Sequence[BusUser]) -> Iterator[str]:
    for user in sorted(users, key=lambda each: each.name):
        rights = rights_of(user.role, user.node)
        for key in user.keys:
            yield from (
                f"    # {user.name}",
                "    {",
                f"      nkey: {key}",
                "      permissions: {",
                f"        publish: {{ {_allowed(rights.publish)} }}",
                f"        subscribe: {{ {_allowed(rights.subscribe)} }}",
            )
            if rights.answers:
                yield f'        allow_responses: {{ max: 1, expires: "{_ANSWER_WITHIN}" }}'
            yield from ("      }", "    }")


def redis_users(users: Sequence[BusUser], default: BusUser | None = None) -> str:
    """The ACL file of Redis (`aclfile`, then ACL LOAD). The default user lets nobody in, or has the passwords and rights of
    `default`.
    """
    lines = [_DEFAULT_OFF]
    if default is not None:
        passwords = " ".join(f"#{digest}" for digest in default.passwords)
        lines = [f"user default on sanitize-payload {passwords} {_allowed_keys(default.role)}"]
    for user in sorted(users, key=lambda each: each.name):
        if user.passwords:
            passwords = " ".join(f"#{digest}" for digest in user.passwords)
            lines.append(f"user {user.name} on sanitize-payload {passwords} {_allowed_keys(user.role)}")
    return "\n".join([*lines, ""])


def _allowed(subjects: Sequence[str]) -> str:
    """Subjects as the server's configuration has them; none is written as a refusal of everything."""
    if not subjects:
        return 'deny: [">"]'
    return f"allow: [{', '.join(json.dumps(subject) for subject in subjects)}]"


def _allowed_keys(role: str) -> str:
    if role == "admin":
        return "~* &* +@all"
    services = _SERVICES.get(role, (role,))
    names = [
        *_KEYS[role],
        *services,
        *(f"{part}-{name}" for name in services for part in ("outbox", "running", "lease")),
    ]
    kinds = [key_of_kind(name) for name in names]
    patterns = [
        *(f"~{kind}{end}" for kind in kinds for end in ("", ":*", "-*")),
        *(f"~{key_of_kind(each)}" for each in _OF_ALL),
    ]
    commands = " ".join(filter(None, (_COMMANDS, _MORE_COMMANDS.get(role, ""))))
    return f"resetchannels {' '.join(patterns)} {commands}"
