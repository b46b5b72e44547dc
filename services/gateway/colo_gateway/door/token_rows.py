"""The file of tokens: read and written whole. It holds digests and no secrets."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from colo_common.model.invalid import InvalidInput
from colo_gateway.door.tokens import TokenRow, check_row

__all__ = ["read_tokens", "write_tokens"]

_ROWS_MOST: Final = 10_000


def read_tokens(path: Path) -> tuple[TokenRow, ...]:
    """The rows of the file, oldest first. Raises InvalidInput when it cannot be read or a row breaks a rule."""
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=tuple[TokenRow, ...])
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidInput(
            "tokens_file", f"must be a file that `colo admin tokens` wrote: {error}", str(path)
        ) from error
    if len(rows) > _ROWS_MOST:
        raise InvalidInput("tokens_file", f"must have at most {_ROWS_MOST} tokens", len(rows))
    for row in rows:
        check_row(row)
    return rows


def write_tokens(path: Path, rows: Sequence[TokenRow]) -> None:
    """Replace the file; a reader sees the old one or the new one, and its mode and owner stay. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        present = path.stat() if path.exists() else None
        os.chmod(name, 0o600 if present is None else present.st_mode & 0o777)
        if present is not None and os.geteuid() == 0:
            os.chown(name, present.st_uid, present.st_gid)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
