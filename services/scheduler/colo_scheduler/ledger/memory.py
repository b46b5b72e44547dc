"""The ledger in memory: the same behaviour as the one in Redis, proven by the same contract suite. For simulation and tests."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from colo_common.adapters.leases_memory import MemoryLeases
from colo_common.model.partition import Fence
from colo_common.model.placement import Attempt, attempt_key
from colo_common.model.reasons import Reason
from colo_common.ports import Unavailable
from colo_scheduler.ledger.port import (
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

__all__ = ["MemoryLedger"]


class _Node:
    def __init__(self, revision: int) -> None:
        self.revision = revision
        self.owner = ""
        self.changes = 0
        self.holds: dict[str, bytes] = {}
        self.confirmed: set[str] = set()


class MemoryLedger:
    """The ledger of one process. Finished attempts are remembered for ever. `now_ms` is the clock of leases."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.leases = MemoryLeases(now_ms)
        self._nodes: dict[str, _Node] = {}
        self._held: dict[str, str] = {}
        self._newest: dict[str, int] = {}
        self._over: dict[str, tuple[int, str]] = {}
        self._floor = 0
        self._lives = 1

    async def commit(
        self, reserves: Sequence[NodeCommit], fences: Sequence[Fence] = (), owner: str = "", compared: str = ""
    ) -> tuple[NodeAnswer, ...]:
        """See Ledger.commit."""
        check_call(reserves)
        if compared and compared != await self.identity():
            raise Unavailable("the ledger began again and was not compared yet")
        is_fenced = self.leases.fenced(fences) is not None
        return tuple(self._commit_node(reserve, is_fenced, owner) for reserve in reserves)

    async def release(self, attempts: Sequence[Attempt], nodes: Sequence[str] = ()) -> tuple[Released, ...]:
        """See Ledger.release."""
        deleted: dict[str, list[Attempt]] = {}
        for (replica, attempt), where in endings_of(attempts, nodes):
            key = attempt_key(replica, attempt)
            if where and self._held.get(key, where) != where:
                continue
            name = self._held.pop(key, None)
            over, over_node = self._over.get(replica, (0, ""))
            if name is not None or attempt > over:
                self._over[replica] = max((attempt, name or ""), (over, over_node))
            if name is None:
                if attempt == over and over_node:
                    deleted.setdefault(over_node, []).append((replica, attempt))
                continue
            if self._newest.get(replica) == attempt:
                del self._newest[replica]
            node = self._nodes[name]
            del node.holds[key]
            node.confirmed.discard(key)
            node.changes += 1
            deleted.setdefault(name, []).append((replica, attempt))
        counts = {name: self._nodes[name].changes if name in self._nodes else 0 for name in deleted}
        return tuple(
            Released(node=name, changes=counts[name], attempts=tuple(deleted[name])) for name in sorted(deleted)
        )

    async def confirm(self, attempts: Sequence[Attempt]) -> None:
        """See Ledger.confirm."""
        for replica, attempt in attempts:
            key = attempt_key(replica, attempt)
            name = self._held.get(key)
            if name is not None:
                self._nodes[name].confirmed.add(key)

    async def rows(self, nodes: Sequence[str]) -> tuple[NodeRow, ...]:
        """See Ledger.rows."""
        return tuple(self._row(name) for name in nodes)

    async def changes(self) -> Mapping[str, int]:
        """See Ledger.changes."""
        return {name: node.changes for name, node in sorted(self._nodes.items())}

    async def floor(self) -> int:
        """See Ledger.floor."""
        return self._floor

    async def put_back(self, rows: Sequence[NodeRow], floor: int) -> None:
        """See Ledger.put_back."""
        self._floor = max(self._floor, floor)
        for row in rows:
            node = self._nodes.get(row.node) or _Node(0)
            is_news = node.revision < row.revision or node.changes < row.changes
            # Somebody wrote the row that the store had before once more: the same number, and other holds.
            given = {attempt_key(*hold.attempt) for hold in row.holds}
            is_news = is_news or (node.revision == row.revision and not node.holds.keys() <= given)
            for hold in row.holds:
                replica, attempt = hold.attempt
                key = attempt_key(replica, attempt)
                if key in self._held or self._over.get(replica, (0, ""))[0] >= attempt:
                    continue
                node.holds[key] = encode_hold(hold)
                self._held[key] = row.node
                self._newest[replica] = max(self._newest.get(replica, 0), attempt)
                if hold.attempt in row.confirmed:
                    node.confirmed.add(key)
                is_news = True
            if is_news:
                node.revision = max(node.revision, row.revision) + 1
                node.changes = max(node.changes, row.changes) + 1
                node.owner = ""
                self._nodes[row.node] = node

    async def identity(self) -> str:
        """The number of its lives."""
        return str(self._lives)

    def state(self) -> dict[str, Any]:
        """A copy of everything but the leases, for `lose_since`."""
        return copy.deepcopy({name: value for name, value in vars(self).items() if name not in ("leases", "_lives")})

    def lose_since(self, state: Mapping[str, Any]) -> None:
        """Start again with this state: what came later is lost."""
        vars(self).update(copy.deepcopy(dict(state)))
        self._lives += 1

    async def forget(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """See Ledger.forget."""
        for name in nodes:
            node = self._nodes.get(name)
            if node is not None and not node.holds:
                self._floor = max(self._floor, node.revision, node.changes)
                del self._nodes[name]
        return tuple(name for name in nodes if name not in self._nodes)

    async def ready(self) -> str:
        """Always ready."""
        return ""

    def _commit_node(self, reserve: NodeCommit, is_fenced: bool, owner: str) -> NodeAnswer:
        node = self._nodes.get(reserve.node) or _Node(self._floor)
        keys = [attempt_key(*hold.attempt) for hold in reserve.holds]
        values = [encode_hold(hold) for hold in reserve.holds]
        accepted: list[Attempt] = []
        refused: list[HoldRefused] = []
        if keys and all(node.holds.get(key) == value for key, value in zip(keys, values, strict=True)):
            accepted = [hold.attempt for hold in reserve.holds]
        elif is_fenced:
            refused = [_refused(hold, Reason.SHARD_LOST) for hold in reserve.holds]
        elif node.revision != reserve.expect or (reserve.is_chained and node.owner != owner):
            refused = [_refused(hold, Reason.LEDGER_CONFLICT) for hold in reserve.holds]
        else:
            for hold, key, value in zip(reserve.holds, keys, values, strict=True):
                verdict = self._verdict(hold, key)
                if verdict is not None:
                    refused.append(verdict)
                    continue
                replica, attempt = hold.attempt
                node.holds[key] = value
                self._held[key] = reserve.node
                self._newest[replica] = attempt
                accepted.append((replica, attempt))
            if accepted:
                node.revision += 1
                node.owner = owner
                node.changes += 1 if reserve.node in self._nodes else self._floor + 1
                self._nodes[reserve.node] = node
        return NodeAnswer(
            node=reserve.node,
            revision=node.revision,
            changes=node.changes,
            accepted=tuple(accepted),
            refused=tuple(refused),
        )

    def _verdict(self, hold: Hold, key: str) -> HoldRefused | None:
        replica, attempt = hold.attempt
        if key in self._held:
            return _refused(hold, Reason.ALREADY_HELD, self._held[key])
        held, over = self._newest.get(replica, 0), self._over.get(replica, (0, ""))[0]
        if held > attempt or over >= attempt:
            return _refused(hold, Reason.OLDER_ATTEMPT, least=max(held, over + 1))
        return None

    def _row(self, name: str) -> NodeRow:
        node = self._nodes.get(name) or _Node(self._floor)
        holds = tuple(decode_hold(node.holds[key]) for key in sorted(node.holds))
        confirmed = tuple(r.attempt for r in holds if attempt_key(*r.attempt) in node.confirmed)
        return NodeRow(node=name, revision=node.revision, changes=node.changes, holds=holds, confirmed=confirmed)


def _refused(hold: Hold, reason: Reason, held_on: str = "", least: int = 0) -> HoldRefused:
    replica, attempt = hold.attempt
    return HoldRefused(replica=replica, attempt=attempt, reason=reason, held_on=held_on, least=least)
