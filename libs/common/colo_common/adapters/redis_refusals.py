"""Logins and commands that Redis refused, from its own log (ACL LOG), each told once however many processes read it."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import redis.asyncio
import redis.exceptions

from colo_common.adapters.redis_client import REDIS_ERRORS, redis_error
from colo_common.model.loopback import host_of
from colo_common.ports import RefusedLogin

__all__ = ["RedisRefusals", "news_of"]

# As many as the server keeps unless it was told otherwise.
_ENTRIES_MOST: Final = 128
_WHO_MOST: Final = 80
# The server writes it before everything that a client chose.
_ADDRESS: Final = re.compile(r"(?:^| )addr=(\S+)")
_SEEN: Final = "colo:v1:refused-logins"


class RedisRefusals:
    """Reads the log of the server. Beside it, in Redis as well, stands what was told of it, so that readers share the news."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client

    async def news(self) -> Sequence[RefusedLogin]:
        """What was refused since anybody asked. Raises PortError: Refused without the right `+acl|log`, else Unavailable."""
        try:
            before: Any = await self._client.get(_SEEN)
            # In two words the library does not take the answer apart: it fails over a name that a client chose.
            answer: Sequence[Any] = await self._client.execute_command(  # type: ignore[no-untyped-call]
                "ACL", "LOG", _ENTRIES_MOST
            )
            found, seen = news_of([_fields_of(entry) for entry in answer], before or b"{}")
            after = json.dumps(seen, separators=(",", ":")).encode()
            if after == (before or b"{}"):
                return ()
            async with self._client.pipeline(transaction=True) as pipe:
                await pipe.watch(_SEEN)
                if await pipe.get(_SEEN) != before:
                    return ()
                pipe.multi()  # type: ignore[no-untyped-call]
                pipe.set(_SEEN, after)
                await pipe.execute()
        except redis.exceptions.WatchError:
            # Another process told the same news.
            return ()
        except REDIS_ERRORS as error:
            raise redis_error(error, "read what Redis refused") from error
        return found


def news_of(entries: Sequence[Mapping[str, Any]], before: bytes) -> tuple[list[RefusedLogin], dict[str, int]]:
    """What the log of the server has more than was seen `before`, oldest first, and what is seen now: the count of each entry."""
    try:
        known = json.loads(before)
    except ValueError:
        known = {}
    found: list[RefusedLogin] = []
    seen: dict[str, int] = {}
    for entry in reversed(entries):
        # An entry counts refusals that are alike, and has its number once in the life of a server.
        key = f"{entry.get('entry-id', '')}:{entry.get('timestamp-created', '')}"
        count = _number(entry.get("count"))
        earlier = known.get(key, 0) if isinstance(known, dict) else 0
        seen[key] = count
        if isinstance(earlier, int) and count > earlier:
            found.append(_refusal_of(entry, count - earlier))
    return found, seen


def _fields_of(entry: Any) -> dict[str, Any]:
    """An entry of the log: names and values in turn, or a map, in both versions of the protocol."""
    pairs = entry.items() if isinstance(entry, Mapping) else zip(entry[::2], entry[1::2], strict=False)
    return {_text(name): _text(value) if isinstance(value, bytes) else value for name, value in pairs}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 1


def _refusal_of(entry: Mapping[str, Any], times: int) -> RefusedLogin:
    found = _ADDRESS.search(str(entry.get("client-info", "")))
    address = found[1] if found else ""
    reason, about = str(entry.get("reason", "")), str(entry.get("object", ""))[:_WHO_MOST]
    return RefusedLogin(
        server="redis",
        who=str(entry.get("username", ""))[:_WHO_MOST],
        # Of a Unix socket Redis gives the path, which is the same for everybody.
        address="unix socket" if address.startswith("/") else host_of(address)[:_WHO_MOST],
        why="authentication failure" if reason == "auth" else f"has no right to the {reason} {about}",
        is_known=reason != "auth",
        times=times,
    )
