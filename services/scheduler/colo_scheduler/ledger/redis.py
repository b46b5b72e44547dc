"""The node ledger in Redis: one hash a node, a field for each hold, and one script that checks everything before it writes.

Keys: `<prefix>:node:<node>` holds "rev", "by" (the owner of that revision), "h:<attempt>" (its hold) and "c:<attempt>" (it was
started); `<prefix>:held` has the node on which an attempt is held, `<prefix>:newest` the newest held attempt of a replica,
`<prefix>:changes` how often a row was written; `<prefix>:over:<replica>` is "<attempt> <node>" of the newest finished attempt, for
a day. The leases of the shards have the same prefix.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import redis.asyncio

from colo_common.adapters.leases_redis import RedisLeases
from colo_common.adapters.redis_client import REDIS_ERRORS, redis_client, redis_error, redis_identity
from colo_common.adapters.redis_scripts import Argument, Script, ScriptCalls
from colo_common.model.invalid import InvalidInput
from colo_common.model.partition import Fence
from colo_common.model.placement import Attempt, attempt_key
from colo_common.model.reasons import Reason
from colo_scheduler.ledger.port import (
    CALL_MAX,
    PUT_BACK_MAX,
    Hold,
    HoldRefused,
    NodeAnswer,
    NodeCommit,
    NodeRow,
    Released,
    check_call,
    decode_hold,
    encode_hold,
    endings_of,
)
from colo_scheduler.ledger.scripts import COMMIT, CONFIRM, FORGET, PUT_BACK, RELEASE

__all__ = ["RedisLedger"]

_PREFIX: Final = "colo:v1:ledger"
_OVER_KEPT_S: Final = 86_400
_UNREADABLE: Final = b"?"

_COMMIT: Final = Script.of(COMMIT)
_CONFIRM: Final = Script.of(CONFIRM)
_FORGET: Final = Script.of(FORGET)
_PUT_BACK: Final = Script.of(PUT_BACK)
_RELEASE: Final = Script.of(RELEASE)


class RedisLedger:
    """Ledger of all schedulers that share a Redis. `client` may be shared with others; `close` closes it."""

    def __init__(self, client: redis.asyncio.Redis, *, prefix: str = _PREFIX, min_replicas: int = 0) -> None:
        """`min_replicas`: as of ScriptCalls."""
        self._client = client
        self._prefix = prefix
        self._calls = ScriptCalls(client, min_replicas=min_replicas)
        self.leases = RedisLeases(client, prefix=prefix, min_replicas=min_replicas)

    @classmethod
    def of(cls, url: str, *, name: str) -> "RedisLedger":
        """A ledger with a client of its own. Raises InvalidInput for a bad address."""
        return cls(redis_client(url, name=name))

    async def commit(
        self, reserves: Sequence[NodeCommit], fences: Sequence[Fence] = (), owner: str = "", compared: str = ""
    ) -> tuple[NodeAnswer, ...]:
        """See Ledger.commit."""
        check_call(reserves)
        if not reserves:
            return ()
        named = " ".join(f"{shard} {fence}" for shard, fence in fences)
        arguments: list[Argument] = [self._prefix, named, owner, compared]
        for reserve in reserves:
            arguments += [reserve.node, reserve.expect, int(reserve.is_chained), len(reserve.holds)]
            for hold in reserve.holds:
                placement = hold.placement
                arguments += (placement.replica, placement.attempt, encode_hold(hold))
        raw: list[Any] = await self._run(_COMMIT, arguments, "reserve in the ledger")
        return tuple(_answer(reserve, *one) for reserve, one in zip(reserves, raw, strict=True))

    async def release(self, attempts: Sequence[Attempt], nodes: Sequence[str] = ()) -> tuple[Released, ...]:
        """See Ledger.release."""
        _check_count(attempts)
        if not attempts:
            return ()
        arguments: list[Argument] = [self._prefix, _OVER_KEPT_S]
        for (replica, number), node in endings_of(attempts, nodes):
            arguments += (replica, number, node)
        found, counts = await self._run(_RELEASE, arguments, "release in the ledger")
        deleted: dict[str, list[Attempt]] = {}
        changes: dict[str, int] = {}
        for attempt, where, count in zip(attempts, found, counts, strict=True):
            if where:
                name = where.decode()
                deleted.setdefault(name, []).append(attempt)
                changes[name] = _count(count)
        return tuple(
            Released(node=name, changes=changes[name], attempts=tuple(deleted[name])) for name in sorted(deleted)
        )

    async def confirm(self, attempts: Sequence[Attempt]) -> None:
        """See Ledger.confirm."""
        _check_count(attempts)
        if attempts:
            names = [attempt_key(replica, attempt) for replica, attempt in attempts]
            await self._run(_CONFIRM, [self._prefix, *names], "confirm in the ledger")

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
                pipe.get(f"{self._prefix}:floor")
                # A row that is no hash is a matter of its node alone.
                *hashes, counts, floor = await pipe.execute(raise_on_error=False)
                if isinstance(counts, Exception):
                    if not str(counts).startswith("WRONGTYPE"):
                        raise counts
                    counts = [_UNREADABLE] * len(nodes)
        except REDIS_ERRORS as error:
            raise redis_error(error, "read the ledger") from error
        # Without a readable floor a node that has no row has no revision either.
        begin = b"0" if floor is None else floor if isinstance(floor, bytes) else _UNREADABLE
        return tuple(
            _row(node, fields, _count(count), begin) for node, fields, count in zip(nodes, hashes, counts, strict=True)
        )

    async def changes(self) -> Mapping[str, int]:
        """See Ledger.changes."""
        try:
            raw: dict[Any, Any] = await self._client.hgetall(f"{self._prefix}:changes")
        except REDIS_ERRORS as error:
            raise redis_error(error, "read the ledger's changes") from error
        counts = {name.decode(): _count(count) for name, count in raw.items()}
        return dict(sorted(counts.items()))

    async def floor(self) -> int:
        """See Ledger.floor. -1, at which nothing is reserved, when it is no number."""
        try:
            raw: Any = await self._client.get(f"{self._prefix}:floor")
        except REDIS_ERRORS as error:
            if str(error).startswith("WRONGTYPE"):
                return -1
            raise redis_error(error, "read the ledger's floor") from error
        return _count(raw)

    async def forget(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """See Ledger.forget."""
        _check_count(nodes)
        if not nodes:
            return ()
        raw: list[int] = await self._run(_FORGET, [self._prefix, *nodes], "forget rows of the ledger")
        return tuple(node for node, is_deleted in zip(nodes, raw, strict=True) if is_deleted)

    async def put_back(self, rows: Sequence[NodeRow], floor: int) -> None:
        """See Ledger.put_back."""
        if len(rows) > PUT_BACK_MAX:
            raise InvalidInput("ledger", f"at most {PUT_BACK_MAX} rows may be put back in one call", len(rows))
        arguments: list[Argument] = [self._prefix, max(floor, 0)]
        for row in rows:
            arguments += [row.node, max(row.revision, 0), max(row.changes, 0), len(row.holds)]
            confirmed = set(row.confirmed)
            for hold in row.holds:
                arguments += [*hold.attempt, encode_hold(hold), int(hold.attempt in confirmed)]
        await self._run(_PUT_BACK, arguments, "put rows back into the ledger")

    async def identity(self) -> str:
        """See Ledger.identity."""
        return await redis_identity(self._client)

    async def ready(self) -> str:
        """Empty when Redis answers, else one sentence with the reason."""
        try:
            await self._client.ping()
        except REDIS_ERRORS as error:
            return str(redis_error(error, "Redis"))
        return ""

    async def close(self) -> None:
        """Close the connections."""
        await self.leases.close()
        await self._calls.close()
        await self._client.aclose()
        await self._client.connection_pool.disconnect()

    async def _run(self, script: Script, arguments: Sequence[Argument], doing: str) -> Any:
        try:
            return await self._calls.run(script, arguments)
        except REDIS_ERRORS as error:
            raise redis_error(error, doing) from error


def _check_count(items: Sequence[object]) -> None:
    if len(items) > CALL_MAX:
        raise InvalidInput("ledger", f"at most {CALL_MAX} entries in one call", len(items))


def _answer(reserve: NodeCommit, revision: int, changes: int, verdicts: list[bytes]) -> NodeAnswer:
    attempts = [hold.attempt for hold in reserve.holds]
    if all(verdict == b"ok" for verdict in verdicts[::2]):
        return NodeAnswer(node=reserve.node, revision=revision, changes=changes, accepted=tuple(attempts))
    accepted: list[Attempt] = []
    refused: list[HoldRefused] = []
    for (replica, attempt), verdict, where in zip(attempts, verdicts[::2], verdicts[1::2], strict=True):
        if verdict == b"ok":
            accepted.append((replica, attempt))
        else:
            reason = Reason(verdict.decode())
            is_older = reason is Reason.OLDER_ATTEMPT
            held_on, least = ("", int(where)) if is_older else (where.decode(), 0)
            refused.append(HoldRefused(replica=replica, attempt=attempt, reason=reason, held_on=held_on, least=least))
    return NodeAnswer(
        node=reserve.node, revision=revision, changes=changes, accepted=tuple(accepted), refused=tuple(refused)
    )


def _count(raw: bytes | str | None) -> int:
    """A change counter; one that is no number is different from every one that was read."""
    return int(raw) if raw and raw.isdigit() else -1 if raw else 0


def _row(node: str, fields: Mapping[bytes, bytes] | Exception, changes: int, floor: bytes) -> NodeRow:
    if isinstance(fields, Exception):
        return NodeRow(node=node, revision=-1, changes=changes, unreadable=(str(fields),))
    holds: list[Hold] = []
    confirmed: list[Attempt] = []
    unreadable: list[str] = []
    for name in sorted(name for name in fields if name.startswith(b"h:")):
        try:
            hold = decode_hold(fields[name])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            unreadable.append(f"{name.decode('utf-8', 'replace')}: {error}")
            continue
        if name[2:] != attempt_key(*hold.attempt).encode() or hold.placement.node != node:
            held = f"{attempt_key(*hold.attempt)} on {hold.placement.node}"
            unreadable.append(f"{name.decode('utf-8', 'replace')}: holds {held}")
            continue
        holds.append(hold)
        if b"c:" + name[2:] in fields:
            confirmed.append(hold.attempt)
    return NodeRow(
        node=node,
        revision=_revision(fields.get(b"rev", floor), unreadable),
        changes=changes,
        holds=tuple(holds),
        confirmed=tuple(confirmed),
        unreadable=tuple(unreadable),
    )


def _revision(value: bytes, unreadable: list[str]) -> int:
    """The revision of a row; -1, which no hold expects, when it is not a number."""
    if value.isdigit():
        return int(value)
    unreadable.append(f"rev: {value[:40]!r} is not a revision")
    return -1
