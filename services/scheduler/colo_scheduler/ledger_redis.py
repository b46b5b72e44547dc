"""The node ledger in Redis: one hash a node, a field for each hold, and one script that checks everything before it writes.

Keys: `<prefix>:node:<node>` holds "rev", "h:<attempt>" (what it holds) and "c:<attempt>" (it was started); `<prefix>:held` tells
which node an attempt is held on, `<prefix>:newest` the newest held attempt of a replica, `<prefix>:changes` how often a row
was written; `<prefix>:over:<replica>` is "<attempt> <node>" of the newest finished attempt, for a day.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import redis.asyncio

from colo_common.adapters.redis_client import REDIS_ERRORS, redis_client, redis_error
from colo_common.model.invalid import InvalidInput
from colo_common.model.placement import attempt_key
from colo_common.model.reasons import Reason
from colo_scheduler.leases_redis import FENCED, LEASE
from colo_scheduler.ledger import (
    CALL_MAX,
    Attempt,
    NodeAnswer,
    NodeReserve,
    NodeRow,
    Released,
    Reservation,
    ReservationRefused,
    check_call,
    decode_reservation,
    encode_reservation,
)
from colo_scheduler.shards import Fence

__all__ = ["RedisLedger"]

_PREFIX: Final = "colo:v1:ledger"
_OVER_KEPT_S: Final = 86_400
_UNREADABLE: Final = b"?"

# Each script reads and judges all of a node (or of an attempt) before it writes the first of it, so that what is written is
# written whole. What is of the wrong type or no number is told as ledger-disagrees of the replicas that it is about.

# ARGV: prefix, fences, then for each node: name, expected revision, number of holds, and for each hold: replica, attempt, value.
# Answer, for each node: {revision, changes, {verdict, node it is held on, verdict, ...}}.
_COMMIT: Final = (
    FENCED
    + """
local prefix = ARGV[1]
local held, newest, changed = prefix .. ':held', prefix .. ':newest', prefix .. ':changes'

local function is_hash(key)
  local kind = redis.call('TYPE', key).ok
  return kind == 'hash' or kind == 'none'
end
local indexed = is_hash(held) and is_hash(newest)

-- The newest attempt that is held, or that is over; nil when it cannot be read.
local function newest_held(replica)
  return tonumber(string.match(redis.call('HGET', newest, replica) or '0', '^%d+$'))
end
local function newest_over(replica)
  local over = redis.pcall('GET', prefix .. ':over:' .. replica) or '0 '
  return type(over) == 'string' and tonumber(string.match(over, '^(%d+) ')) or nil
end

local function verdict_of(node, replica, attempt, taken)
  if not indexed then return 'ledger-disagrees', '' end
  local name = replica .. '#' .. attempt
  local where = taken.names[name] or redis.call('HGET', held, name) or ''
  if where ~= '' then return 'already-held', where end
  local held_attempt, over_attempt = newest_held(replica), newest_over(replica)
  if not held_attempt or not over_attempt then return 'ledger-disagrees', '' end
  held_attempt = math.max(held_attempt, taken.newest[replica] or 0)
  if held_attempt > tonumber(attempt) or over_attempt >= tonumber(attempt) then return 'older-attempt', '' end
  taken.names[name], taken.newest[replica] = node, tonumber(attempt)
  return 'ok', ''
end

local out = {}
local at = 3
while at <= #ARGV do
  local node, expect, count = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local key = prefix .. ':node:' .. node
  -- A key that somebody made no hash is a matter of its node alone.
  local broken = not is_hash(key)
  local revision = broken and '-1' or redis.call('HGET', key, 'rev') or '0'
  -- Nor can one be counted on that is about to overflow.
  broken = broken or #revision > 15
  local first = at + 3
  -- What was accepted before has moved the revision, so a call on the newest one is not a repeated one.
  local same = 0
  if not broken and revision ~= expect then
    for i = 0, count - 1 do
      local name = ARGV[first + i * 3] .. '#' .. ARGV[first + i * 3 + 1]
      if redis.call('HGET', key, 'h:' .. name) == ARGV[first + i * 3 + 2] then same = same + 1 end
    end
  end
  local verdicts, accepted = {}, {}
  local taken = {names = {}, newest = {}}
  for i = 0, count - 1 do
    local replica, attempt, value = ARGV[first + i * 3], ARGV[first + i * 3 + 1], ARGV[first + i * 3 + 2]
    local verdict, where = 'ok', ''
    if same < count then
      if fenced then
        verdict = 'shard-lost'
      elseif broken then
        verdict = 'ledger-disagrees'
      elseif revision ~= expect then
        verdict = 'ledger-conflict'
      else
        verdict, where = verdict_of(node, replica, attempt, taken)
        if verdict == 'ok' then accepted[#accepted + 1] = {replica, attempt, value} end
      end
    end
    verdicts[#verdicts + 1] = verdict
    verdicts[#verdicts + 1] = where
  end
  if #accepted > 0 then
    revision = tostring(redis.call('HINCRBY', key, 'rev', 1))
    for _, one in ipairs(accepted) do
      local name = one[1] .. '#' .. one[2]
      redis.call('HSET', key, 'h:' .. name, one[3])
      redis.call('HSET', held, name, node)
      redis.call('HSET', newest, one[1], one[2])
    end
    redis.pcall('HINCRBY', changed, node, 1)
  end
  local changes = redis.pcall('HGET', changed, node) or '0'
  if type(changes) == 'table' then changes = '-1' end
  out[#out + 1] = {tonumber(revision) or -1, tonumber(changes) or -1, verdicts}
  at = first + count * 3
end
return out
"""
)

# ARGV: prefix, seconds to remember, then replica and attempt of each. Answer: node ("" where nothing was held) of each.
# Releasing only frees, so what cannot be read of a replica's newest attempts is replaced.
_RELEASE: Final = """
local prefix, kept = ARGV[1], ARGV[2]
local held, newest, changed = prefix .. ':held', prefix .. ':newest', prefix .. ':changes'
local kind = redis.call('TYPE', held).ok
if kind ~= 'hash' and kind ~= 'none' then return redis.error_reply('WRONGTYPE ' .. held .. ' is a ' .. kind .. ', no hash') end
local out = {}
for at = 3, #ARGV, 2 do
  local replica, attempt = ARGV[at], ARGV[at + 1]
  local name = replica .. '#' .. attempt
  local over_key = prefix .. ':over:' .. replica
  local over = redis.pcall('GET', over_key) or '0 '
  if type(over) == 'table' then over = '' end
  local over_attempt, over_node = string.match(over, '^(%d+) (.*)$')
  local newest_held = redis.pcall('HGET', newest, replica) or '0'
  local node = redis.call('HGET', held, name)
  if type(newest_held) == 'string' and (not string.match(newest_held, '^%d+$') or node and newest_held == attempt) then
    redis.call('HDEL', newest, replica)
  end
  if node then
    redis.call('HDEL', held, name)
    redis.pcall('HDEL', prefix .. ':node:' .. node, 'h:' .. name, 'c:' .. name)
    redis.pcall('HINCRBY', changed, node, 1)
  end
  if tonumber(attempt) > (tonumber(over_attempt) or 0) then
    redis.call('SET', over_key, attempt .. ' ' .. (node or ''), 'EX', kept)
  elseif not node and attempt == over_attempt then
    node = over_node
  end
  out[#out + 1] = node or ''
end
return out
"""

# ARGV: prefix, then the names of attempts.
_CONFIRM: Final = """
local prefix = ARGV[1]
for at = 2, #ARGV do
  local node = redis.call('HGET', prefix .. ':held', ARGV[at])
  if node then redis.pcall('HSET', prefix .. ':node:' .. node, 'c:' .. ARGV[at], '1') end
end
return redis.status_reply('OK')
"""


class RedisLedger:
    """Ledger of all schedulers that share a Redis. `client` may be shared with others; `close` closes it."""

    def __init__(self, client: redis.asyncio.Redis, *, prefix: str = _PREFIX) -> None:
        self._client = client
        self._prefix = prefix
        self._commit = client.register_script(_COMMIT)
        self._release = client.register_script(_RELEASE)
        self._confirm = client.register_script(_CONFIRM)
        self._lease = client.register_script(LEASE)

    @classmethod
    def of(cls, url: str, *, name: str) -> "RedisLedger":
        """A ledger with a client of its own. Raises InvalidInput for a bad address."""
        return cls(redis_client(url, name=name))

    async def commit(self, reserves: Sequence[NodeReserve], fences: Sequence[Fence] = ()) -> tuple[NodeAnswer, ...]:
        """See Ledger.commit."""
        check_call(reserves)
        if not reserves:
            return ()
        named = " ".join(f"{shard} {fence}" for shard, fence in fences)
        arguments: list[str | bytes | int] = [self._prefix, named]
        for reserve in reserves:
            arguments += [reserve.node, reserve.expect, len(reserve.reservations)]
            for reservation in reserve.reservations:
                arguments += [*reservation.attempt, encode_reservation(reservation)]
        raw: list[Any] = await self._run(self._commit, arguments, "reserve in the ledger")
        return tuple(_answer(reserve, *one) for reserve, one in zip(reserves, raw, strict=True))

    async def release(self, attempts: Sequence[Attempt]) -> tuple[Released, ...]:
        """See Ledger.release."""
        _check_count(attempts)
        if not attempts:
            return ()
        arguments: list[str | bytes | int] = [self._prefix, _OVER_KEPT_S]
        for attempt in attempts:
            arguments += attempt
        raw: list[bytes] = await self._run(self._release, arguments, "release in the ledger")
        gone: dict[str, list[Attempt]] = {}
        for attempt, node in zip(attempts, raw, strict=True):
            if node:
                gone.setdefault(node.decode(), []).append(attempt)
        if not gone:
            return ()
        names = sorted(gone)
        try:
            counts = await self._client.hmget(f"{self._prefix}:changes", names)
        except REDIS_ERRORS as error:
            # Everything was let go: counts that cannot be read do not take that back.
            if not str(error).startswith("WRONGTYPE"):
                raise redis_error(error, "read the ledger's changes") from error
            counts = [_UNREADABLE] * len(names)
        return tuple(
            Released(node=name, changes=_count(count), attempts=tuple(gone[name]))
            for name, count in zip(names, counts, strict=True)
        )

    async def lease(self, owner: str, ttl_ms: int, shards: int) -> tuple[Fence, ...]:
        """See Ledger.lease. The owner's name has no spaces."""
        raw: list[int] = await self._run(self._lease, [self._prefix, owner, ttl_ms, shards], "lease shards")
        return tuple(sorted(zip(raw[::2], raw[1::2], strict=True)))

    async def confirm(self, attempts: Sequence[Attempt]) -> None:
        """See Ledger.confirm."""
        _check_count(attempts)
        if attempts:
            names = [attempt_key(replica, attempt) for replica, attempt in attempts]
            await self._run(self._confirm, [self._prefix, *names], "confirm in the ledger")

    async def rows(self, nodes: Sequence[str]) -> tuple[NodeRow, ...]:
        """See Ledger.rows. Each row is of one moment; two rows may be of different ones."""
        _check_count(nodes)
        if not nodes:
            return ()
        try:
            async with self._client.pipeline(transaction=True) as pipe:
                for node in nodes:
                    pipe.hgetall(f"{self._prefix}:node:{node}")
                pipe.hmget(f"{self._prefix}:changes", list(nodes))
                # A row that is no hash is a matter of its node alone.
                *hashes, counts = await pipe.execute(raise_on_error=False)
                if isinstance(counts, Exception):
                    if not str(counts).startswith("WRONGTYPE"):
                        raise counts
                    counts = [_UNREADABLE] * len(nodes)
        except REDIS_ERRORS as error:
            raise redis_error(error, "read the ledger") from error
        return tuple(
            _row(node, fields, _count(count)) for node, fields, count in zip(nodes, hashes, counts, strict=True)
        )

    async def changes(self) -> Mapping[str, int]:
        """See Ledger.changes."""
        try:
            raw: dict[Any, Any] = await self._client.hgetall(f"{self._prefix}:changes")
        except REDIS_ERRORS as error:
            raise redis_error(error, "read the ledger's changes") from error
        counts = {name.decode(): _count(count) for name, count in raw.items()}
        return dict(sorted(counts.items()))

    async def ready(self) -> str:
        """Empty when Redis answers, else one sentence that says why not."""
        try:
            await self._client.ping()
        except REDIS_ERRORS as error:
            return str(redis_error(error, "Redis"))
        return ""

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
        await self._client.connection_pool.disconnect()

    async def _run(self, script: Any, arguments: Sequence[str | bytes | int], doing: str) -> Any:
        try:
            return await script(args=arguments)
        except REDIS_ERRORS as error:
            raise redis_error(error, doing) from error


def _check_count(items: Sequence[object]) -> None:
    if len(items) > CALL_MAX:
        raise InvalidInput("ledger", f"at most {CALL_MAX} entries in one call", len(items))


def _answer(reserve: NodeReserve, revision: int, changes: int, verdicts: list[bytes]) -> NodeAnswer:
    accepted: list[Attempt] = []
    refused: list[ReservationRefused] = []
    for reservation, verdict, where in zip(reserve.reservations, verdicts[::2], verdicts[1::2], strict=True):
        replica, attempt = reservation.attempt
        if verdict == b"ok":
            accepted.append((replica, attempt))
        else:
            reason = Reason(verdict.decode())
            refused.append(ReservationRefused(replica=replica, attempt=attempt, reason=reason, held_on=where.decode()))
    return NodeAnswer(
        node=reserve.node, revision=revision, changes=changes, accepted=tuple(accepted), refused=tuple(refused)
    )


def _count(raw: bytes | str | None) -> int:
    """A change counter; one that is no number is different from every one that was read."""
    return int(raw) if raw and raw.isdigit() else -1 if raw else 0


def _row(node: str, fields: Mapping[bytes, bytes] | Exception, changes: int) -> NodeRow:
    if isinstance(fields, Exception):
        return NodeRow(node=node, revision=-1, changes=changes, unreadable=(str(fields),))
    reservations: list[Reservation] = []
    confirmed: list[Attempt] = []
    unreadable: list[str] = []
    for name in sorted(name for name in fields if name.startswith(b"h:")):
        try:
            reservation = decode_reservation(fields[name])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            unreadable.append(f"{name.decode('utf-8', 'replace')}: {error}")
            continue
        if name[2:] != attempt_key(*reservation.attempt).encode() or reservation.placement.node != node:
            held = f"{attempt_key(*reservation.attempt)} on {reservation.placement.node}"
            unreadable.append(f"{name.decode('utf-8', 'replace')}: holds {held}")
            continue
        reservations.append(reservation)
        if b"c:" + name[2:] in fields:
            confirmed.append(reservation.attempt)
    return NodeRow(
        node=node,
        revision=_revision(fields.get(b"rev", b"0"), unreadable),
        changes=changes,
        reservations=tuple(reservations),
        confirmed=tuple(confirmed),
        unreadable=tuple(unreadable),
    )


def _revision(value: bytes, unreadable: list[str]) -> int:
    """The revision of a row; -1, which no reservation expects, when it is not a number."""
    if value.isdigit():
        return int(value)
    unreadable.append(f"rev: {value[:40]!r} is not a revision")
    return -1
