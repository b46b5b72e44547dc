"""The one row of the store that a service within the gateway's process keeps, as it is read."""

from typing import TypeVar

import msgspec
from msgspec import Struct

from colo_common.ports import Refused, Store

__all__ = ["read_row"]

_Row = TypeVar("_Row", bound=Struct)


async def read_row(store: Store, kind: str, row_id: str, row: type[_Row]) -> tuple[int, _Row]:
    """The version of the stored row and the row; 0 and an empty row where there is none.

    Raises the store's errors, Refused for a row that cannot be read.
    """
    found = await store.get(kind, row_id)
    if found is None:
        return 0, row()
    try:
        return found.version, msgspec.json.decode(found.value, type=row)
    except msgspec.MsgspecError as error:
        raise Refused(f"{kind}/{row_id}: {error}") from error
