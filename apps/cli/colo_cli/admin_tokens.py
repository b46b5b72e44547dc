"""The commands `colo admin tokens add`, `list` and `revoke`: they change a file that gateways read again by themselves."""

import os
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import Parameter
from msgspec import structs

from colo_cli.failure import Failure
from colo_cli.file_lock import alone_in
from colo_cli.output import Output, print_data, print_table
from colo_common.model.duration import parse_duration_ms, span_text
from colo_common.model.invalid import InvalidInput
from colo_gateway.door.principal import ALL, Role
from colo_gateway.door.token_rows import read_tokens, write_tokens
from colo_gateway.door.tokens import TokenRow, check_row, digest_of, token_text

__all__ = ["add", "list_", "revoke"]

File = Annotated[str, Parameter(name=["--file", "-f"])]

_FILE: Final = "/etc/colo/tokens.json"
_FOR_MOST_MS: Final = 10 * 365 * 86_400_000
_SECRET_BYTES: Final = 32


def add(
    name: str,
    /,
    *,
    role: Literal["viewer", "submitter", "operator"],
    tenant: tuple[str, ...] = (),
    queue: tuple[str, ...] = (),
    expires: str = "",
    file: File = "",
) -> int:
    """Make a token and print it, once: the file keeps only its digest. Running gateways take it within two seconds.

    Example: `colo admin tokens add alice --role submitter --tenant research --expires 90d`.

    Args:
        name: Whose token it is; audits name it.
        role: viewer reads, submitter also submits and cancels jobs, operator does everything.
        tenant: Only this tenant; may be given several times. Without it all tenants.
        queue: Only this queue; may be given several times. Without it all queues.
        expires: After so long it is no longer taken (12h, 90d). Without it never.
        file: The file of tokens of the gateways (COLO_TOKENS_FILE, else /etc/colo/tokens.json).
    """
    path = _path(file)
    now_ms = _now_ms()
    try:
        lasts_ms = parse_duration_ms(expires, "expires", max_ms=_FOR_MOST_MS) if expires else 0
        token = token_text(secrets.token_hex(4), secrets.token_urlsafe(_SECRET_BYTES))
        row = TokenRow(
            id=token.split("_")[1],
            name=name,
            role=Role(role),
            sha256=digest_of(token),
            tenants=tenant or (ALL,),
            queues=queue or (ALL,),
            created_at_ms=now_ms,
            expires_at_ms=now_ms + lasts_ms if lasts_ms else 0,
        )
        check_row(row)
    except InvalidInput as error:
        raise Failure(str(error), 2) from error
    with alone_in(path.parent):
        rows = _rows(path) if path.exists() else ()
        is_taken = any(each.id == row.id for each in rows)
        if not is_taken:
            _write(path, (*rows, row))
    if is_taken:
        return add(name, role=role, tenant=tenant, queue=queue, expires=expires, file=file)
    print(f"token {row.id} for {name} is in {path}; this is shown once:", file=sys.stderr)
    print(token)
    return 0


def list_(*, output: Output = "table", file: File = "") -> int:
    """List the tokens, oldest first; their secrets are nowhere.

    Args:
        output: table, json or yaml.
        file: The file of tokens of the gateways (COLO_TOKENS_FILE, else /etc/colo/tokens.json).
    """
    rows = _rows(_path(file))
    if output != "table":
        print_data([structs.asdict(structs.replace(row, sha256="")) for row in rows], output)
        return 0
    now_ms = _now_ms()
    table = [
        [row.id, row.name, row.role.value, ",".join(row.tenants), ",".join(row.queues), _state(row, now_ms)]
        for row in rows
    ]
    print_table(["ID", "NAME", "ROLE", "TENANTS", "QUEUES", "STATE"], table, "no tokens")
    return 0


def revoke(*token: str, file: File = "") -> int:
    """Revoke tokens by their ids or names. Running gateways refuse them within two seconds, and say that they were revoked.

    Args:
        token: Ids, or names, which mean every token of the name.
        file: The file of tokens of the gateways (COLO_TOKENS_FILE, else /etc/colo/tokens.json).
    """
    if not token:
        raise Failure("give the id or name of at least one token; colo admin tokens list shows them", 2)
    path = _path(file)
    now_ms = _now_ms()
    changed: dict[str, TokenRow] = {}
    with alone_in(path.parent):
        rows = _rows(path)
        for given in token:
            found = [row for row in rows if given in (row.id, row.name)]
            if not found:
                raise Failure(f"token: there is none of this id or name, and nothing was revoked (got {given})")
            for row in found:
                changed[row.id] = row if row.revoked_at_ms else structs.replace(row, revoked_at_ms=now_ms)
        _write(path, [changed.get(row.id, row) for row in rows])
    for row in changed.values():
        print(f"{row.id} of {row.name} is revoked")
    return 0


def _path(file: str) -> Path:
    return Path(file or os.environ.get("COLO_TOKENS_FILE") or _FILE)


def _rows(path: Path) -> tuple[TokenRow, ...]:
    try:
        return read_tokens(path)
    except InvalidInput as error:
        raise Failure(str(error), 2) from error


def _write(path: Path, rows: Sequence[TokenRow]) -> None:
    try:
        write_tokens(path, rows)
    except OSError as error:
        raise Failure(f"file: {path} cannot be written ({error.strerror or error})", 2) from error


def _state(row: TokenRow, now_ms: int) -> str:
    if row.revoked_at_ms:
        return "revoked"
    if not row.expires_at_ms:
        return "good"
    left_ms = row.expires_at_ms - now_ms
    return f"good for {span_text(left_ms)}" if left_ms > 0 else "expired"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
