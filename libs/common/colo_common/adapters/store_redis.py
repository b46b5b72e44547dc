"""The store over Redis: one hash for each kind, and one script that compares all versions before it writes any row."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import redis.asyncio
import structlog

from colo_common.adapters.lease_scripts import FENCED
from colo_common.adapters.leases_redis import lease_prefix
from colo_common.adapters.recent_answer import RecentAnswer
from colo_common.adapters.redis_check import store_weakness
from colo_common.adapters.redis_client import REDIS_ERRORS, redis_client, redis_error, redis_identity
from colo_common.adapters.redis_scripts import Argument, Script, ScriptCalls
from colo_common.adapters.store_limits import check_batch
from colo_common.events.effects import Write
from colo_common.model.partition import Fence
from colo_common.ports import Fenced, Refused, Row, StoreConflict

__all__ = ["RedisStore", "key_of_kind"]

# A row is "<version>\n<value>" in the hash of its kind, under its id. A value without a version is no row: a reader does not see
# it, and a writer puts it aside under "<key>:unreadable", where an operator finds it. `seen` holds the versions that the call
# itself has written, so that a row may be written twice in one call. A row that is older than expected was lost by this server.
# The answer is {0} or {number of the refused write, version found}.
_WRITE_TEXT: Final = """
local seen = {}
local count = tonumber(ARGV[1])
local plan = {}
local aside = {}
for i = 1, count do
  local at = 2 + (i - 1) * 5
  local key, id, expect = KEYS[tonumber(ARGV[at])], ARGV[at + 1], tonumber(ARGV[at + 2])
  local slot = key .. "\\n" .. id
  local found = seen[slot]
  if found == nil then
    local raw = redis.call("HGET", key, id)
    found = 0
    if raw then
      found = tonumber(string.match(raw, "^(%d+)\\n") or "0")
      if found == 0 then
        aside[#aside + 1] = {key .. ":unreadable", id, raw}
      end
    end
  end
  local operation = ARGV[at + 3]
  if operation == "put-back" then
    if found < expect then
      seen[slot] = expect
      plan[i] = {key, id, string.format("%d\\n", expect) .. ARGV[at + 4]}
    end
  elseif found > expect then
    return {i, found}
  elseif operation == "delete" then
    seen[slot] = 0
    plan[i] = {key, id}
  else
    seen[slot] = expect + 1
    plan[i] = {key, id, string.format("%d\\n", expect + 1) .. ARGV[at + 4]}
  end
end
for _, row in ipairs(aside) do
  redis.call("HSET", row[1], row[2], row[3])
end
for i = 1, count do
  local row = plan[i]
  if row and row[3] then
    redis.call("HSET", row[1], row[2], row[3])
  elseif row then
    redis.call("HDEL", row[1], row[2])
  end
end
return {0}
"""
_WRITE: Final = Script.of(_WRITE_TEXT)
# The last two arguments are the prefix of the leases and the fences.
_WRITE_FENCED: Final = Script.of(
    f"""
local prefix, fences = ARGV[#ARGV - 1], ARGV[#ARGV]
{FENCED}
if fenced then return {{-1, tonumber(fenced)}} end
{_WRITE_TEXT}"""
)

_SCAN_COUNT: Final = 1_000
_PROBE_KEPT_S: Final = 60
# Values without a version that are logged; further ones are only left out.
_UNREADABLE_MOST: Final = 1_000


def key_of_kind(kind: str) -> str:
    """The Redis key of a kind's hash."""
    return f"colo:v1:{kind}"


class RedisStore:
    """Versioned rows in Redis. `client` may be shared; `close` closes it.

    What `identity` says is at most a tenth of a second old: the services of one process share a store, and each asks every second.
    """

    def __init__(self, client: redis.asyncio.Redis, *, min_replicas: int = 0, must_append: bool = False) -> None:
        """`min_replicas`: as of ScriptCalls; `must_append`: a server without an append-only file is a reason not to be ready."""
        self._must_append = must_append
        #: Whether the server has an append-only file, as it was asked last; None before the first answer.
        self.appends: bool | None = None
        self._client = client
        self._scripts = ScriptCalls(client, min_replicas=min_replicas)
        self._unreadable: set[tuple[str, str]] = set()
        self._identity = RecentAnswer(partial(redis_identity, client))
        self._log = structlog.get_logger(source="redis")

    @classmethod
    def of(cls, url: str, *, name: str) -> "RedisStore":
        """A store with a client of its own. Raises InvalidInput for a bad address."""
        return cls(redis_client(url, name=name))

    async def get(self, kind: str, id_: str) -> Row | None:
        """The row, or None."""
        doing = f"read {kind}/{id_}"
        try:
            raw = await self._client.hget(key_of_kind(kind), id_)
        except REDIS_ERRORS as error:
            raise redis_error(error, doing) from error
        return None if raw is None else self._row(kind, id_, raw)

    async def load(self, kind: str) -> tuple[Row, ...]:
        """All rows of the kind in ascending id, read by HSCAN in portions of about 1,000."""
        rows: dict[str, Row] = {}
        try:
            async for id_, raw in self._client.hscan_iter(key_of_kind(kind), count=_SCAN_COUNT):
                name = id_.decode()
                row = self._row(kind, name, raw)
                if row is not None:
                    rows[name] = row
        except REDIS_ERRORS as error:
            raise redis_error(error, f"load {kind}") from error
        return tuple(rows[id_] for id_ in sorted(rows))

    async def write(self, writes: Sequence[Write]) -> None:
        """Write all or nothing, in order, in one script call. Calls made at the same moment share a pipeline."""
        await self._write(writes, _WRITE, ())

    async def write_fenced(self, writes: Sequence[Write], service: str, fences: Sequence[Fence]) -> None:
        """As `write`; the same script call compares the fences first."""
        named = " ".join(f"{partition} {fence}" for partition, fence in fences)
        await self._write(writes, _WRITE_FENCED, (lease_prefix(service), named))

    async def _write(self, writes: Sequence[Write], script: Script, more: Sequence[Argument]) -> None:
        check_batch(writes)
        if not writes:
            return
        numbers: dict[str, int] = {}
        arguments: list[Argument] = [len(writes)]
        for write in writes:
            number = numbers.setdefault(key_of_kind(write.kind), len(numbers) + 1)
            operation = "put-back" if write.puts_back else "delete" if write.value is None else "set"
            arguments += [number, write.id, write.expect, operation, write.value or b""]
        try:
            answer: list[int] = await self._scripts.run(script, [*arguments, *more], keys=tuple(numbers))
        except REDIS_ERRORS as error:
            raise redis_error(error, f"write {writes[0].kind}/{writes[0].id} and {len(writes) - 1} more") from error
        if answer[0] < 0:
            raise Fenced(f"partition {answer[1]} is held by another instance")
        if answer[0]:
            refused = writes[answer[0] - 1]
            raise StoreConflict(refused.kind, refused.id, refused.expect, answer[1])

    async def identity(self) -> str:
        """See redis_identity."""
        return await self._identity.get()

    async def ready(self) -> str:
        """Empty when a small write is accepted by a server that evicts nothing, else one sentence."""
        try:
            # One round trip: everybody who looks at a service asks this, once a second and more.
            async with self._client.pipeline(transaction=False) as pipe:
                pipe.set(key_of_kind("probe"), b"1", ex=_PROBE_KEPT_S)
                pipe.info("memory")
                pipe.info("persistence")
                answers = await pipe.execute(raise_on_error=False)
        except REDIS_ERRORS as error:
            return str(redis_error(error, "Redis"))
        for answer in answers:
            if isinstance(answer, BaseException):
                return str(redis_error(answer, "Redis"))
        _, memory, persistence = answers
        appends = bool(int(persistence.get("aof_enabled", 0)))
        if not appends and self.appends is not appends:
            self._log.warning(
                "redis-appends-nothing",
                why="it has no append-only file: what it acknowledged is lost when it ends",
                do="appendonly yes; redis_must_append makes it a reason not to be ready",
            )
        self.appends = appends
        return store_weakness({**memory, **persistence}, must_append=self._must_append)

    async def close(self) -> None:
        """Close the connections."""
        await self._scripts.close()
        await self._client.aclose()
        await self._client.connection_pool.disconnect()

    def _row(self, kind: str, id_: str, raw: bytes | str) -> Row | None:
        """The row of a stored value; None, and one line in the log, for a value that has no version."""
        if isinstance(raw, str):  # a client that was made with decode_responses
            raise Refused(f"{kind}/{id_}: the client must not decode answers")
        version, separator, value = raw.partition(b"\n")
        if not separator or not version.isdigit() or not int(version):
            if (kind, id_) not in self._unreadable and len(self._unreadable) < _UNREADABLE_MOST:
                self._unreadable.add((kind, id_))
                self._log.error("row-without-version", kind=kind, row=id_, size_bytes=len(raw))
            return None
        return Row(id=id_, value=value, version=int(version))
