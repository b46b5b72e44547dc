"""One thing that was looked at on a server, for people: whether it is as it must be, and what it means that it is not."""

from msgspec import Struct

__all__ = ["ServerCheck"]


class ServerCheck(Struct, frozen=True, kw_only=True):
    """`ok` is None where nobody could look; `means` is "" when all is well."""

    name: str
    ok: bool | None
    detail: str
    means: str = ""
