"""Bearer tokens: made, kept as digests, and recognised.

A token is `colo_<id>_<secret>`: 8 hexadecimal digits that logs and audits may name, and 256 random bits that are shown once. Since
a secret is random and long, its SHA-256 cannot be searched for, and a slow hash would only slow the gateway.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from colo_common.model.invalid import InvalidInput
from colo_common.model.job_rules import check_name
from colo_gateway.door.principal import ALL, Principal, Role

__all__ = ["BadToken", "TokenBook", "TokenRow", "check_row", "digest_of", "token_text"]

_TOKEN: Final = re.compile(r"colo_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._-]{0,62}")
_SCOPE_MOST: Final = 100


class BadToken(Exception):
    """Why a token is not taken; `kind` is the word under which it is counted."""

    def __init__(self, kind: str, why: str, name: str = "", token: str = "") -> None:
        super().__init__(why)
        self.kind = kind
        self.name = name
        self.token = token


class TokenRow(Struct, frozen=True, kw_only=True):
    """What is kept of a token: never its secret. Times are Unix ms; `expires_at_ms` and `revoked_at_ms` 0: never."""

    id: str
    name: str
    role: Role
    sha256: str
    tenants: tuple[str, ...] = (ALL,)
    queues: tuple[str, ...] = (ALL,)
    created_at_ms: int = 0
    expires_at_ms: int = 0
    revoked_at_ms: int = 0


def token_text(id_: str, secret: str) -> str:
    """The token that its owner keeps."""
    return f"colo_{id_}_{secret}"


def digest_of(token: str) -> str:
    """The digest that is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def check_row(row: TokenRow) -> None:
    """Raise InvalidInput for a name, tenant or queue that cannot be one, or an operator who is not for all."""
    if not _NAME.fullmatch(row.name):
        raise InvalidInput("name", "must be at most 63 of a-z A-Z 0-9 @ . _ -, a letter or digit first", row.name)
    for field, names in (("tenant", row.tenants), ("queue", row.queues)):
        if not 1 <= len(names) <= _SCOPE_MOST:
            raise InvalidInput(field, f"must be from 1 to {_SCOPE_MOST} names, or {ALL}", len(names))
        for name in names:
            if name != ALL:
                check_name(name, field)
        if row.role is Role.OPERATOR and ALL not in names:
            raise InvalidInput(field, "must be left out for an operator, who may stop the work of everybody", names)


class TokenBook:
    """The tokens that are known, by their ids."""

    def __init__(self, rows: Sequence[TokenRow] = ()) -> None:
        self._rows = {row.id: row for row in rows}

    def principal(self, token: str, now_ms: int) -> Principal:
        """Whose token it is. Raises BadToken with the reason; a wrong secret and an unknown id give the same one."""
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise BadToken("malformed", "is no token of colo: they look like colo_ID_SECRET")
        row = self._rows.get(match[1])
        # The digest is compared also for an unknown id, so that the time tells nothing about it.
        if not hmac.compare_digest(digest_of(token), row.sha256 if row is not None else "") or row is None:
            raise BadToken("unknown", "is not known here", token=match[1])
        if row.revoked_at_ms:
            raise BadToken("revoked", "was revoked", row.name, row.id)
        if row.expires_at_ms and now_ms >= row.expires_at_ms:
            raise BadToken("expired", "has expired", row.name, row.id)
        return Principal(name=row.name, role=row.role, tenants=row.tenants, queues=row.queues, token=row.id)
