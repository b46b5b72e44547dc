"""Whether a Redis keeps what it acknowledges: append-only file, eviction, replicas, clock."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import redis.asyncio
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool

from colo_common.adapters.redis_access import RedisAccess
from colo_common.adapters.redis_client import REDIS_ERRORS, redis_client, redis_error
from colo_common.adapters.server_check import ServerCheck
from colo_common.model.quantity import bytes_text

__all__ = ["check_redis", "is_tilted", "replicas_check", "role_check", "sentinels_check", "store_weakness"]

_NO_AOF: Final = "Redis has no append-only file: what it acknowledged is lost when it ends (appendonly yes)"
_EVICTS: Final = "Redis may evict rows when its memory is full: maxmemory-policy must be noeviction"
_CLOCK_MOST_S: Final = 1.0
# It stands for every row of colo, and is not written.
_ANY_ROW: Final = "colo:v1:probe"


def store_weakness(info: Mapping[str, Any], *, must_append: bool) -> str:
    """Why rows may be lost on the server of this INFO, in one sentence; "" when they may not."""
    if int(info.get("maxmemory", 0)) and info.get("maxmemory_policy", "noeviction") != "noeviction":
        return f"{_EVICTS} (is {info['maxmemory_policy']})"
    if must_append and not int(info.get("aof_enabled", 0)):
        return _NO_AOF
    return ""


async def check_redis(access: RedisAccess, *, min_replicas: int) -> list[ServerCheck]:
    """The findings about the server, or the primary and its sentinels. Raises InvalidInput for a bad access."""
    client = redis_client(access, name="colo-doctor")
    try:
        try:
            before_s = time.time()
            seconds, micros = await client.time()
            offset_s = seconds + micros / 1e6 - (before_s + time.time()) / 2
            info: dict[str, Any] = await client.info("everything")
        except REDIS_ERRORS as error:
            means = "no service can start: redis_url names the server"
            return [ServerCheck(name="redis", ok=False, detail=str(redis_error(error, access.shown)), means=means)]
        config = await _config(client)
        pool = client.connection_pool
        fails_over = isinstance(pool, SentinelConnectionPool)
        checks = [
            role_check(info, access.shown),
            _aof(info, config),
            *await _default_user(client, info),
            _memory(info),
            replicas_check(info, config, min_replicas, fails_over=fails_over),
            _clock(offset_s),
        ]
        if isinstance(pool, SentinelConnectionPool):
            checks.append(await _sentinels(pool.sentinel_manager, pool.service_name))
        return checks
    finally:
        await client.aclose()
        await client.connection_pool.disconnect()


def role_check(info: Mapping[str, Any], shown: str) -> ServerCheck:
    """Whether the server of this INFO, at the address as shown, takes writes: a replica does not."""
    is_primary = info["role"] == "master"
    means = "" if is_primary else "a replica takes no write: redis_url must name the primary, or the sentinels"
    return ServerCheck(
        name="redis", ok=is_primary, detail=f"{info['redis_version']}, {info['role']} at {shown}", means=means
    )


async def _config(client: redis.asyncio.Redis) -> dict[str, str]:
    """The part of the configuration that INFO does not show; nothing where this user may not read it."""
    with suppress(*REDIS_ERRORS):
        found: Mapping[Any, Any] = await client.config_get("appendfsync", "min-replicas-to-write")
        return {_text(name): _text(value) for name, value in found.items()}
    return {}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _aof(info: Mapping[str, Any], config: Mapping[str, str]) -> ServerCheck:
    if not int(info.get("aof_enabled", 0)):
        return ServerCheck(name="redis-aof", ok=False, detail="off", means=_NO_AOF)
    if info.get("aof_last_write_status", "ok") != "ok":
        return ServerCheck(
            name="redis-aof", ok=False, detail="its last write failed", means="the disk of Redis is full or broken"
        )
    if info.get("aof_last_bgrewrite_status", "ok") != "ok":
        means = "a file that met a full disk may have a hole at which Redis refuses to start: redis-cli BGREWRITEAOF"
        return ServerCheck(name="redis-aof", ok=False, detail="its last rewrite failed", means=means)
    fsync = config.get("appendfsync", "")
    if fsync == "no":
        means = "a machine that loses power loses what its kernel had not written: appendfsync everysec or always"
        return ServerCheck(name="redis-aof", ok=False, detail="appendfsync no", means=means)
    return ServerCheck(name="redis-aof", ok=True, detail=f"on, appendfsync {fsync or 'not told'}")


async def _default_user(client: redis.asyncio.Redis, info: Mapping[str, Any]) -> list[ServerCheck]:
    """Whether Redis will take what its append-only file has of transactions and scripts, which it reads as its default user.

    Nothing where there is no such file, or where this user may not ask.
    """
    if not int(info.get("aof_enabled", 0)):
        return []
    try:
        answer = _text(await client.acl_dryrun("default", "HSET", _ANY_ROW, "a", "b"))
    except REDIS_ERRORS:
        return []
    if answer == "OK":
        return [ServerCheck(name="redis-default-user", ok=True, detail="reads the append-only file")]
    means = "at its next start Redis leaves out what scripts and transactions wrote: user default off ~* &* +@all"
    return [ServerCheck(name="redis-default-user", ok=False, detail="has no right to write", means=means)]


def _memory(info: Mapping[str, Any]) -> ServerCheck:
    most, used, policy = int(info["maxmemory"]), int(info["used_memory"]), info.get("maxmemory_policy", "noeviction")
    detail = f"{bytes_text(used)} of {bytes_text(most) if most else 'no limit'}, {policy}"
    if most and policy != "noeviction":
        return ServerCheck(name="redis-memory", ok=False, detail=detail, means=_EVICTS)
    if most and used * 10 > most * 9:
        return ServerCheck(
            name="redis-memory", ok=False, detail=detail, means="at its limit Redis takes no row any more"
        )
    return ServerCheck(name="redis-memory", ok=True, detail=detail)


def replicas_check(
    info: Mapping[str, Any], config: Mapping[str, str], min_replicas: int, *, fails_over: bool
) -> ServerCheck:
    """Whether as many replicas are there as must have a write; some must where sentinels make one of them the primary."""
    count = sum(
        1
        for name, value in info.items()
        if name.startswith("slave") and isinstance(value, dict) and value.get("state") == "online"
    )
    writes = config.get("min-replicas-to-write", "not told")
    detail = f"{count} online, {min_replicas} must have a write (redis_min_replicas), min-replicas-to-write {writes}"
    if count < min_replicas:
        means = "no write counts before as many replicas are back"
        return ServerCheck(name="redis-replicas", ok=False, detail=detail, means=means)
    if fails_over and not min_replicas:
        means = "a primary that dies or is cut off takes what it acknowledged alone, leases too: redis_min_replicas 1"
        return ServerCheck(name="redis-replicas", ok=False, detail=detail, means=means)
    return ServerCheck(name="redis-replicas", ok=True, detail=detail)


def _clock(offset_s: float) -> ServerCheck:
    is_near = abs(offset_s) <= _CLOCK_MOST_S
    means = "" if is_near else "fences in an emptied Redis begin with its clock; ages are told by ours: use NTP"
    return ServerCheck(name="redis-clock", ok=is_near, detail=f"{offset_s:+.3f} s from this machine", means=means)


async def _sentinels(manager: Sentinel, primary: str) -> ServerCheck:
    answering = 0
    tilted: list[str] = []
    for sentinel in manager.sentinels:
        with suppress(*REDIS_ERRORS):
            await sentinel.sentinel_get_master_addr_by_name(primary)
            answering += 1
            if is_tilted(await sentinel.info("sentinel")):
                address = sentinel.connection_pool.connection_kwargs
                tilted.append(f"{address.get('host')}:{address.get('port')}")
    return sentinels_check(primary, len(manager.sentinels), answering, tilted)


def is_tilted(info: Mapping[str, Any]) -> bool:
    """Whether a sentinel with this INFO stood still or saw its clock step, and makes no replica a primary for half a minute."""
    return bool(int(info.get("sentinel_tilt", 0)))


def sentinels_check(primary: str, count: int, answering: int, tilted: Sequence[str]) -> ServerCheck:
    """What is found of `count` sentinels of which so many answer and these (host:port) are in TILT: most must be able to act."""
    detail = f"{answering} of {count} answer for {primary}"
    if tilted:
        detail += f", in TILT: {', '.join(tilted)}"
    is_enough = 2 * (answering - len(tilted)) > count
    if is_enough:
        return ServerCheck(name="redis-sentinels", ok=True, detail=detail)
    if 2 * answering <= count:
        means = "without most of its sentinels a primary that is gone stays gone"
    else:
        means = "who stood still, or whose clock stepped, takes part in no failover for half a minute: machines that do not pause"
    return ServerCheck(name="redis-sentinels", ok=False, detail=detail, means=means)
